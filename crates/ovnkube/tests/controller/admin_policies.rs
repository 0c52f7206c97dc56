//! AdminNetworkPolicies with a real API server and a real OVN: their rows, their conditions, and what `ovn-trace` makes of
//! their tiers.

use lab::Suite;
use serde_json::{Value, json};
use truth::Protocol;

use crate::cluster::{Cluster, Wish, pod, until};
use crate::tracer::{Packet, Tracer};

const READY: &str = "Ready-In-Zone-global";

fn kind(name: &str) -> &'static str {
    if name == "default" { "BaselineAdminNetworkPolicy" } else { "AdminNetworkPolicy" }
}

/// A policy about what comes to `server` from all pods.
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

/// What a policy says of its newest spec, once it says something.
fn condition(cluster: &Cluster, name: &str) -> Value {
    until(&format!("{name} has its condition"), || {
        let policy = cluster.get(&[kind(name), name]);
        let conditions = policy["status"]["conditions"].as_array()?;
        let ours = conditions.iter().find(|condition| condition["type"] == READY)?;
        (ours["observedGeneration"] == policy["metadata"]["generation"]).then(|| ours.clone())
    })
}

/// The policy is there, and it says that it is in force.
fn enforce(cluster: &Cluster, policy: &Value) {
    cluster.apply(policy);
    let said = condition(cluster, policy["metadata"]["name"].as_str().unwrap());
    assert_eq!((&said["status"], &said["reason"]), (&json!("True"), &json!("SetupSucceeded")), "{said}");
}

/// The rules of all AdminNetworkPolicies: tier, priority, action and match.
fn rules(cluster: &Cluster) -> String {
    let find = |kind: &str| {
        let owner = format!("external_ids:\"k8s.ovn.org/owner-type\"={kind}");
        let columns = "--columns=tier,priority,action,match";
        cluster.lab.nbctl(&["--format=csv", "--data=bare", "--no-headings", columns, "find", "ACL", &owner]).unwrap()
    };
    format!("{}{}", find("AdminNetworkPolicy"), find("BaselineAdminNetworkPolicy"))
}

