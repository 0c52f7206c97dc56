//! AdminNetworkPolicies with a real API server and a real OVN: their rows and conditions, and their tiers by `ovn-trace`.

use lab::Suite;
use serde_json::{Value, json};
use truth::Protocol;

use crate::cluster::{Cluster, ClusterSpec, pod, until};
use crate::tracer::{Packet, Tracer};

const READY: &str = "Ready-In-Zone-global";

fn kind(name: &str) -> &'static str {
    if name == "default" { "BaselineAdminNetworkPolicy" } else { "AdminNetworkPolicy" }
}

/// A policy for ingress from all pods to namespace `server`.
fn policy(name: &str, priority: u16, action: &str) -> Value {
    let subject = json!({"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "server"}}});
    let mut spec = json!({"subject": subject, "ingress": [{"action": action, "from": [{"namespaces": {}}]}]});
    if name != "default" {
        spec["priority"] = json!(priority);
    }
    object(name, &spec)
}

fn object(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind(name), "metadata": {"name": name}, "spec": spec})
}

fn network_policy(ingress: &Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "np", "namespace": "server"}, "spec": {"podSelector": {}, "ingress": ingress}})
}

/// Waits for the policy's condition of its newest generation.
fn condition(cluster: &Cluster, name: &str) -> Value {
    until(&format!("{name} has its condition"), || {
        let policy = cluster.get(&[kind(name), name]);
        let conditions = policy["status"]["conditions"].as_array()?;
        let ours = conditions.iter().find(|condition| condition["type"] == READY)?;
        (ours["observedGeneration"] == policy["metadata"]["generation"]).then(|| ours.clone())
    })
}

/// Applies a policy and waits until its condition reports success.
fn apply_and_wait(cluster: &Cluster, policy: &Value) {
    cluster.apply(policy);
    let condition_found = condition(cluster, policy["metadata"]["name"].as_str().unwrap());
    assert_eq!(
        (&condition_found["status"], &condition_found["reason"]),
        (&json!("True"), &json!("SetupSucceeded")),
        "{condition_found}"
    );
}

/// The ACLs of all AdminNetworkPolicies: tier, priority, action and match.
fn rules(cluster: &Cluster) -> String {
    let find = |kind: &str| {
        let owner = format!("external_ids:\"k8s.ovn.org/owner-type\"={kind}");
        let columns = "--columns=tier,priority,action,match";
        cluster.lab.nbctl(&["--format=csv", "--data=bare", "--no-headings", columns, "find", "ACL", &owner]).unwrap()
    };
    format!("{}{}", find("AdminNetworkPolicy"), find("BaselineAdminNetworkPolicy"))
}

/// One node with a client and a server pod, each in its own namespace.
fn start_cluster(spec: ClusterSpec) -> Cluster {
    let cluster = spec.nodes(1).start();
    cluster.install_admin_policies();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    cluster.add_node(1);
    for name in ["client", "server"] {
        cluster.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        cluster.apply_all(&[pod(name, "p", "n1")]);
    }
    cluster
}

/// Whether the client's first packet reaches the server.
fn arrives(cluster: &Cluster, tracer: &mut Tracer) -> bool {
    let (client, server) = (cluster.network_of("client", "p"), cluster.network_of("server", "p"));
    let source = (client.mac, client.address());
    let (next, destination) = (server.mac, server.address());
    let packet = Packet { inport: "client_p", source, next, destination, protocol: Protocol::Tcp, port: 80 };
    cluster.lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    tracer.refresh();
    tracer.trace("n1", &packet.flow()).delivered.contains("server_p")
}

