mod host_ports;
mod networks;
mod policies;
mod services;

use objects::ObjectKind;
use serde_json::{Value, json};
use topology::settings::ClusterSettings;

use super::*;
use crate::preview::Preview;

/// Two nodes with gateways; pods `a` and `b` on the first, `c` on the second, `h` on the first one's own network, `lost`
/// nowhere.
fn world(more: &[(ObjectKind, Value)]) -> Preview {
    world_with(&[], more)
}

/// The same, with networks of Services.
fn world_with(services: &[&str], more: &[(ObjectKind, Value)]) -> Preview {
    let services = services.iter().map(|network| network.parse().unwrap()).collect();
    world_of(ClusterSettings::new(vec!["10.128.0.0/14/23".parse().unwrap()], services), more)
}

fn world_of(settings: ClusterSettings, more: &[(ObjectKind, Value)]) -> Preview {
    let mut preview = Preview::new(settings).unwrap();
    for number in 1..=2 {
        let gateway = json!({"default": {"mode": "shared", "interface-id": "br-ex", "mac-address": "52:54:00:00:00:01",
            "ip-addresses": [format!("192.0.2.{number}/24")], "next-hops": ["192.0.2.254"]}});
        let node = json!({"metadata": {"name": format!("n{number}"), "uid": format!("n{number}"), "annotations": {
            "k8s.ovn.org/node-chassis-id": format!("chassis-{number}"),
            "k8s.ovn.org/host-cidrs": format!("[\"192.0.2.{number}/24\"]"),
            "k8s.ovn.org/l3-gateway-config": gateway.to_string()}}});
        preview.put(ObjectKind::Node, node).unwrap();
    }
    for (name, spec) in [
        ("a", json!({"nodeName": "n1"})),
        ("b", json!({"nodeName": "n1"})),
        ("c", json!({"nodeName": "n2"})),
        ("h", json!({"nodeName": "n1", "hostNetwork": true})),
        ("lost", json!({})),
    ] {
        let pod =
            json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": name}}, "spec": spec});
        preview.put(ObjectKind::Pod, pod).unwrap();
    }
    for (kind, object) in more {
        preview.put(*kind, object.clone()).unwrap();
    }
    preview.settle().unwrap();
    preview
}

fn ask(preview: &Preview, from: &str, to: &str) -> Result<Evaluation, String> {
    let inputs = preview.engine().inputs().unwrap();
    let (from, to) = (parse_party(inputs.store, from)?, parse_destination(inputs.store, to)?);
    evaluate(inputs, &from, &to).map_err(|error| error.to_string())
}

#[test]
fn pods_reach_each_other_and_the_chain_says_how() {
    let preview = world(&[]);
    let near = ask(&preview, "ns/a", "ns/b:80").unwrap();
    assert!(
        near.verdict == Verdict::Yes && near.chain.last().unwrap().says.starts_with("both are on its switch"),
        "{near:?}"
    );
    let far = ask(&preview, "ns/a", "ns/c:53/udp").unwrap();
    assert!(far.verdict == Verdict::Yes && far.chain.last().unwrap().says.contains("ovn_cluster_router"), "{far:?}");
    assert_eq!(far.chain.last().unwrap().object, "Node n2");
    let address = preview.engine().allocator().unwrap().pod(&ObjectKey::new("ns", "c")).unwrap().addresses().next();
    assert_eq!(ask(&preview, "ns/a", &address.unwrap().to_string()).unwrap().chain, far.chain, "by address as by name");
}

#[test]
fn a_pod_without_a_network_is_not_reached() {
    let preview = world(&[]);
    assert_eq!(ask(&preview, "ns/a", "ns/a:80").unwrap().chain.len(), 2, "a pod that sends to itself has one step");
    let lost = ask(&preview, "ns/a", "ns/lost").unwrap();
    assert_eq!(lost.verdict, Verdict::No);
    assert_eq!(lost.chain.last().unwrap().field, "spec.nodeName");
    let nobody = ask(&preview, "ns/a", "10.131.255.7").unwrap();
    assert!(nobody.verdict == Verdict::No && nobody.chain.last().unwrap().says.contains("no pod has"), "{nobody:?}");
}

#[test]
fn hosts_and_outside_addresses_are_reached() {
    let preview = world(&[]);
    for (from, to, word) in [
        ("ns/a", "198.51.100.7:443", "leaves through GR_n1 with source 192.0.2.1"),
        ("ns/a", "198.51.100.0/24", "leaves through GR_n1"),
        ("ns/a", "n1:10250", "own host"),
        ("ns/a", "n2", "leaves through GR_n1"),
        ("ns/a", "ns/h:80", "own host"),
        ("n1", "ns/c:8080", "k8s-n1"),
        ("ns/h", "ns/a", "k8s-n1"),
    ] {
        let answer = ask(&preview, from, to).unwrap();
        assert!(
            answer.verdict == Verdict::Yes && answer.chain.last().unwrap().says.contains(word),
            "{from} {to}: {answer:?}"
        );
    }
}

#[test]
fn undetermined_questions_are_errors() {
    let headless = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "web"}});
    let preview = world(&[(ObjectKind::Service, headless)]);
    assert!(ask(&preview, "ns/a", "ns/web:80").unwrap_err().contains("Service ns/web"));
    assert!(ask(&preview, "198.51.100.7", "n1").is_err());
}

#[test]
fn invalid_questions_have_a_hint() {
    let preview = world(&[]);
    for (text, word) in [
        ("ns/x", "pods of ns are a, b, c"),
        ("other/x", "has no pods"),
        ("n9", "namespace/name"),
        ("ns/a:0", "not a port"),
        ("ns/a:web", "not a port"),
        ("ns/a:80/icmp", "tcp, udp or sctp"),
    ] {
        let why = ask(&preview, "ns/a", text).unwrap_err();
        assert!(why.contains(word) && why.contains("hint: "), "{why}");
    }
    let inputs = preview.engine().inputs().unwrap();
    let v6 = parse_destination(inputs.store, "[2001:db8::7]:80/sctp").unwrap();
    assert_eq!((v6.to_string().as_str(), v6.protocol), ("2001:db8::7 port 80/sctp", Protocol::Sctp));
}
