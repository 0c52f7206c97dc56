//! Services and their endpoints.

use super::*;

fn service(name: &str, spec: Value) -> (ObjectKind, Value) {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}});
    let metadata = json!({"name": name, "namespace": "ns", "uid": name});
    (ObjectKind::Service, json!({"metadata": metadata, "spec": spec, "status": status}))
}

/// Ready endpoints; `b` is 10.128.0.4, `c` is 10.128.2.3.
fn slice(endpoints: &[(&str, &str)]) -> (ObjectKind, Value) {
    let endpoint = |(address, node): &(&str, &str)| json!({"addresses": [address], "nodeName": node});
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    let metadata =
        json!({"name": "web-1", "namespace": "ns", "uid": "web-1", "labels": {"kubernetes.io/service-name": "web"}});
    (
        ObjectKind::EndpointSlice,
        json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}]}),
    )
}

const BOTH: [(&str, &str); 2] = [("10.128.0.4", "n1"), ("10.128.2.3", "n2")];

fn cluster_ip() -> Value {
    json!({"clusterIP": "172.30.0.7", "ports": [{"port": 80}]})
}

/// Allows these peers on the endpoints' port of pods with the label.
fn guard(app: &str, from: Value) -> (ObjectKind, Value) {
    let spec =
        json!({"podSelector": {"matchLabels": {"app": app}}, "ingress": [{"from": from, "ports": [{"port": 8080}]}]});
    (ObjectKind::Policy, json!({"metadata": {"name": app, "namespace": "ns", "uid": app}, "spec": spec}))
}

#[test]
fn policies_see_the_endpoint_and_its_port() {
    let from_a = json!([{"podSelector": {"matchLabels": {"app": "a"}}}]);
    let preview = world(&[service("web", cluster_ip()), slice(&BOTH), guard("b", from_a)]);
    for to in ["ns/web:80", "172.30.0.7:80", "ns/web"] {
        let yes = ask(&preview, "ns/a", to).unwrap();
        assert_eq!(yes.verdict, Verdict::Yes, "{to}: {yes:?}");
        let objects: Vec<&str> = yes.chain.iter().map(|step| &*step.object).collect();
        let way = ["Pod ns/a", "Service ns/web", "EndpointSlice ns/web-1", "Node n1", "NetworkPolicy ns/b"];
        assert_eq!(objects[..5], way, "{to}: {yes:?}");
        assert_eq!(yes.chain[1].says, "172.30.0.7:80/tcp is sent to 10.128.0.4:8080 or 10.128.2.3:8080");
    }
    let some = ask(&preview, "ns/c", "ns/web:80").unwrap();
    let cases: Vec<(&str, bool)> = some.cases.iter().map(|case| (&*case.what, case.yes)).collect();
    assert_eq!(cases, [("endpoint 10.128.0.4:8080 (Pod ns/b)", false), ("endpoint 10.128.2.3:8080 (Pod ns/c)", true)]);
    let no = ask(&preview, "ns/a", "ns/web:81").unwrap();
    assert_eq!((no.verdict, no.chain.last().unwrap().field.as_str()), (Verdict::No, "spec.ports"));
    assert_eq!(ask(&preview, "ns/a", "172.30.0.7:81").unwrap().verdict, Verdict::No);
}

#[test]
fn a_service_without_endpoints_is_a_no() {
    let preview = world(&[service("web", cluster_ip())]);
    let no = ask(&preview, "ns/a", "ns/web:80").unwrap();
    assert!(no.verdict == Verdict::No && no.chain.last().unwrap().says.contains("connections are refused"), "{no:?}");
    let mut local = cluster_ip();
    local["internalTrafficPolicy"] = json!("Local");
    let preview = world(&[service("web", local), slice(&BOTH[1..])]);
    assert_eq!(ask(&preview, "ns/c", "ns/web:80").unwrap().verdict, Verdict::Yes);
    let no = ask(&preview, "ns/a", "ns/web:80").unwrap();
    assert!(
        no.verdict == Verdict::No && no.chain.iter().any(|step| step.field == "spec.internalTrafficPolicy"),
        "{no:?}"
    );
}