#[test]
fn policy_tiers_are_evaluated_in_order() {
    let cluster = start_cluster(ClusterSpec::new("tiers"));
    for name in ["client", "server"] {
        cluster.network_of(name, "p");
    }
    let mut tracer = Tracer::start(&cluster, "tiers");
    assert!(arrives(&cluster, &mut tracer), "without policies");
    // NetworkPolicies have no condition: wait for their rows.
    let np = |ingress: Option<Value>| match ingress {
        Some(ingress) => cluster.apply(&network_policy(&ingress)),
        None => drop(cluster.lab.kubectl(&["delete", "networkpolicy", "-n", "server", "np"]).unwrap()),
    };
    let rows = |many: bool| {
        let owner = "external_ids:\"k8s.ovn.org/owner-type\"=NetworkPolicy";
        until("the NetworkPolicy's rows", || {
            let count =
                cluster.lab.nbctl(&["--bare", "--columns=_uuid", "find", "ACL", owner]).unwrap().lines().count();
            ((count > 0) == many).then_some(())
        });
    };
    apply_and_wait(&cluster, &policy("default", 0, "Deny"));
    assert!(!arrives(&cluster, &mut tracer), "the baseline denies without a NetworkPolicy");
    np(Some(json!([{}])));
    rows(true);
    assert!(arrives(&cluster, &mut tracer), "a NetworkPolicy overrides the baseline");
    apply_and_wait(&cluster, &policy("deny", 10, "Deny"));
    assert!(!arrives(&cluster, &mut tracer), "a denying AdminNetworkPolicy overrides a NetworkPolicy");
    apply_and_wait(&cluster, &policy("pass", 5, "Pass"));
    assert!(arrives(&cluster, &mut tracer), "a lower priority number passes: the NetworkPolicy decides");
    np(None);
    rows(false);
    assert!(!arrives(&cluster, &mut tracer), "passed without a NetworkPolicy: the baseline decides");
    np(Some(json!([])));
    rows(true);
    assert!(!arrives(&cluster, &mut tracer), "the NetworkPolicy isolates the server");
    apply_and_wait(&cluster, &policy("pass", 5, "Allow"));
    assert!(arrives(&cluster, &mut tracer), "an allowing AdminNetworkPolicy overrides a NetworkPolicy");
    cluster.lab.kubectl(&["delete", "anp", "--all"]).unwrap();
    cluster.lab.kubectl(&["delete", "banp", "--all"]).unwrap();
    until("all rules are gone", || rules(&cluster).trim().is_empty().then_some(()));
    np(None);
    rows(false);
    assert!(arrives(&cluster, &mut tracer), "after all policies were deleted");
    until("no group of a selector is left over", || {
        let selectors = ["find", "Port_Group", "external_ids:\"k8s.ovn.org/owner-type\"=Selector"];
        cluster.lab.nbctl(&selectors).unwrap().trim().is_empty().then_some(())
    });
}

#[test]
fn an_invalid_admin_policy_keeps_its_acls_and_reports_a_condition() {
    let cluster = start_cluster(ClusterSpec::new("conditions"));
    apply_and_wait(&cluster, &policy("p", 7, "Deny"));
    let good = rules(&cluster);
    assert!(good.starts_with("1,31807,drop,"), "{good}");
    // Conditions of other managers are kept.
    let other = json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind("p"), "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "Audited", "status": "True", "reason": "Looked", "message": "fine",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let words = ["apply", "--server-side", "--subresource=status", "--field-manager=auditor", "-f", "-"];
    let control = cluster.lab.machine("control").unwrap();
    let words: Vec<&str> = ["kubectl"].into_iter().chain(words).collect();
    control.run_with_input(&words, &other.to_string()).unwrap();

    // The CRD's validation does not detect this invalid CIDR.
    let mut broken = policy("p", 7, "Deny");
    broken["spec"]["egress"] = json!([{"action": "Deny", "to": [{"networks": ["10.0.0.0/99"]}]}]);
    cluster.apply(&broken);
    let condition_found = condition(&cluster, "p");
    assert_eq!(
        (&condition_found["status"], &condition_found["reason"]),
        (&json!("False"), &json!("SetupFailed")),
        "{condition_found}"
    );
    let message = condition_found["message"].as_str().unwrap();
    assert!(message.starts_with("invalid policy: spec.egress[0].to[0].networks[0]: "), "{message}");
    assert!(message.ends_with("the last valid version stays in effect"), "{message}");
    assert_eq!(rules(&cluster), good);
    let all = cluster.get(&["anp", "p"])["status"]["conditions"].as_array().unwrap().clone();
    assert!(all.iter().any(|condition| condition["type"] == "Audited"), "{all:?}");
    until("an Event reports it", || {
        let events = cluster.get(&["events", "-n", "default"]);
        let about = |event: &&Value| event["reason"] == "InvalidPolicy" && event["involvedObject"]["name"] == "p";
        events["items"].as_array()?.iter().find(about).map(drop)
    });

    // After a takeover nothing is written and the ACLs are unchanged.
    let version = || cluster.get(&["anp", "p"])["metadata"]["resourceVersion"].clone();
    let before = version();
    cluster.lab.kill("c1").unwrap();
    cluster.controller("c2");
    cluster.wait_leader("c2");
    until("resync complete", || cluster.lab.log("c2").unwrap().contains("resync complete").then_some(()));
    assert_eq!((rules(&cluster), version()), (good, before));

    // Two policies with the same priority.
    apply_and_wait(&cluster, &policy("p", 7, "Deny"));
    apply_and_wait(&cluster, &policy("a", 7, "Allow"));
    let condition_found = condition(&cluster, "a");
    assert!(
        condition_found["message"].as_str().unwrap().contains("AdminNetworkPolicy p also has priority 7"),
        "{condition_found}"
    );
}

