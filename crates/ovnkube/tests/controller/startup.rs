//! Start-up over an unchanged cluster.

use crate::cluster::{ClusterSpec, TIMEOUT, pod, until};

/// On raft databases; rows and addresses are unchanged.
#[test]
fn a_restart_over_an_unchanged_cluster_writes_only_its_sequence_value() {
    let cluster = ClusterSpec::new("restart").nodes(2).raft().start();
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
    assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
    cluster.controller("c2");
    until("c2 has resynced", || cluster.lab.log("c2").unwrap().contains("resync complete").then_some(()));
    let (writer, number) = cluster.sequence();
    assert!(writer.starts_with("c2/"), "{writer}");
    assert_eq!(number, 1, "it wrote more than its sequence value");
    assert_eq!(before, cluster.dump());
    let unique: std::collections::BTreeSet<_> = addresses.iter().collect();
    assert_eq!(unique.len(), addresses.len());
}
