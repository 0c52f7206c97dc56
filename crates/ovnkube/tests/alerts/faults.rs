//! Faults whose alerts fire and resolve within seconds (of compressed time).

use crate::access::only_authorized_clients_read_the_metrics;
use crate::coverage::QUICK;
use crate::testbed::{Testbed, WORKER};

#[test]
#[ignore = "takes about five minutes: make test-alerts"]
fn alerts_of_quick_faults_fire_and_resolve() {
    let bed = Testbed::start("alerts");
    only_authorized_clients_read_the_metrics(&bed);
    deleted_by_other_clients(&bed);
    damaged_database_file(&bed);
    lost_quorum(&bed);
    bed.assert_complete(QUICK);
}

/// Other clients delete flows, ports, interfaces and rows; a node that cannot be configured; a server that crashes again and
/// again. Each concerns something else, so they happen at the same time.
fn deleted_by_other_clients(bed: &Testbed) {
    let alerts = [
        "OvnkubeFlowsDeleted",
        "OvnkubePodPortsAreDeleted",
        "OvnkubePodsWithoutNetwork",
        "OvnkubeRowsRestored",
        "OvnkubePortClaimedByOtherChassis",
        "OvnkubeParkedObjects",
        "OvnkubeParkedNode",
        "OvnkubeDatabaseServerRestarting",
    ];
    // The rule ignores deletions in the first minutes of a node's metrics.
    bed.until("the agents' metrics are old enough", || {
        bed.query("count(ovnkube_node_flow_deletions_total offset 36s)") == Some(4.0)
    });
    let interface = |pod: &str| {
        let name = pod.trim_start_matches("pod/");
        let find = format!("ovs-vsctl --bare --columns=name find Interface external_ids:iface-id=shop_{name}");
        bed.on(WORKER, &find).trim().to_owned()
    };
    let (client, stranger) = (bed.pod("shop", "client", WORKER), bed.pod("shop", "stranger", WORKER));
    bed.lab.apply("{apiVersion: v1, kind: Node, metadata: {name: join}}").unwrap();
    bed.on(WORKER, "ovs-ofctl del-flows br-int");
    bed.on(WORKER, &format!("ip link delete {}", interface(&stranger)));
    bed.on(WORKER, &format!("ovs-vsctl del-port br-int {}", interface(&client)));
    bed.nbctl(&format!("lsp-set-addresses shop_{} unknown", client.trim_start_matches("pod/")));
    // Honest ovn-controllers correct it at once, and so does the controller.
    let other = bed.sbctl("--bare --columns=_uuid find Chassis hostname=n1");
    bed.sbctl(&format!("set Port_Binding shop_{} chassis={}", stranger.trim_start_matches("pod/"), other.trim()));
    let crashes = "for _ in 1 2 3 4 5; do old=$(cat /run/ovn/ovnsb_db.pid); kill -9 $old; \
                   while new=$(cat /run/ovn/ovnsb_db.pid); [ -z \"$new\" ] || [ \"$new\" = \"$old\" ]; do sleep 0.1; done; done";
    bed.inside(&bed.pod("ovn-kubernetes", "ovnkube-db", "n3"), "sbdb", crashes);
    bed.fires(&alerts);

    bed.lab.kubectl(&["delete", "node", "join"]).unwrap();
    bed.lab.kubectl(&["-n", "shop", "delete", &stranger]).unwrap();
    bed.resolves(&alerts);
}

/// A member whose file is damaged does not start, and the others have no reserve.
fn damaged_database_file(bed: &Testbed) {
    let alerts = ["OvnkubeDatabaseNotRunning", "OvnkubeDatabaseMemberBlocked", "OvnkubeDatabaseQuorumAtRisk"];
    bed.on("n3", "head -c 4096 /dev/zero > /var/lib/ovn/ovnnb_db.db");
    let pod = bed.pod("ovn-kubernetes", "ovnkube-db", "n3");
    bed.inside(&pod, "nbdb", "ovn-appctl -t /run/ovn/ovnnb_db.ctl exit");
    bed.fires(&alerts);
    bed.inside(&pod, "nbdb", "ovnkube db replace-member nb");
    bed.resolves(&alerts);
}

/// No two members reach each other: nobody leads, neither a database nor the controllers.
fn lost_quorum(bed: &Testbed) {
    let alerts = ["OvnkubeDatabaseNoLeader", "OvnkubeDatabaseNoQuorum", "OvnkubeNoLeader"];
    let pairs = [("n1", "n2"), ("n1", "n3"), ("n2", "n3")];
    let cuts: Vec<_> = pairs.iter().map(|(one, other)| bed.lab.partition(one, other).unwrap()).collect();
    // A leader that has nothing to write does not notice it.
    bed.create_pod("unwritten", WORKER);
    bed.fires(&alerts);
    for cut in cuts {
        cut.heal().unwrap();
    }
    bed.resolves(&alerts);
    bed.delete_pods();
}