#[test]
fn crds_reject_invalid_admin_policies() {
    let cluster = ClusterSpec::new("types").start();
    cluster.install_admin_policies();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut object = policy("p", 7, "Deny");
        change(&mut object["spec"]);
        object
    };
    let egress =
        |to: Value, ports: Value| with(&|spec| spec["egress"] = json!([{"action": "Deny", "to": to, "ports": ports}]));
    let rules = |count: usize| vec![json!({"action": "Deny", "from": [{"namespaces": {}}]}); count];
    for (object, word) in [
        (with(&|spec| spec["priority"] = json!(1001)), "priority"),
        (with(&|spec| drop(spec.as_object_mut().unwrap().remove("priority"))), "priority"),
        (with(&|spec| spec["subject"] = json!({})), "subject"),
        (with(&|spec| spec["ingress"] = json!(rules(101))), "ingress"),
        (with(&|spec| spec["ingress"][0]["from"] = json!([])), "from"),
        (with(&|spec| spec["ingress"][0]["action"] = json!("Reject")), "action"),
        (egress(json!([{"networks": ["here"]}]), json!([])), "networks"),
        (egress(json!([{"namespaces": {}}]), json!([{"portRange": {"start": 9, "end": 9}}])), "below"),
        (egress(json!([{"nodes": {}}]), json!([{"namedPort": "http"}])), "names for ports"),
        (
            json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind("default"), "metadata": {"name": "other"},
            "spec": policy("default", 0, "Deny")["spec"]}),
            "default",
        ),
        (policy("default", 0, "Pass"), "action"),
    ] {
        let why = cluster.lab.apply(&object.to_string()).unwrap_err().to_string();
        assert!(why.contains(word) && !why.contains("no matches for kind"), "{object}: {why}");
    }
    for object in
        [policy("p", 0, "Pass"), policy("default", 0, "Allow"), with(&|spec| spec["ingress"] = json!(rules(100)))]
    {
        cluster.apply(&object);
    }
}

#[test]
fn the_controller_role_may_only_patch_admin_policy_status() {
    let cluster = ClusterSpec::new("role").start();
    cluster.install_admin_policies();
    for manifest in ["ovnkube/namespace.yaml", "controller/rbac.yaml", "ovnkube/rbac.yaml"] {
        let path = format!("{}/../../deploy/{manifest}", env!("CARGO_MANIFEST_DIR"));
        cluster.lab.apply(&std::fs::read_to_string(path).unwrap()).unwrap();
    }
    let may = |verb: &str, resource: &str, subresource: &str| {
        let who = "--as=system:serviceaccount:ovn-kubernetes:ovnkube-master";
        let subresource = format!("--subresource={subresource}");
        // `can-i` also fails when the answer is no.
        cluster
            .lab
            .kubectl(&["auth", "can-i", verb, resource, &subresource, who])
            .is_ok_and(|condition_found| condition_found.trim() == "yes")
    };
    // The authorizer sees new roles with a delay.
    until("the roles are in effect", || {
        may("patch", "baselineadminnetworkpolicies.policy.networking.k8s.io", "status").then_some(())
    });
    for plural in ["adminnetworkpolicies", "baselineadminnetworkpolicies"] {
        let resource = format!("{plural}.policy.networking.k8s.io");
        for (verb, subresource, allowed) in [
            ("list", "", true),
            ("watch", "", true),
            ("patch", "status", true),
            ("patch", "", false),
            ("delete", "", false),
        ] {
            assert_eq!(may(verb, &resource, subresource), allowed, "{verb} {resource} {subresource}");
        }
    }
}

#[test]
fn without_acl_tiers_the_condition_names_the_required_ovn_version() {
    let cluster = start_cluster(ClusterSpec { suite: Some(Suite::Bookworm), ..ClusterSpec::new("notiers") });
    cluster.apply(&policy("p", 7, "Deny"));
    cluster.apply(&network_policy(&json!([])));
    let condition_found = condition(&cluster, "p");
    let needed = condition_found["message"].as_str().unwrap().contains("OVN 23.06 or newer is needed");
    assert!(condition_found["status"] == "False" && needed, "{condition_found}");
    until("the log says so", || cluster.lab.log("c1").unwrap().contains("OVN 23.06 or newer is needed").then_some(()));
    until("the NetworkPolicy's rows", || {
        let owner = "external_ids:\"k8s.ovn.org/owner-type\"=NetworkPolicy";
        let found = cluster.lab.nbctl(&["--bare", "--columns=action", "find", "ACL", owner]).unwrap();
        found.contains("drop").then_some(())
    });
}