/// A node with a client and a server in namespaces of their own.
fn world(wish: Wish) -> Cluster {
    let cluster = wish.nodes(1).start();
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
fn tiers_decide_in_their_order() {
    let cluster = world(Wish::new("tiers"));
    for name in ["client", "server"] {
        cluster.network_of(name, "p");
    }
    let mut tracer = Tracer::start(&cluster, "tiers");
    assert!(arrives(&cluster, &mut tracer), "nothing is in its way");
    // Of two NetworkPolicies: when the last one is gone is seen by its rows.
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
    enforce(&cluster, &policy("default", 0, "Deny"));
    assert!(!arrives(&cluster, &mut tracer), "the baseline denies where no NetworkPolicy is");
    np(Some(json!([{}])));
    rows(true);
    assert!(arrives(&cluster, &mut tracer), "a NetworkPolicy allows against the baseline");
    enforce(&cluster, &policy("deny", 10, "Deny"));
    assert!(!arrives(&cluster, &mut tracer), "an AdminNetworkPolicy denies against a NetworkPolicy");
    enforce(&cluster, &policy("pass", 5, "Pass"));
    assert!(arrives(&cluster, &mut tracer), "one of a lower number passes: the NetworkPolicy decides");
    np(None);
    rows(false);
    assert!(!arrives(&cluster, &mut tracer), "passed, without a NetworkPolicy: the baseline decides");
    np(Some(json!([])));
    rows(true);
    assert!(!arrives(&cluster, &mut tracer), "the NetworkPolicy is closed");
    enforce(&cluster, &policy("pass", 5, "Allow"));
    assert!(arrives(&cluster, &mut tracer), "an AdminNetworkPolicy allows against a NetworkPolicy");
    cluster.lab.kubectl(&["delete", "anp", "--all"]).unwrap();
    cluster.lab.kubectl(&["delete", "banp", "--all"]).unwrap();
    until("all rules are gone", || rules(&cluster).trim().is_empty().then_some(()));
    np(None);
    rows(false);
    assert!(arrives(&cluster, &mut tracer), "everything is gone");
    let selectors =
        cluster.lab.nbctl(&["find", "Port_Group", "external_ids:\"k8s.ovn.org/owner-type\"=Selector"]).unwrap();
    assert_eq!(selectors.trim(), "", "groups are left");
}

#[test]
fn conditions_tell_and_what_is_broken_keeps_its_rules() {
    let cluster = world(Wish::new("conditions"));
    enforce(&cluster, &policy("p", 7, "Deny"));
    let good = rules(&cluster);
    assert!(good.starts_with("1,31807,drop,"), "{good}");
    // What somebody else says in the status stays.
    let other = json!({"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind("p"), "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "Audited", "status": "True", "reason": "Looked", "message": "fine",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let words = ["apply", "--server-side", "--subresource=status", "--field-manager=auditor", "-f", "-"];
    let control = cluster.lab.machine("control").unwrap();
    let words: Vec<&str> = ["kubectl"].into_iter().chain(words).collect();
    control.run_with_input(&words, &other.to_string()).unwrap();

    // The API's own rules cannot see that this is no network.
    let mut broken = policy("p", 7, "Deny");
    broken["spec"]["egress"] = json!([{"action": "Deny", "to": [{"networks": ["10.0.0.0/99"]}]}]);
    cluster.apply(&broken);
    let said = condition(&cluster, "p");
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("SetupFailed")), "{said}");
    let message = said["message"].as_str().unwrap();
    assert!(message.starts_with("spec.egress[0].to[0].networks[0]: "), "{message}");
    assert!(message.ends_with("what the policy said before stays in force"), "{message}");
    assert_eq!(rules(&cluster), good);
    let all = cluster.get(&["anp", "p"])["status"]["conditions"].as_array().unwrap().clone();
    assert!(all.iter().any(|condition| condition["type"] == "Audited"), "{all:?}");
    until("an Event tells of it", || {
        let events = cluster.get(&["events", "-n", "default"]);
        let about = |event: &&Value| event["reason"] == "InvalidPolicy" && event["involvedObject"]["name"] == "p";
        events["items"].as_array()?.iter().find(about).map(drop)
    });

    // Another controller takes over: nothing is written, and the rules stay.
    let version = || cluster.get(&["anp", "p"])["metadata"]["resourceVersion"].clone();
    let before = version();
    cluster.lab.kill("c1").unwrap();
    cluster.controller("c2");
    cluster.wait_leader("c2");
    until("everything was reviewed", || {
        cluster.lab.log("c2").unwrap().contains("everything was reviewed").then_some(())
    });
    assert_eq!((rules(&cluster), version()), (good, before));

    // Two of one priority.
    enforce(&cluster, &policy("p", 7, "Deny"));
    enforce(&cluster, &policy("a", 7, "Allow"));
    let said = condition(&cluster, "a");
    assert!(said["message"].as_str().unwrap().contains("AdminNetworkPolicy p has the priority 7 as well"), "{said}");
}

#[test]
fn the_types_refuse_what_the_api_refuses() {
    let cluster = Wish::new("types").start();
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
fn the_role_allows_conditions_and_no_more() {
    let cluster = Wish::new("role").start();
    cluster.install_admin_policies();
    for manifest in ["ovnkube/namespace.yaml", "controller/rbac.yaml", "ovnkube/rbac.yaml"] {
        let path = format!("{}/../../deploy/{manifest}", env!("CARGO_MANIFEST_DIR"));
        cluster.lab.apply(&std::fs::read_to_string(path).unwrap()).unwrap();
    }
    let may = |verb: &str, resource: &str, subresource: &str| {
        let who = "--as=system:serviceaccount:ovn-kubernetes:ovnkube-master";
        let subresource = format!("--subresource={subresource}");
        // Who may not is told so by the exit status too.
        cluster
            .lab
            .kubectl(&["auth", "can-i", verb, resource, &subresource, who])
            .is_ok_and(|said| said.trim() == "yes")
    };
    // The one that judges hears of roles a moment later.
    until("roles are in force", || {
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
fn without_tiers_a_condition_says_what_is_needed() {
    let cluster = world(Wish { suite: Some(Suite::Bookworm), ..Wish::new("notiers") });
    cluster.apply(&policy("p", 7, "Deny"));
    cluster.apply(&network_policy(&json!([])));
    let said = condition(&cluster, "p");
    let needed = said["message"].as_str().unwrap().contains("OVN 23.06 or newer is needed");
    assert!(said["status"] == "False" && needed, "{said}");
    assert!(cluster.lab.log("c1").unwrap().contains("OVN 23.06 or newer is needed"));
    until("the NetworkPolicy's rows", || {
        let owner = "external_ids:\"k8s.ovn.org/owner-type\"=NetworkPolicy";
        let found = cluster.lab.nbctl(&["--bare", "--columns=action", "find", "ACL", owner]).unwrap();
        found.contains("drop").then_some(())
    });
}
