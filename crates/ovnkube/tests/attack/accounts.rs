//! Attempts with the tokens of the node agent and of the controller.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::{Caller, PatchKind};
use crate::certificates;
use crate::report::{Report, Scope};
use crate::site::{NAMESPACE, Site};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// Group, resource and name of objects that roles name.
const NAMED: [(&str, &str, &str); 9] = [
    ("coordination.k8s.io", "leases", "ovn-kubernetes-master"),
    ("coordination.k8s.io", "leases", "ovnkube-pki"),
    ("", "configmaps", "ovnkube-db"),
    ("", "configmaps", "ovn-ca"),
    ("", "configmaps", "ovn-node-ca"),
    ("", "configmaps", "ovn-chassis"),
    ("", "secrets", "ovn-ca"),
    ("", "secrets", "ovn-node-ca"),
    ("", "secrets", "ovn-cert"),
];
/// Names in CertificateSigningRequests.
const SIGNERS: [&str; 4] = [
    "k8s.ovn.org/chassis",
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
];
const OWN: Scope = Scope::Own;
const FOREIGN: Scope = Scope::Foreign;

/// What an answer means, for people: allowed, or who denied it.
pub(crate) fn verdict(answer: &Value) -> String {
    let message = answer["message"].as_str().unwrap_or_default();
    match (answer["kind"].as_str(), answer["code"].as_u64()) {
        (Some("Status"), Some(403)) if message.contains("ValidatingAdmissionPolicy") => {
            let name = message.split('\'').nth(1).unwrap_or_default();
            format!("denied by `{name}`")
        }
        (Some("Status"), Some(403)) => "denied by RBAC".into(),
        (Some("Status"), Some(422)) => "invalid".into(),
        (Some("Status"), code) => panic!("code {code:?}: {answer}"),
        _ => "allowed".into(),
    }
}

/// All resources of the API server, subresources included, by group.
fn resources(site: &Site) -> BTreeSet<(String, String)> {
    let administrator = site.administrator();
    let mut found = BTreeSet::new();
    let groups = administrator.get("/apis");
    let versions = groups["groups"].as_array().unwrap().iter().filter_map(|group| {
        Some((
            group["name"].as_str()?.to_owned(),
            format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str()?),
        ))
    });
    for (group, path) in versions.chain([(String::new(), "/api/v1".to_owned())]) {
        let list = administrator.get(&path);
        for resource in list["resources"].as_array().unwrap() {
            found.insert((group.clone(), resource["name"].as_str().unwrap().to_owned()));
        }
    }
    assert!(found.len() > 100, "{found:?}");
    found
}

/// A table of all that RBAC allows an account. Every verb of every resource is asked for, in a foreign namespace and in ours.
pub(crate) fn rights(site: &Site, report: &mut Report, account: &str) {
    let resources = resources(site);
    let mut asked = Vec::new();
    for namespace in ["default", NAMESPACE] {
        for (group, resource) in &resources {
            let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            for verb in VERBS {
                asked.push(json!({"namespace": namespace, "verb": verb, "group": group, "resource": name, "subresource": subresource}));
            }
        }
        for (group, resource, name) in NAMED {
            for verb in VERBS {
                asked.push(
                    json!({"namespace": namespace, "verb": verb, "group": group, "resource": resource, "name": name,
                    "subresource": ""}),
                );
            }
        }
        for signer in SIGNERS {
            for verb in ["approve", "sign"] {
                asked.push(
                    json!({"namespace": namespace, "verb": verb, "group": "certificates.k8s.io", "resource": "signers",
                    "name": signer, "subresource": ""}),
                );
            }
        }
        for (group, resource) in [("", "users"), ("", "groups"), ("", "serviceaccounts")] {
            asked.push(json!({"namespace": namespace, "verb": "impersonate", "group": group, "resource": resource, "subresource": ""}));
        }
    }
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let allowed = site.administrator().reviews(&user, &asked);
    let mut rights: BTreeMap<String, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for (asked, _) in asked.iter().zip(allowed).filter(|(_, allowed)| *allowed) {
        let text = |key: &str| asked[key].as_str().unwrap();
        let slash = if text("subresource").is_empty() { "" } else { "/" };
        let dot = if text("group").is_empty() { "" } else { "." };
        let named = asked["name"].as_str().map(|name| format!(" named `{name}`")).unwrap_or_default();
        let name = format!("`{}{slash}{}{dot}{}`{named}", text("resource"), text("subresource"), text("group"));
        rights.entry(name).or_default().entry(text("namespace")).or_default().push(text("verb"));
    }
    report.table(&["resource", "every namespace", "`ovn-kubernetes` only"]);
    // What an account may do with any object, it may do with those that are named, too.
    let any = |resource: &str| resource.split_once(" named ").and_then(|(any, _)| rights.get(any));
    for (resource, of) in rights.iter().filter(|(resource, of)| any(resource) != Some(*of)) {
        let everywhere = of.get("default").cloned().unwrap_or_default();
        let ours = of.get(NAMESPACE).into_iter().flatten().copied().filter(|verb| !everywhere.contains(verb));
        report.row(&[resource, &everywhere.join(", "), &ours.collect::<Vec<_>>().join(", ")]);
    }
    report.paragraph("RBAC denies every other verb of every resource that the API server has.");
}

