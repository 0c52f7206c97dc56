//! An API server with the accounts, roles and policies of `deploy/`, two nodes, their pods and the controller.

use lab::Machine;
use serde_json::{Value, json};

use crate::api::Caller;
use crate::certificates;
use crate::cluster::{Cluster, ClusterSpec, node, pod, until};
use crate::signer::secret;

pub(crate) const NAMESPACE: &str = "ovn-kubernetes";

pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    control: Machine,
    server: String,
}

impl Site {
    pub(crate) fn start() -> Self {
        let cluster = ClusterSpec::new("attack").start();
        cluster.install_admin_policies();
        for manifest in [
            "ovnkube/namespace.yaml",
            "controller/rbac.yaml",
            "ovnkube/rbac.yaml",
            "ovnkube/pki.yaml",
            "ovnkube/admission.yaml",
        ] {
            let path = format!("{}/../../deploy/{manifest}", env!("CARGO_MANIFEST_DIR"));
            cluster.lab.apply(&std::fs::read_to_string(path).unwrap()).unwrap();
        }
        // As the lab's network: so that the controller knows the addresses of nodes.
        cluster.apply_all(&[node("n1"), node("n2")]);
        for number in [1, 2] {
            cluster.annotate_node(&format!("n{number}"), number, "shared");
        }
        let mut agent = pod(NAMESPACE, "agent", "n1");
        agent["spec"]["serviceAccountName"] = "ovnkube-node".into();
        let mut controller = pod(NAMESPACE, "controller", "n1");
        controller["spec"]["serviceAccountName"] = "ovnkube-master".into();
        let labelled = |mut pod: Value| {
            pod["metadata"]["labels"] = json!({"app": "victim"});
            pod
        };
        let own = labelled(pod("default", "own", "n1"));
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "other", "namespace": NAMESPACE}, "spec": {"holderIdentity": "other"}});
        let policy = json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "AdminNetworkPolicy",
            "metadata": {"name": "victim"}, "spec": {"priority": 5, "subject": {"namespaces": {}},
                "egress": [{"name": "all", "action": "Allow", "to": [{"namespaces": {}}]}]}});
        cluster.apply_all(&[agent, controller, own, labelled(pod("default", "victim", "n2")), lease, policy]);
        let control = cluster.lab.machine("control").unwrap();
        let config =
            cluster.lab.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"]);
        let site = Self { cluster, control, server: config.unwrap().trim().to_owned() };
        site.await_policies();
        site
    }

    /// The API server applies a policy some time after it accepted it.
    fn await_policies(&self) {
        let names = self.cluster.get(&["validatingadmissionpolicies"]);
        for policy in names["items"].as_array().unwrap() {
            let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
            assert!(warnings.is_null(), "{}: {warnings}", policy["metadata"]["name"]);
        }
        let (agent, controller, signer) = (self.agent(), self.controller(), self.signer());
        let label = json!({"metadata": {"labels": {"intruder": "yes"}}});
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "probe", "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "n1"}, "reportingComponent": "other"});
        let condition = json!({"status": {"conditions": [{"type": "probe", "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let of_policies = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies/victim/status?dryRun=All";
        until("all policies are enforced", || {
            let answers = [
                agent.patch("/api/v1/nodes/n1/status?dryRun=All", crate::api::PatchKind::Strategic, &label),
                controller.patch("/api/v1/nodes/n1/status?dryRun=All", crate::api::PatchKind::Strategic, &label),
                controller.patch(
                    "/api/v1/namespaces/default/pods/own/status?dryRun=All",
                    crate::api::PatchKind::Strategic,
                    &label,
                ),
                controller.patch(of_policies, crate::api::PatchKind::Merge, &condition),
                agent.create("/api/v1/namespaces/default/events?dryRun=All", &event),
                signer
                    .create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets?dryRun=All"), &secret("probe", "Opaque")),
                agent.create(
                    &format!("{}?dryRun=All", certificates::PATH),
                    &certificates::request("example.com/signer", &[]),
                ),
            ];
            // Not by RBAC, which sees new roles with a delay, too.
            let by_policy = |answer: &Value| {
                let message = answer["message"].as_str().unwrap_or_default();
                answer["code"] == 403 && message.contains("ValidatingAdmissionPolicy")
            };
            answers.iter().all(by_policy).then_some(())
        });
    }

    fn caller(&self, token: &str) -> Caller<'_> {
        Caller { machine: &self.control, server: self.server.clone(), token: token.trim().to_owned() }
    }

    fn token(&self, words: &[&str]) -> String {
        let words = [&["-n", NAMESPACE, "create", "token"], words].concat();
        until("a token", || self.cluster.lab.kubectl(&words).ok())
    }

    /// A token as kubelet mounts it into the agent's pod on n1.
    pub(crate) fn agent(&self) -> Caller<'_> {
        self.caller(&self.token(&["ovnkube-node", "--bound-object-kind", "Pod", "--bound-object-name", "agent"]))
    }

    /// A token of the same account that names no node.
    pub(crate) fn unbound_agent(&self) -> Caller<'_> {
        self.caller(&self.token(&["ovnkube-node"]))
    }

    pub(crate) fn controller(&self) -> Caller<'_> {
        self.caller(&self.token(&["ovnkube-master", "--bound-object-kind", "Pod", "--bound-object-name", "controller"]))
    }

    /// The signer's pods have tokens of this account.
    pub(crate) fn signer(&self) -> Caller<'_> {
        self.caller(&self.token(&["ovnkube-pki"]))
    }

    /// An account with every right: it reads back what others wrote.
    pub(crate) fn administrator(&self) -> Caller<'_> {
        let lab = &self.cluster.lab;
        let _ = lab.kubectl(&["-n", NAMESPACE, "create", "serviceaccount", "administrator"]);
        let subject = format!("--serviceaccount={NAMESPACE}:administrator");
        let _ =
            lab.kubectl(&["create", "clusterrolebinding", "administrator", "--clusterrole=cluster-admin", &subject]);
        self.caller(&self.token(&["administrator"]))
    }

    /// A tenant with the role `edit` in the namespace `tenant`.
    pub(crate) fn tenant(&self) -> Caller<'_> {
        let lab = &self.cluster.lab;
        lab.kubectl(&["create", "namespace", "tenant"]).unwrap();
        lab.kubectl(&["-n", "tenant", "create", "serviceaccount", "tenant"]).unwrap();
        let binding = ["-n", "tenant", "create", "rolebinding", "tenant", "--clusterrole=edit"];
        lab.kubectl(&[&binding[..], &["--serviceaccount=tenant:tenant"]].concat()).unwrap();
        self.caller(&lab.kubectl(&["-n", "tenant", "create", "token", "tenant"]).unwrap())
    }
}
