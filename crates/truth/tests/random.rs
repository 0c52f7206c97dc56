//! Random clusters: deterministic, valid, and with both verdicts.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use truth::random::{Options, Rng, Tuple, objects, service_tuples, tuples};
use truth::{Cluster, Family, Service, TrafficEnd};

const CLUSTERS: u64 = 500;

fn every_option() -> [(&'static str, Options); 4] {
    [
        ("plain", Options::plain()),
        ("six", Options { families: &[Family::V6], ..Options::plain() }),
        ("admin", Options { admin: true, ..Options::plain() }),
        ("everything", Options::everything()),
    ]
}

#[test]
fn neither_verdict_is_rare() {
    for (name, options) in every_option() {
        let (mut asked, mut denied) = (0, 0);
        for seed in 0..CLUSTERS {
            let mut rng = Rng::new(seed);
            let cluster = Cluster::from_objects(&objects(&mut rng, options)).unwrap();
            for tuple in tuples(&cluster, &mut rng, 20) {
                asked += 1;
                denied += usize::from(!tuple.verdict(&cluster).allowed);
            }
        }
        let percent = denied * 100 / asked;
        println!("{name}: {percent} % of {asked} denied");
        assert_eq!(asked, 10_000);
        assert!((20..=80).contains(&percent), "{name}: {percent} % of {asked} denied");
    }
}

#[test]
fn the_same_seed_gives_the_same_questions() {
    let ask = |seed| -> (Vec<Value>, Vec<Tuple>) {
        let mut rng = Rng::new(seed);
        let objects = objects(&mut rng, Options::everything());
        let tuples = tuples(&Cluster::from_objects(&objects).unwrap(), &mut rng, 50);
        (objects, tuples)
    };
    assert_eq!(ask(7), ask(7));
    assert_ne!(ask(7), ask(8));
}

/// Every rule of the evaluator decides some query.
#[test]
fn all_object_shapes_and_reasons_occur() {
    let mut text = String::new();
    let mut reasons = BTreeSet::new();
    for seed in 0..CLUSTERS {
        let mut rng = Rng::new(seed);
        let objects = objects(&mut rng, Options::everything());
        let cluster = Cluster::from_objects(&objects).unwrap();
        text.push_str(&Value::from(objects).to_string());
        for tuple in tuples(&cluster, &mut rng, 20) {
            reasons.extend(tuple.verdict(&cluster).why);
        }
    }
    for shape in [
        "\"podSelector\":{}",
        "\"namespaceSelector\":{}",
        "\"from\":[]",
        "\"ingress\":[]",
        "\"egress\":[]",
        "\"endPort\":",
        "\"except\":",
        "\"port\":\"http\"",
        "\"In\"",
        "\"NotIn\"",
        "\"Exists\"",
        "\"DoesNotExist\"",
        "\"SCTP\"",
        "\"hostNetwork\":true",
        "\"Succeeded\"",
        "\"Pass\"",
        "\"nodes\":",
        "\"networks\":",
        "\"namedPort\":",
        "\"portRange\":",
    ] {
        assert!(text.contains(shape), "never generated: {shape}");
    }
    for words in [
        "its own node",
        "ingress of ns0/p0: isolated by",
        "egress of ns0/p0: isolated by",
        "allows it by ingress[2]",
        "allows it by egress[2]",
        "AdminNetworkPolicy anp2",
        "says Allow",
        "says Deny",
        "says Pass",
        "BaselineAdminNetworkPolicy",
        "always reaches itself",
        "not on the cluster network",
        "no policy denies it",
    ] {
        assert!(reasons.iter().any(|reason| reason.contains(words)), "never the reason: {words}");
    }
}

#[test]
fn all_service_outcomes_occur() {
    let (mut unknown, mut rejected, mut one, mut several) = (0, 0, 0, 0);
    for seed in 0..CLUSTERS {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::from_objects(&objects(&mut rng, Options::everything())).unwrap();
        for tuple in service_tuples(&cluster, &mut rng, 20) {
            let service = (tuple.service.0.as_str(), tuple.service.1.as_str());
            match cluster.service(&tuple.from, service, tuple.protocol, tuple.port, tuple.family) {
                Service::Unknown(_) => unknown += 1,
                Service::Rejected => rejected += 1,
                Service::Endpoints(endpoints) if endpoints.len() == 1 => one += 1,
                Service::Endpoints(_) => several += 1,
            }
        }
    }
    println!("{unknown} unknown, {rejected} rejected, {one} with one endpoint, {several} with several");
    assert!([unknown, rejected, one, several].iter().all(|count| *count > 500));
}

#[test]
fn the_order_of_objects_does_not_matter() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut objects = objects(&mut rng, Options::everything());
        let cluster = Cluster::from_objects(&objects).unwrap();
        objects.reverse();
        let reversed = Cluster::from_objects(&objects).unwrap();
        for tuple in tuples(&cluster, &mut rng, 50) {
            assert_eq!(tuple.verdict(&cluster).allowed, tuple.verdict(&reversed).allowed, "seed {seed}: {tuple:?}");
        }
    }
}

/// NetworkPolicies are a union: one allow-all policy per namespace is enough.
#[test]
fn an_allow_all_policy_leaves_nothing_denied() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut objects = objects(&mut rng, Options { families: &[Family::V4, Family::V6], ..Options::plain() });
        for namespace in 0..4 {
            let spec =
                json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]});
            let metadata = json!({"namespace": format!("ns{namespace}"), "name": "allow-all"});
            objects.push(json!({"kind": "NetworkPolicy", "metadata": metadata, "spec": spec}));
        }
        let cluster = Cluster::from_objects(&objects).unwrap();
        for tuple in tuples(&cluster, &mut rng, 50) {
            let verdict = tuple.verdict(&cluster);
            assert!(verdict.allowed, "seed {seed}: {tuple:?}: {:#?}", verdict.why);
        }
    }
}

/// Only traffic to itself, and traffic of nodes and the outside, passes.
#[test]
fn a_deny_all_admin_policy_blocks_all_pods() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut objects = objects(&mut rng, Options::everything());
        let spec = json!({"priority": -1, "subject": {"namespaces": {}},
            "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}]});
        objects.push(json!({"kind": "AdminNetworkPolicy", "metadata": {"name": "deny-all"}, "spec": spec}));
        let cluster = Cluster::from_objects(&objects).unwrap();
        let on_network = |place: &TrafficEnd| {
            let TrafficEnd::Pod { namespace, name } = place else { return false };
            let same =
                |object: &&Value| object["metadata"]["namespace"] == *namespace && object["metadata"]["name"] == *name;
            let pod = objects.iter().filter(|object| object["kind"] == "Pod").find(same).unwrap();
            pod["spec"]["hostNetwork"] != true
        };
        for tuple in tuples(&cluster, &mut rng, 50).into_iter().filter(|tuple| tuple.from != tuple.to) {
            if on_network(&tuple.from) && on_network(&tuple.to) {
                assert!(!tuple.verdict(&cluster).allowed, "seed {seed}: {tuple:?}");
            }
        }
    }
}
