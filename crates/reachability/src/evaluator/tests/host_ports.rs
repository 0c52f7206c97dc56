//! Ports of nodes that lead to pods.

use super::*;

/// A pod `web` on the first node, behind its port 9080, and a policy that lets in whom it names.
fn web(from: Value) -> [(ObjectKind, Value); 2] {
    let containers = json!([{"ports": [{"containerPort": 8080, "hostPort": 9080}]}]);
    let metadata = json!({"name": "web", "namespace": "ns", "uid": "web", "labels": {"app": "web"}});
    let pod = json!({"metadata": metadata, "spec": {"nodeName": "n1", "containers": containers}});
    let ingress = json!([{"from": from, "ports": [{"port": 8080}]}]);
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": ingress});
    let policy = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "web"}, "spec": spec});
    [(ObjectKind::Pod, pod), (ObjectKind::Policy, policy)]
}

#[test]
fn policies_see_who_asked_and_the_port_of_the_pod() {
    let a = json!([{"podSelector": {"matchLabels": {"app": "a"}}}]);
    let preview = world(&web(a));
    for to in ["n1:9080", "192.0.2.1:9080"] {
        let yes = ask(&preview, "ns/a", to).unwrap();
        assert_eq!(yes.verdict, Verdict::Yes, "{to}: {yes:?}");
        assert!(yes.chain.iter().any(|step| step.says.contains("leads to 10.128.0")), "{yes:?}");
        // The host's own traffic to its pods is never denied; others are not named.
        for (from, verdict) in [("ns/b", Verdict::No), ("ns/c", Verdict::No), ("198.51.100.7", Verdict::No)] {
            assert_eq!(ask(&preview, from, to).unwrap().verdict, verdict, "{from} to {to}");
        }
        assert_eq!(ask(&preview, "n1", to).unwrap().verdict, Verdict::Yes);
    }
    assert_eq!(ask(&preview, "ns/b", "n1:9081").unwrap().verdict, Verdict::Yes, "the node itself");
    assert_eq!(ask(&preview, "ns/b", "n2:9080").unwrap().verdict, Verdict::Yes, "another node");
}

#[test]
fn the_pod_sees_the_address_of_its_client() {
    let preview = world(&web(json!([{"ipBlock": {"cidr": "198.51.100.0/24"}}, {"ipBlock": {"cidr": "192.0.2.2/32"}}])));
    assert_eq!(ask(&preview, "198.51.100.7", "192.0.2.1:9080").unwrap().verdict, Verdict::Yes);
    assert_eq!(ask(&preview, "198.51.101.7", "192.0.2.1:9080").unwrap().verdict, Verdict::No);
    // A pod of another node comes with the address of that node.
    assert_eq!(ask(&preview, "ns/c", "192.0.2.1:9080").unwrap().verdict, Verdict::Yes);
    assert_eq!(ask(&preview, "ns/b", "192.0.2.1:9080").unwrap().verdict, Verdict::No);
}
