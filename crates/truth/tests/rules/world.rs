//! The cluster of all cases.

use serde_json::{Value, json};
use truth::{Cluster, Family, Protocol, TrafficEnd};

/// Three namespaces, two nodes, and pods of every kind.
///
/// ```text
///           n1                       n2
///  a red    web (http 8080, dns 53)  db (http 9090)
///  b blue   late                     web, done (completed), host (on the host's network)
///  c -      lone
/// ```
pub(crate) fn objects() -> Vec<Value> {
    let namespace =
        |name: &str, labels: Value| json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let node = |name: &str, zone: &str, last: u8| {
        json!({"kind": "Node", "metadata": {"name": name, "labels": {"zone": zone}}, "status": {"addresses": [
            {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": format!("172.18.0.{last}")},
            {"type": "InternalIP", "address": format!("fd18::{last}")}]}})
    };
    let dual = |v4: &str, v6: &str| json!({"phase": "Running", "podIPs": [{"ip": v4}, {"ip": v6}]});
    let ports = |http: u16| {
        json!([{"ports": [{"name": "http", "containerPort": http}]},
            {"ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]}])
    };
    let pod = |name: &str, labels: Value, spec: Value, status: Value| {
        let (namespace, name) = name.split_once('/').unwrap();
        json!({"kind": "Pod", "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": spec, "status": status})
    };
    vec![
        namespace("a", json!({"team": "red"})),
        namespace("b", json!({"team": "blue"})),
        namespace("c", json!({})),
        node("n1", "east", 1),
        node("n2", "west", 2),
        pod(
            "a/web",
            json!({"app": "web"}),
            json!({"nodeName": "n1", "containers": ports(8080)}),
            dual("10.0.1.1", "fd01::1"),
        ),
        pod(
            "a/db",
            json!({"app": "db"}),
            json!({"nodeName": "n2", "containers": ports(9090)}),
            dual("10.0.2.1", "fd02::1"),
        ),
        pod("b/web", json!({"app": "web"}), json!({"nodeName": "n2"}), dual("10.0.2.2", "fd02::2")),
        pod("b/late", json!({"app": "late"}), json!({"nodeName": "n1"}), json!({"podIPs": [{"ip": "10.0.1.2"}]})),
        pod(
            "b/done",
            json!({"app": "job"}),
            json!({"nodeName": "n2"}),
            json!({"phase": "Succeeded", "podIPs": [{"ip": "10.0.2.3"}]}),
        ),
        pod(
            "b/host",
            json!({"app": "host"}),
            json!({"nodeName": "n2", "hostNetwork": true, "containers": ports(8080)}),
            dual("172.18.0.2", "fd18::2"),
        ),
        pod("c/lone", json!({}), json!({"nodeName": "n1"}), dual("10.0.1.3", "fd01::3")),
    ]
}

/// The cluster with additional objects.
pub(crate) fn cluster(more: &[Value]) -> Cluster {
    let mut objects = objects();
    objects.extend(more.iter().cloned());
    Cluster::from_objects(&objects).unwrap()
}

/// A NetworkPolicy.
pub(crate) fn policy(namespace: &str, spec: &Value) -> Value {
    json!({"kind": "NetworkPolicy", "metadata": {"namespace": namespace, "name": "p"}, "spec": spec})
}

/// `a/web`, `n1` or `198.51.100.7`.
pub(crate) fn place(text: &str) -> TrafficEnd {
    match (text.split_once('/'), text.parse()) {
        (Some((namespace, name)), _) => TrafficEnd::pod(namespace, name),
        (None, Ok(address)) => TrafficEnd::External(address),
        (None, Err(_)) => TrafficEnd::node(text),
    }
}

/// Asserts answers, each written as `a/web b/web TCP/80 yes` (or `TCP6/80` for IPv6).
pub(crate) fn ask(cluster: &Cluster, questions: &[&str]) {
    for question in questions {
        let words: Vec<&str> = question.split_whitespace().collect();
        let [from, to, how, answer] = words[..] else { panic!("{question}") };
        let (protocol, port) = how.split_once('/').unwrap();
        let family = if protocol.ends_with('6') { Family::V6 } else { Family::V4 };
        let protocol = match protocol.trim_end_matches('6') {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            other => panic!("{other}"),
        };
        let verdict = cluster.verdict(&place(from), &place(to), protocol, port.parse().unwrap(), family);
        assert_eq!(verdict.allowed, answer == "yes", "{question}: {:#?}", verdict.why);
        assert!(!verdict.why.is_empty(), "{question}: no reason");
    }
}
