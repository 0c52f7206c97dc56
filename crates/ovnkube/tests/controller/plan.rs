//! `ovnkube plan` with a running controller: it plans nothing for a reconciled cluster, and predicts rows exactly.

use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterSpec, pod, until};

#[path = "../ovnkube/mod.rs"]
pub(crate) mod ovnkube;

use ovnkube::{Outcome, run};

/// The plan over the cluster and its database, and the exit status.
fn plan(cluster: &Cluster, more: &[&str]) -> (Value, Option<i32>) {
    let endpoints = cluster.lab.record().endpoints;
    let (northbound, kubeconfig) = (endpoints.northbound.unwrap(), endpoints.kubeconfig.unwrap());
    let words = ["plan", "-o", "json", "--nb", &northbound, "--kubeconfig", kubeconfig.to_str().unwrap()];
    let Outcome { status, stdout, stderr } = run(&[&words, more].concat(), &[]);
    let plan = serde_json::from_str(&stdout);
    (plan.unwrap_or_else(|error| panic!("{error}: {stderr}")), status)
}

#[test]
fn plan_predicts_what_the_controller_writes() {
    let cluster = ClusterSpec::new("plan").nodes(1).arguments(&["--k8s-service-cidrs", "172.30.0.0/16"]).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    cluster.add_node(1);
    cluster.apply(&pod("default", "p1", "n1"));
    cluster.network_of("default", "p1");
    let wait_nothing_planned = |what: &str| {
        until(&format!("nothing is planned {what}"), || (plan(&cluster, &[]).1 == Some(0)).then_some(()));
    };
    wait_nothing_planned("at the beginning");

    let notes = |what: &str| {
        let (planned, _) = plan(&cluster, &[]);
        assert!(planned["notes"][0].as_str().is_some_and(|note| note.contains(what)), "{planned}");
    };
    notes("no namespace has a ConfigMap ovn-config: assuming the default cluster-subnets=10.128.0.0/14/23");
    cluster.apply(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ovn-config", "namespace": "default"},
        "data": {"net_cidr": "10.128.0.0/14/23", "svc_cidr": "172.30.0.0/16"}}),
    );
    notes(
        "cluster-subnets=10.128.0.0/14/23 service-cidrs=172.30.0.0/16 from the cluster's ConfigMap default/ovn-config",
    );

    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan-p2.json");
    std::fs::write(&file, pod("default", "p2", "n1").to_string()).unwrap();
    let before = cluster.dump();
    let (planned, status) = plan(&cluster, &["-f", file.to_str().unwrap()]);
    assert_eq!(status, Some(3), "{planned}");
    assert_eq!(before, cluster.dump(), "a plan writes nothing");
    let objects = planned["objects"].as_array().unwrap().iter();
    let rows: Vec<&Value> = objects.flat_map(|object| object["rows"].as_array().unwrap()).collect();
    let added: Vec<&&Value> = rows.iter().filter(|row| row["change"] == "added").collect();
    assert_eq!((added.len(), &added[0]["name"]), (1, &Value::from("default_p2")), "{planned}");
    assert!(rows.iter().all(|row| row["change"] != "removed"), "{planned}");
    let predicted = added[0]["columns"]["addresses"]["new"][0].as_str().unwrap();

    cluster.apply(&pod("default", "p2", "n1"));
    let given = cluster.network_of("default", "p2").address();
    assert_eq!(predicted.split(' ').nth(1), Some(given.to_string().as_str()));
    wait_nothing_planned("at the end");
}
