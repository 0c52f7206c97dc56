//! Who decides, in which words.

use super::*;

fn policy(name: &str, spec: Value) -> (ObjectKind, Value) {
    let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec});
    (ObjectKind::Policy, object)
}

fn admin(name: &str, spec: Value) -> (ObjectKind, Value) {
    (ObjectKind::AdminPolicy, json!({"metadata": {"name": name, "uid": name}, "spec": spec}))
}

/// What decides, as one line.
fn last(answer: &Evaluation) -> String {
    let Step { object, field, says } = answer.chain.last().unwrap();
    format!("{object} {field}: {says}")
}

#[test]
fn the_rule_that_allows_and_the_policy_that_isolates_are_named() {
    let web = json!({"podSelector": {}, "ingress": [
        {"from": [{"podSelector": {"matchLabels": {"app": "a"}}}], "ports": [{"port": 80}, {"port": "dns", "protocol": "UDP"}]},
        {"from": [{"ipBlock": {"cidr": "198.51.100.0/24", "except": ["198.51.100.128/25"]}}]}]});
    let preview = world(&[policy("web", web)]);
    let yes = ask(&preview, "ns/a", "ns/b:80").unwrap();
    assert_eq!(yes.verdict, Verdict::Yes);
    let says = "allows ingress from pods app=a of namespace ns on 80/tcp";
    assert_eq!(last(&yes), format!("NetworkPolicy ns/web spec.ingress[0]: {says}"));
    let no = ask(&preview, "ns/a", "ns/b:81").unwrap();
    assert_eq!(no.verdict, Verdict::No);
    let says = "isolates all pods of namespace ns for ingress, and none of its 2 rules allows this";
    assert_eq!(last(&no), format!("NetworkPolicy ns/web spec.ingress: {says}"));
    assert_eq!(ask(&preview, "ns/c", "ns/b:80").unwrap().verdict, Verdict::No, "not a pod app=a");
    assert_eq!(ask(&preview, "ns/c", "ns/c:80").unwrap().verdict, Verdict::Yes, "a pod always reaches itself");
    assert_eq!(
        ask(&preview, "ns/b", "198.51.100.7:80").unwrap().verdict,
        Verdict::Yes,
        "the policy does not apply to egress"
    );

    // The host of the pod itself, and another one.
    assert!(last(&ask(&preview, "n1", "ns/b:81").unwrap()).contains("NetworkPolicies do not block"));
    assert_eq!(
        ask(&preview, "ns/h", "ns/b:81").unwrap().verdict,
        Verdict::Yes,
        "a pod on the host's network is the host"
    );
    assert_eq!(ask(&preview, "n2", "ns/b:81").unwrap().verdict, Verdict::No);

    // Outside addresses match blocks.
    assert_eq!(ask(&preview, "198.51.100.7", "ns/b:81").unwrap().verdict, Verdict::Yes);
    assert_eq!(ask(&preview, "198.51.100.200", "ns/b:81").unwrap().verdict, Verdict::No);
    let some = ask(&preview, "198.51.100.0/24", "ns/b:81").unwrap();
    let cases: Vec<(&str, bool)> = some.cases.iter().map(|case| (&*case.what, case.yes)).collect();
    assert_eq!(
        (some.verdict, &cases[..]),
        (
            Verdict::Partial,
            &[("from 198.51.100.0-198.51.100.127", true), ("from 198.51.100.128-198.51.100.255", false)][..]
        )
    );
}

#[test]
fn without_a_port_all_ports_are_evaluated() {
    let preview = world(&[policy(
        "web",
        json!({"podSelector": {"matchLabels": {"app": "b"}}, "ingress": [
        {"ports": [{"port": 80}, {"port": 1000, "endPort": 2000, "protocol": "UDP"}, {"port": 81}]}]}),
    )]);
    let some = ask(&preview, "ns/a", "ns/b").unwrap();
    assert_eq!(some.verdict, Verdict::Partial);
    let cases: Vec<(&str, bool)> = some.cases.iter().map(|case| (&*case.what, case.yes)).collect();
    let others = "ports 1-79/tcp, 82-65535/tcp, 1-999/udp, 2001-65535/udp, all of sctp";
    assert_eq!(cases, [("ports 80-81/tcp, 1000-2000/udp", true), (others, false)]);
    assert!(some.cases[0].chain[0].object.starts_with("NetworkPolicy"), "{some:?}");
    assert_eq!(ask(&preview, "ns/a", "ns/c").unwrap().verdict, Verdict::Yes);
}

