//! Questions about networks.

use super::*;

fn cases(answer: &Evaluation) -> Vec<(&str, bool)> {
    answer.cases.iter().map(|case| (&*case.what, case.yes)).collect()
}

fn web() -> [(ObjectKind, Value); 2] {
    let service = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "web"},
        "spec": {"clusterIP": "172.30.0.7", "externalIPs": ["203.0.113.7"], "ports": [{"port": 80, "nodePort": 30080}],
            "type": "NodePort"}});
    let slice = json!({"metadata": {"name": "web-1", "namespace": "ns", "uid": "web-1",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.128.0.4"], "nodeName": "n1"}],
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}]});
    [(ObjectKind::Service, service), (ObjectKind::EndpointSlice, slice)]
}

#[test]
fn nodes_are_distinguished_from_their_neighbours() {
    let spec = json!({"priority": 1, "subject": {"namespaces": {}},
        "egress": [{"action": "Deny", "to": [{"nodes": {"matchLabels": {"guarded": "true"}}}]}]});
    let mut preview =
        world(&[(ObjectKind::AdminPolicy, json!({"metadata": {"name": "nodes", "uid": "anp"}, "spec": spec}))]);
    let node = json!({"metadata": {"name": "n3", "uid": "n3", "labels": {"guarded": "true"},
        "annotations": {"k8s.ovn.org/host-cidrs": "[\"192.0.2.3/24\", \"192.0.2.130/24\"]"}}});
    preview.put(ObjectKind::Node, node).unwrap();
    preview.settle().unwrap();
    let some = ask(&preview, "ns/a", "192.0.2.0/24").unwrap();
    let others = "to 192.0.2.0, 192.0.2.2, 192.0.2.4-192.0.2.129, 192.0.2.131-192.0.2.255";
    let own = "to 192.0.2.1";
    assert_eq!(cases(&some), [(others, true), (own, true), ("to 192.0.2.3, 192.0.2.130", false)], "{some:?}");
    assert!(some.cases[2].chain.last().unwrap().object.contains("AdminNetworkPolicy"), "{some:?}");
    assert_eq!(ask(&preview, "ns/a", "192.0.2.128/25").unwrap().verdict, Verdict::Partial);
    assert_eq!(ask(&preview, "ns/a", "192.0.2.64/26").unwrap().verdict, Verdict::Yes);
}

#[test]
fn services_are_distinguished_from_their_network() {
    let preview = world(&web());
    let settings = preview.engine().inputs().unwrap().settings;
    assert!(settings.services.is_empty(), "the address is one of the outside here");
    let some = ask(&preview, "ns/a", "172.30.0.0/16:80").unwrap();
    assert_eq!(some.verdict, Verdict::Yes, "the outside answers as well: {some:?}");
    let outside = ask(&preview, "198.51.100.7", "203.0.113.0/24:80").unwrap_err();
    assert!(outside.contains("does not pass the cluster's network"), "{outside}");
    let own = ask(&preview, "198.51.100.0/24", "203.0.113.7:80").unwrap();
    assert_eq!(own.verdict, Verdict::Yes, "{own:?}");
}

#[test]
fn unused_addresses_of_the_service_network_are_not_reached() {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let preview = world_of(settings, &web());
    let some = ask(&preview, "ns/a", "172.30.0.0/16:80").unwrap();
    let others = "to 172.30.0.0-172.30.0.6, 172.30.0.8-172.30.255.255";
    assert_eq!(cases(&some), [(others, false), ("to 172.30.0.7", true)], "{some:?}");
    assert_eq!(ask(&preview, "ns/a", "172.30.0.0/16:81").unwrap().verdict, Verdict::No);
}

#[test]
fn pods_are_distinguished_and_a_larger_network_excludes_the_clusters_own() {
    let preview = world(&[]);
    let some = ask(&preview, "ns/a", "10.128.0.0/23").unwrap();
    let yes: Vec<&str> = some.cases.iter().filter(|case| case.yes).map(|case| &*case.what).collect();
    assert_eq!(yes.join("; "), "to 10.128.0.2, 10.128.0.4; to 10.128.0.3", "{some:?}");
    let all = ask(&preview, "ns/a", "0.0.0.0/0").unwrap();
    assert_eq!(all.verdict, Verdict::Yes, "{all:?}");
    let fields: Vec<&str> = all.chain.iter().map(|step| &*step.field).collect();
    assert_eq!(fields[..3], ["cluster-subnets", "v4-join-subnet", "v4-masquerade-subnet"], "{all:?}");
    // One host counts as the node that it is, whichever of its addresses it is asked by.
    assert_eq!(ask(&preview, "192.0.2.0/24", "ns/b:80").unwrap().verdict, Verdict::Yes);
}

#[test]
fn parts_that_the_same_rule_decides_are_one_case() {
    let blocks: Vec<Value> = (0..50).map(|n| json!({"ipBlock": {"cidr": format!("198.51.{n}.0/25")}})).collect();
    let spec = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": blocks}]});
    let policy = json!({"metadata": {"name": "out", "namespace": "ns", "uid": "out"}, "spec": spec});
    let preview = world(&[(ObjectKind::Policy, policy)]);
    let some = ask(&preview, "ns/a", "198.51.0.0/16:80").unwrap();
    assert_eq!(some.cases.len(), 2, "{some:?}");
    let (yes, no) = (&some.cases[0], &some.cases[1]);
    assert!(yes.yes && yes.what.starts_with("to 198.51.0.0-198.51.0.127, 198.51.1.0-198.51.1.127, "), "{some:?}");
    assert!(!no.yes && no.what.ends_with(", 198.51.49.128-198.51.255.255"), "{some:?}");
    assert_eq!(yes.chain.len(), 1, "{some:?}");
    assert!(yes.chain[0].says.ends_with("on all ports; likewise for other addresses"), "{some:?}");
}
