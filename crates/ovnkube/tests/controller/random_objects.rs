//! The random clusters of the truth table are valid for a real API server.

use serde_json::{Value, json};
use truth::random::{Options, Rng, objects};

use crate::cluster::{Cluster, ClusterSpec, until};

/// The custom resources are not installed here.
fn is_built_in(object: &Value) -> bool {
    object["apiVersion"] != "policy.networking.k8s.io/v1alpha1"
}

/// The API server's errors for these objects, by a server-side dry run.
fn refusals(cluster: &Cluster, objects: &[Value]) -> Vec<String> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let words = ["kubectl", "create", "--dry-run=server", "--validate=strict", "-f", "-"];
    let Err(said) = cluster.lab.machine("control").unwrap().run_with_input(&words, &list) else { return Vec::new() };
    // Existing namespaces and warnings are not errors.
    let harmless = |line: &str| line.contains("already exists") || line.contains("Warning: ");
    said.to_string().split("; ").filter(|line| !harmless(line)).map(str::to_owned).collect()
}

#[test]
fn the_api_server_accepts_random_clusters() {
    let mut spec = ClusterSpec::new("random");
    spec.family = lab::Family::Dual;
    let cluster = spec.start();
    let namespaces = ["ns0", "ns1", "ns2", "ns3"];
    cluster.apply_all(
        &namespaces.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
    );
    for namespace in namespaces {
        let account = ["serviceaccount", "-n", namespace, "default", "--ignore-not-found"];
        until("pods can be created", || {
            (!cluster.lab.kubectl(&[&["get"], &account[..]].concat()).ok()?.is_empty()).then_some(())
        });
    }
    for seed in 0..20 {
        let mut objects = objects(&mut Rng::new(seed), Options::everything());
        objects.retain(is_built_in);
        assert_eq!(refusals(&cluster, &objects), [""; 0], "seed {seed}");
    }

    // Shows that the check can fail.
    let block = json!({"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]});
    let wrong = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "ns0", "name": "wrong"},
        "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": block}]}]}});
    assert!(!refusals(&cluster, &[wrong]).is_empty(), "an exception outside its block was accepted");
}