#[test]
fn outside_clients_have_the_routers_source_or_their_own() {
    let from_outside = json!([{"ipBlock": {"cidr": "198.51.100.0/24"}}]);
    let spec = json!({"type": "LoadBalancer", "clusterIP": "172.30.0.7", "ports": [{"port": 80, "nodePort": 30080}],
        "externalIPs": ["203.0.113.7"]});
    let preview = world(&[service("web", spec.clone()), slice(&BOTH[..1]), guard("b", from_outside.clone())]);
    let no = ask(&preview, "198.51.100.7", "203.0.113.7:80").unwrap();
    assert!(
        no.verdict == Verdict::No
            && no.chain.iter().any(|step| step.says.contains("forwards it with source 100.64.0.")),
        "{no:?}"
    );

    let mut local = spec;
    local["externalTrafficPolicy"] = json!("Local");
    let preview = world(&[service("web", local.clone()), slice(&BOTH[..1]), guard("b", from_outside.clone())]);
    let some = ask(&preview, "198.51.100.7", "203.0.113.7:80").unwrap();
    let cases: Vec<(&str, bool)> = some.cases.iter().map(|case| (&*case.what, case.yes)).collect();
    assert_eq!(cases, [("at node n1", true), ("at node n2", false)], "n2 has no endpoint");
    for (from, to, verdict) in [
        ("198.51.100.7", "n1:30080", Verdict::Yes),
        ("198.51.100.7", "192.0.2.2:30080", Verdict::No),
        ("192.0.2.77", "n1:30080", Verdict::No),
        ("198.51.100.7", "203.0.113.9:80", Verdict::Partial),
        ("ns/c", "203.0.113.9:80", Verdict::No),
        ("ns/c", "n1:30080", Verdict::No),
    ] {
        let answer = ask(&preview, from, to).unwrap();
        assert_eq!(answer.verdict, verdict, "{from} {to}: {answer:?}");
    }

    local["loadBalancerSourceRanges"] = json!(["198.51.100.0/25"]);
    let preview = world(&[service("web", local), slice(&BOTH[..1]), guard("b", from_outside)]);
    assert_eq!(ask(&preview, "198.51.100.7", "203.0.113.9:80").unwrap().verdict, Verdict::Partial);
    let no = ask(&preview, "198.51.100.200", "203.0.113.9:80").unwrap();
    assert_eq!((no.verdict, no.chain.last().unwrap().field.as_str()), (Verdict::No, "spec.loadBalancerSourceRanges"));
    let no = ask(&preview, "ns/c", "203.0.113.9:80").unwrap();
    assert_eq!((no.verdict, no.chain.last().unwrap().field.as_str()), (Verdict::No, "spec.loadBalancerSourceRanges"));
}

#[test]
fn a_pod_reaches_itself_through_its_service() {
    let preview = world(&[
        service("web", cluster_ip()),
        slice(&BOTH[..1]),
        guard("b", json!([{"ipBlock": {"cidr": "1.1.1.1/32"}}])),
    ]);
    assert_eq!(ask(&preview, "ns/b", "ns/web:80").unwrap().verdict, Verdict::Yes);
    assert_eq!(ask(&preview, "n2", "ns/web:80").unwrap().verdict, Verdict::No, "it comes from the router");
}

#[test]
fn unused_service_addresses_are_refused_to_pods_and_hosts() {
    let preview = world_with(&["172.30.0.0/16"], &[service("web", cluster_ip()), slice(&BOTH)]);
    for from in ["ns/a", "n1", "ns/h"] {
        for to in ["172.30.0.8:80", "172.30.0.7:81"] {
            let no = ask(&preview, from, to).unwrap();
            assert_eq!(no.verdict, Verdict::No, "{from} {to}: {no:?}");
        }
        assert_eq!(ask(&preview, from, "172.30.0.7:80").unwrap().verdict, Verdict::Yes, "{from}");
    }
}

#[test]
fn a_refused_external_ip_is_not_the_services() {
    let mut thief = cluster_ip();
    thief["externalIPs"] = json!(["192.0.2.1"]);
    thief["ports"] = json!([{"port": 10250}]);
    let preview = world(&[service("web", thief)]);
    let yes = ask(&preview, "ns/a", "192.0.2.1:10250").unwrap();
    assert!(yes.verdict == Verdict::Yes && yes.chain.last().unwrap().says.contains("own host"), "{yes:?}");
}

#[test]
fn local_policy_without_local_endpoint_drops_outside_clients() {
    let spec = json!({"type": "NodePort", "externalTrafficPolicy": "Local", "clusterIP": "172.30.0.7",
        "externalIPs": ["203.0.113.7"], "ports": [{"port": 80, "nodePort": 30080}]});
    let preview = world(&[service("web", spec), slice(&BOTH[..1])]);
    let no = ask(&preview, "198.51.100.7", "192.0.2.2:30080").unwrap();
    assert!(no.verdict == Verdict::No && no.chain.last().unwrap().says.contains("packets are dropped"), "{no:?}");
    let some = ask(&preview, "198.51.100.7", "203.0.113.7:80").unwrap();
    let dropped = some.cases.iter().find(|case| !case.yes).unwrap();
    assert!(dropped.chain.last().unwrap().says.contains("packets are dropped"), "{dropped:?}");
    // Pods get all endpoints.
    assert_eq!(ask(&preview, "ns/c", "203.0.113.7:80").unwrap().verdict, Verdict::Yes);
}
