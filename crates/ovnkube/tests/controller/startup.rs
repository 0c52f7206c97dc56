//! Start-up: lists and one snapshot make one diff.

use crate::cluster::{PATIENCE, Wish, pod, until};

/// A restart over an unchanged cluster writes nothing but the value that tells who leads.
#[test]
fn a_restart_over_an_unchanged_cluster_writes_its_epoch_only() {
    let cluster = Wish::new("restart").nodes(2).raft().start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
        for number in 1..=3 {
            cluster.apply(&pod("default", &format!("p{node}-{number}"), &format!("n{node}")));
        }
    }
    let addresses: Vec<_> = (1..=2)
        .flat_map(|node| (1..=3).map(move |number| format!("p{node}-{number}")))
        .map(|name| cluster.network_of("default", &name).address())
        .collect();
    let before = cluster.dump();
    assert!(cluster.lab.terminate("c1", PATIENCE).unwrap().success());
    cluster.controller("c2");
    until("c2 has reviewed everything", || {
        cluster.lab.log("c2").unwrap().contains("everything was reviewed").then_some(())
    });
    let (writer, number) = cluster.sequence();
    assert!(writer.starts_with("c2/"), "{writer}");
    assert_eq!(number, 1, "it wrote more than its epoch");
    assert_eq!(before, cluster.dump());
    let unique: std::collections::BTreeSet<_> = addresses.iter().collect();
    assert_eq!(unique.len(), addresses.len());
}