/// One patch: scope, description, path, kind of patch, body.
type Attempt = (Scope, &'static str, String, PatchKind, Value);

fn run(report: &mut Report, caller: &Caller<'_>, reader: &Caller<'_>, attempts: Vec<Attempt>) {
    for (scope, what, path, kind, body) in attempts {
        let object = path.trim_end_matches("/status").to_owned();
        let content = |caller: &Caller<'_>| {
            let mut object = caller.get(&object);
            for volatile in ["managedFields", "resourceVersion"] {
                object["metadata"][volatile] = Value::Null;
            }
            object
        };
        let before = content(reader);
        let answer = caller.patch(&path, kind, &body);
        let mut result = verdict(&answer);
        let changed = before != content(reader);
        if result == "allowed" && !changed {
            result = "ignored by the API server".into();
        }
        assert!(result == "allowed" || !changed, "{what}: {result}, but it took effect: {answer}");
        report.row(&[what, if scope == OWN { "its own" } else { "foreign" }, &result]);
        report.attempts.push((scope, format!("{what}: {}", answer["message"]), changed));
    }
}

fn annotation(key: &str) -> Value {
    json!({"metadata": {"annotations": {key: "intruder"}}})
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": status, "reason": "Attack", "message": "attack"}]}})
}

fn owner() -> Value {
    json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "u"}]}})
}

pub(crate) fn events(report: &mut Report, caller: &Caller<'_>, reader: &Caller<'_>, component: &str, instance: &str) {
    let event = |name: &str, kind: &str, object: &str, component: &str, instance: &str| {
        let namespace = if kind == "Node" { "" } else { "default" };
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": kind, "name": object, "namespace": namespace},
            "reason": "Attack", "message": "m", "type": "Warning", "count": 1, "reportingComponent": component,
            "reportingInstance": instance, "source": {"component": component, "host": instance}})
    };
    let path = "/api/v1/namespaces/default/events";
    reader.create(path, &event(&format!("kubelets-{component}"), "Node", "n1", "kubelet", "n1"));
    reader.create(path, &event(&format!("other-{component}"), "Node", "n2", "ovnkube-node", "n2"));
    let mut attempts = vec![
        (OWN, "Event about node n1", event(&format!("own-{component}"), "Node", "n1", component, instance)),
        (
            FOREIGN,
            "Event in the name of kubelet",
            event(&format!("as-kubelet-{component}"), "Node", "n1", "kubelet", "n1"),
        ),
    ];
    if component == "ovnkube-node" {
        attempts.push((FOREIGN, "Event about node n2", event("about-n2", "Node", "n2", component, instance)));
        attempts.push((FOREIGN, "Event in the name of the agent of n2", event("as-n2", "Node", "n2", component, "n2")));
    }
    for (scope, what, body) in attempts {
        let answer = caller.create(path, &body);
        let result = verdict(&answer);
        report.row(&[what, if scope == OWN { "its own" } else { "foreign" }, &result]);
        report.attempts.push((scope, format!("{what}: {answer}"), result == "allowed"));
    }
    let (count, rename) =
        (json!({"count": 7}), json!({"count": 7, "reportingComponent": component, "reportingInstance": instance}));
    let of = |name: &str| format!("{path}/{name}-{component}");
    run(
        report,
        caller,
        reader,
        vec![
            (OWN, "count of its Event", of("own"), PatchKind::Merge, count.clone()),
            (FOREIGN, "count of an Event of kubelet", of("kubelets"), PatchKind::Merge, count.clone()),
            (FOREIGN, "an Event of kubelet, made its own", of("kubelets"), PatchKind::Merge, rename),
            (FOREIGN, "count of an Event of the agent of n2", of("other"), PatchKind::Merge, count),
        ],
    );
}