#[test]
fn egress_is_evaluated_before_ingress() {
    let out = json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"], "egress": [
        {"to": [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]}, {"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]});
    let preview = world(&[policy("out", out)]);
    let no = ask(&preview, "ns/a", "ns/b:80").unwrap();
    let says = "isolates pods app=a of namespace ns for egress, and none of its 2 rules allows this";
    assert_eq!(last(&no), format!("NetworkPolicy ns/out spec.egress: {says}"));
    assert_eq!(ask(&preview, "ns/a", "198.51.100.7:80").unwrap().verdict, Verdict::No);
    let hosts = ask(&preview, "ns/a", "n2:10250").unwrap();
    assert_eq!((hosts.verdict, last(&hosts).contains("192.0.2.0/24")), (Verdict::Yes, true));
}

#[test]
fn tiers_are_evaluated_in_order() {
    let everybody = json!({"namespaces": {}});
    let rule = |action: &str, port: u16| json!({"action": action, "from": [{"namespaces": {}}], "ports": [{"portNumber": {"port": port, "protocol": "TCP"}}]});
    let late = json!({"priority": 9, "subject": everybody, "ingress": [rule("Deny", 80), rule("Deny", 83)]});
    let early = json!({"priority": 1, "subject": everybody, "ingress": [rule("Allow", 80), rule("Deny", 81), rule("Pass", 83)]});
    let baseline = json!({"subject": everybody, "ingress": [rule("Deny", 82), rule("Deny", 83)]});
    let preview = world(&[
        admin("late", late),
        admin("early", early),
        (ObjectKind::BaselinePolicy, json!({"metadata": {"name": "default", "uid": "base"}, "spec": baseline})),
        policy(
            "web",
            json!({"podSelector": {"matchLabels": {"app": "b"}}, "ingress": [{"ports": [{"port": 83}, {"port": 82}]}]}),
        ),
    ]);
    let anybody = "ingress from all pods of all namespaces on";
    for (to, verdict, decides) in [
        ("ns/b:80", Verdict::Yes, format!("AdminNetworkPolicy early spec.ingress[0]: allows {anybody} 80/tcp")),
        ("ns/b:81", Verdict::No, format!("AdminNetworkPolicy early spec.ingress[1]: denies {anybody} 81/tcp")),
        ("ns/b:82", Verdict::Yes, "NetworkPolicy ns/web spec.ingress[0]".into()),
        ("ns/b:83", Verdict::Yes, "NetworkPolicy ns/web spec.ingress[0]".into()),
        ("ns/b:84", Verdict::No, "NetworkPolicy ns/web spec.ingress:".into()),
        (
            "ns/c:82",
            Verdict::No,
            format!("BaselineAdminNetworkPolicy default spec.ingress[0]: denies {anybody} 82/tcp"),
        ),
        ("ns/c:83", Verdict::No, "BaselineAdminNetworkPolicy default spec.ingress[1]".into()),
        ("ns/c:84", Verdict::Yes, "Node n2".into()),
    ] {
        let answer = ask(&preview, "ns/a", to).unwrap();
        assert!(answer.verdict == verdict && last(&answer).starts_with(&decides), "{to}: {answer:?}");
    }
    let passed = ask(&preview, "ns/a", "ns/b:83").unwrap();
    assert!(passed.chain.iter().any(|step| step.says.ends_with("to NetworkPolicies")), "{passed:?}");
}

#[test]
fn an_invalid_policy_is_in_the_chain() {
    let preview = world(&[policy("odd", json!({"podSelector": {}, "ingress": [{"from": [{}]}]}))]);
    let no = ask(&preview, "ns/a", "ns/b:80").unwrap();
    assert_eq!(no.verdict, Verdict::No);
    let invalid = no.chain.iter().find(|step| step.field == "spec.ingress[0].from[0]").unwrap();
    assert!(invalid.says.contains("isolated in its directions"), "{no:?}");
}
