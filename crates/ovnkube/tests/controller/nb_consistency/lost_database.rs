//! The files of the northbound database are lost on all raft members, and it is recreated.

use std::time::Instant;

use lab::Database;

use crate::cluster::{Cluster, pod, until};

/// An `nb_cfg` that the new database does not reach by itself.
const FORMER: i64 = 111_200;

impl Cluster {
    fn nb_cfg(&self) -> i64 {
        self.lab.nbctl(&["get", "NB_Global", ".", "nb_cfg"]).unwrap().trim().parse().unwrap()
    }

    fn is_bound_in_southbound(&self, port: &str) -> bool {
        let found =
            self.lab.sbctl(&["--bare", "--columns=_uuid", "find", "Port_Binding", &format!("logical_port={port}")]);
        !found.unwrap().trim().is_empty()
    }
}

/// The controller detects the new raft cluster, rebuilds all rows with unchanged addresses, restarts northd's work, and
/// raises `nb_cfg` above what the chassis have acknowledged.
pub(super) fn northbound_is_lost(cluster: &Cluster) {
    let network = cluster.network_of("default", "first");
    // A chassis that acknowledged a high nb_cfg of the former database.
    let number = format!("nb_cfg={FORMER}");
    cluster.lab.sbctl(&["create", "Chassis_Private", "name=elsewhere", &number]).unwrap();
    let terms = || cluster.lab.log("c1").unwrap().matches("\"started leading\"").count();
    let before = terms();
    cluster.lab.recreate_database(Database::Northbound).unwrap();
    let began = Instant::now();
    until("the controller leads again", || (terms() > before).then_some(()));
    until("a port is restored", || cluster.lab.nbctl(&["lsp-get-addresses", "default_first"]).ok());
    println!("the northbound database was filled again after {:?}", began.elapsed());
    let addresses = cluster.lab.nbctl(&["lsp-get-addresses", "default_first"]).unwrap();
    assert!(addresses.contains(&network.address().to_string()), "{addresses}");
    cluster.apply(&pod("default", "afterwards", "n1"));
    cluster.network_of("default", "afterwards");
    assert_eq!(cluster.network_of("default", "first").addresses, network.addresses);
    until("northd writes the southbound database", || {
        cluster.is_bound_in_southbound("default_afterwards").then_some(())
    });
    println!("and was in the southbound database after {:?}", began.elapsed());
    until("nb_cfg is above every acknowledgement", || (cluster.nb_cfg() > FORMER).then_some(()));
    let log = cluster.lab.log("c1").unwrap();
    for what in ["the servers belong to a new raft cluster", "reset cluster state of ovn-northd"] {
        assert!(log.contains(what), "c1 does not log {what:?}");
    }
}