/// The token of the agent of n1.
pub(crate) fn node(site: &Site, report: &mut Report) {
    let (caller, reader) = (site.agent(), site.administrator());
    report.heading("One node's credentials");
    report.paragraph("Account `ovnkube-node`, token bound to the agent's pod on node n1.");
    rights(site, report, "ovnkube-node");
    report.table(&["attempt", "whose", "result"]);
    let own = || "/api/v1/nodes/n1/status".to_owned();
    let plain = || "/api/v1/nodes/n1".to_owned();
    let other = || "/api/v1/nodes/n2/status".to_owned();
    let s = PatchKind::Strategic;
    // Something to take away.
    reader.patch(&own(), s, &condition("Ready", "True"));
    reader.patch(&plain(), s, &json!({"metadata": {"labels": {"zone": "a"}, "annotations": {"example.com/a": "b"}}}));
    let only = json!([{"type": "k8s.ovn.org/NodeNetworkReady", "status": "True"}]);
    let images = json!([{"names": ["x"], "sizeBytes": 1}]);
    run(
        report,
        &caller,
        &reader,
        vec![
            (OWN, "`k8s.ovn.org/node-chassis-id` of n1", own(), s, annotation("k8s.ovn.org/node-chassis-id")),
            (OWN, "`k8s.ovn.org/l3-gateway-config` of n1", own(), s, annotation("k8s.ovn.org/l3-gateway-config")),
            (OWN, "`k8s.ovn.org/host-cidrs` of n1", own(), s, annotation("k8s.ovn.org/host-cidrs")),
            (OWN, "`k8s.ovn.org/node-primary-ifaddr` of n1", own(), s, annotation("k8s.ovn.org/node-primary-ifaddr")),
            (
                OWN,
                "condition `k8s.ovn.org/NodeNetworkReady` of n1",
                own(),
                s,
                condition("k8s.ovn.org/NodeNetworkReady", "True"),
            ),
            (FOREIGN, "`k8s.ovn.org/node-subnets` of n1", own(), s, annotation("k8s.ovn.org/node-subnets")),
            (FOREIGN, "`k8s.ovn.org/node-id` of n1", own(), s, annotation("k8s.ovn.org/node-id")),
            (FOREIGN, "`k8s.ovn.org/expected-nb-cfg` of n1", own(), s, annotation("k8s.ovn.org/expected-nb-cfg")),
            (FOREIGN, "another annotation of n1", own(), s, annotation("example.com/b")),
            (
                FOREIGN,
                "removal of another annotation of n1",
                own(),
                s,
                json!({"metadata": {"annotations": {"example.com/a": null}}}),
            ),
            (
                FOREIGN,
                "label of n1",
                own(),
                s,
                json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            ),
            (
                FOREIGN,
                "label of n1, by server-side apply",
                own(),
                PatchKind::Apply,
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "b"}}}),
            ),
            (
                FOREIGN,
                "removal of a label of n1, by JSON patch",
                own(),
                PatchKind::Json,
                json!([{"op": "remove", "path": "/metadata/labels/zone"}]),
            ),
            (FOREIGN, "ownerReferences of n1", own(), s, owner()),
            (FOREIGN, "finalizers of n1", own(), s, json!({"metadata": {"finalizers": ["example.com/f"]}})),
            (FOREIGN, "condition `Ready` of n1", own(), s, condition("Ready", "False")),
            (FOREIGN, "condition `NetworkUnavailable` of n1", own(), s, condition("NetworkUnavailable", "True")),
            (
                FOREIGN,
                "removal of all other conditions of n1",
                own(),
                PatchKind::Merge,
                json!({"status": {"conditions": only}}),
            ),
            (
                FOREIGN,
                "addresses of n1",
                own(),
                s,
                json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}),
            ),
            (FOREIGN, "capacity of n1", own(), s, json!({"status": {"capacity": {"cpu": "9"}}})),
            (FOREIGN, "images of n1", own(), s, json!({"status": {"images": images}})),
            (
                FOREIGN,
                "taints of n1, through the status",
                own(),
                s,
                json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
            ),
            (FOREIGN, "taints of n1", plain(), s, json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})),
            (FOREIGN, "`k8s.ovn.org/node-chassis-id` of n2", other(), s, annotation("k8s.ovn.org/node-chassis-id")),
            (FOREIGN, "`k8s.ovn.org/l3-gateway-config` of n2", other(), s, annotation("k8s.ovn.org/l3-gateway-config")),
            (FOREIGN, "`k8s.ovn.org/node-subnets` of n2", other(), s, annotation("k8s.ovn.org/node-subnets")),
            (
                FOREIGN,
                "condition `k8s.ovn.org/NodeNetworkReady` of n2",
                other(),
                s,
                condition("k8s.ovn.org/NodeNetworkReady", "False"),
            ),
            (FOREIGN, "label of n2", other(), s, json!({"metadata": {"labels": {"a": "b"}}})),
            (
                FOREIGN,
                "status of a pod on n1",
                "/api/v1/namespaces/default/pods/own/status".into(),
                s,
                json!({"status": {"podIP": "10.0.0.9"}}),
            ),
            (
                FOREIGN,
                "status of a pod on n2",
                "/api/v1/namespaces/default/pods/victim/status".into(),
                s,
                json!({"status": {"podIP": "10.0.0.9"}}),
            ),
            (
                FOREIGN,
                "label of a pod on n2",
                "/api/v1/namespaces/default/pods/victim".into(),
                s,
                json!({"metadata": {"labels": {"a": "b"}}}),
            ),
        ],
    );
    events(report, &caller, &reader, "ovnkube-node", "n1");
    certificates::requests(site, report);
    let unbound = site.unbound_agent();
    run(
        report,
        &unbound,
        &reader,
        vec![(
            FOREIGN,
            "`k8s.ovn.org/node-chassis-id` of n1, with a token that names no node",
            own(),
            s,
            annotation("k8s.ovn.org/node-chassis-id"),
        )],
    );
}

/// The token of a controller.
pub(crate) fn controller(site: &Site, report: &mut Report) {
    let (caller, reader) = (site.controller(), site.administrator());
    report.heading("The controller's credentials");
    report.paragraph("Account `ovnkube-master`, which controllers on control-plane nodes have.");
    rights(site, report, "ovnkube-master");
    report.table(&["attempt", "whose", "result"]);
    let node = || "/api/v1/nodes/n2/status".to_owned();
    let pod = || "/api/v1/namespaces/default/pods/victim/status".to_owned();
    let policy = || "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies/victim/status".to_owned();
    let s = PatchKind::Strategic;
    let since = "2026-01-01T00:00:00Z";
    let of_policy = |kind: &str| {
        let condition =
            json!({"type": kind, "status": "True", "reason": "Attack", "message": "m", "lastTransitionTime": since});
        json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "AdminNetworkPolicy", "metadata": {"name": "victim"},
            "status": {"conditions": [condition]}})
    };
    run(
        report,
        &caller,
        &reader,
        vec![
            (OWN, "`k8s.ovn.org/node-subnets` of a node", node(), s, annotation("k8s.ovn.org/node-subnets")),
            (OWN, "`k8s.ovn.org/node-id` of a node", node(), s, annotation("k8s.ovn.org/node-id")),
            (OWN, "`k8s.ovn.org/expected-nb-cfg` of a node", node(), s, annotation("k8s.ovn.org/expected-nb-cfg")),
            (OWN, "condition `NetworkUnavailable` of a node", node(), s, condition("NetworkUnavailable", "False")),
            (
                OWN,
                "condition `k8s.ovn.org/NodeNetworkReady` of a node: Unknown",
                node(),
                s,
                condition("k8s.ovn.org/NodeNetworkReady", "Unknown"),
            ),
            (
                FOREIGN,
                "condition `k8s.ovn.org/NodeNetworkReady` of a node: True",
                node(),
                s,
                condition("k8s.ovn.org/NodeNetworkReady", "True"),
            ),
            (
                FOREIGN,
                "`k8s.ovn.org/l3-gateway-config` of a node",
                node(),
                s,
                annotation("k8s.ovn.org/l3-gateway-config"),
            ),
            (FOREIGN, "`k8s.ovn.org/node-chassis-id` of a node", node(), s, annotation("k8s.ovn.org/node-chassis-id")),
            (FOREIGN, "another annotation of a node", node(), s, annotation("example.com/b")),
            (FOREIGN, "label of a node", node(), s, json!({"metadata": {"labels": {"a": "b"}}})),
            (FOREIGN, "finalizers of a node", node(), s, json!({"metadata": {"finalizers": ["example.com/f"]}})),
            (FOREIGN, "ownerReferences of a node", node(), s, owner()),
            (FOREIGN, "condition `Ready` of a node", node(), s, condition("Ready", "False")),
            (
                FOREIGN,
                "addresses of a node",
                node(),
                s,
                json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}),
            ),
            (FOREIGN, "taints of a node", "/api/v1/nodes/n2".into(), s, json!({"spec": {"unschedulable": true}})),
            (OWN, "`k8s.ovn.org/pod-networks` of a pod", pod(), s, annotation("k8s.ovn.org/pod-networks")),
            (
                OWN,
                "condition `k8s.ovn.org/NetworkAllocated` of a pod",
                pod(),
                s,
                condition("k8s.ovn.org/NetworkAllocated", "True"),
            ),
            (FOREIGN, "another annotation of a pod", pod(), s, annotation("example.com/b")),
            (FOREIGN, "label of a pod", pod(), s, json!({"metadata": {"labels": {"app": "intruder"}}})),
            (
                FOREIGN,
                "label of a pod, by server-side apply",
                pod(),
                PatchKind::Apply,
                json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "victim", "namespace": "default", "labels": {"app": "intruder"}}}),
            ),
            (FOREIGN, "finalizers of a pod", pod(), s, json!({"metadata": {"finalizers": ["example.com/f"]}})),
            (FOREIGN, "ownerReferences of a pod", pod(), s, owner()),
            (FOREIGN, "condition `Ready` of a pod", pod(), s, condition("Ready", "True")),
            (
                FOREIGN,
                "addresses of a pod",
                pod(),
                s,
                json!({"status": {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]}}),
            ),
            (FOREIGN, "phase of a pod", pod(), s, json!({"status": {"phase": "Failed"}})),
            (
                FOREIGN,
                "image of a pod",
                "/api/v1/namespaces/default/pods/victim".into(),
                s,
                json!({"spec": {"containers": [{"name": "c", "image": "intruder"}]}}),
            ),
            (
                OWN,
                "condition `Ready-In-Zone-global` of an AdminNetworkPolicy",
                policy(),
                PatchKind::Apply,
                of_policy("Ready-In-Zone-global"),
            ),
            (FOREIGN, "another condition of an AdminNetworkPolicy", policy(), PatchKind::Merge, of_policy("Attack")),
            (
                FOREIGN,
                "spec of an AdminNetworkPolicy",
                policy().replace("/status", ""),
                PatchKind::Merge,
                json!({"spec": {"priority": 1}}),
            ),
            (
                FOREIGN,
                "another Lease of its namespace",
                format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/other"),
                PatchKind::Merge,
                json!({"spec": {"holderIdentity": "intruder"}}),
            ),
            (
                FOREIGN,
                "a Service",
                "/api/v1/namespaces/default/services/kubernetes".into(),
                PatchKind::Merge,
                json!({"metadata": {"labels": {"a": "b"}}}),
            ),
        ],
    );
    events(report, &caller, &reader, "ovnkube-controller", "controller");
}
