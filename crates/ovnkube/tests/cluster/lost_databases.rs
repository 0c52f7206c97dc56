//! All files of both databases are lost on all raft members. The controller restores rows and addresses from Kubernetes,
//! and ovn-northd and the ovn-controllers connect to the new raft clusters.

use std::time::Instant;

use lab::matrix::Matrix;
use lab::{Database, Databases, Family, GatewayMode, Lab};

use crate::common::{cluster_of, scale_application};

/// Names and addresses of the application's pods.
pub(crate) fn addresses(lab: &Lab) -> String {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.status.podIPs}{\"\\n\"}{end}";
    lab.kubectl(&["-n", "shop", "get", "pods", "--sort-by=.metadata.name", "-o", path]).unwrap()
}

/// The southbound ports and datapaths. ovn-northd that sees a database without them deletes these rows, and with them the nodes'
/// flows and connections; those that it writes later have other UUIDs.
pub(crate) fn bindings(lab: &Lab) -> Vec<String> {
    let rows = |table: &str, columns: &str| {
        let columns = format!("--columns={columns}");
        lab.sbctl(&["--format=csv", "--no-headings", &columns, "list", table]).unwrap()
    };
    let text = rows("Port_Binding", "_uuid,logical_port") + &rows("Datapath_Binding", "_uuid,tunnel_key");
    text.lines().map(str::to_owned).collect()
}

/// Former bindings that are gone.
pub(crate) fn lost_bindings(former: &[String], lab: &Lab) -> Vec<String> {
    let now = bindings(lab);
    former.iter().filter(|row| !now.contains(row)).cloned().collect()
}

#[test]
fn lost_databases_are_rebuilt_without_help() {
    let lab = cluster_of(2, "lost", Family::V4, GatewayMode::Shared, Databases::Raft);
    let before = addresses(&lab);
    for (database, replicas) in [(Database::Northbound, 3), (Database::Southbound, 4)] {
        let former = bindings(&lab);
        lab.recreate_database(database).unwrap();
        let began = Instant::now();
        scale_application(&lab, replicas);
        println!("{database:?}: a new pod was ready {:?} after the new database", began.elapsed());
        if database == Database::Northbound {
            assert_eq!(lost_bindings(&former, &lab), [""; 0], "ovn-northd saw a database that lacked rows");
        }
    }
    let after = addresses(&lab);
    for line in before.lines() {
        assert!(after.lines().any(|now| now == line), "{line} is gone from\n{after}");
    }
    let matrix = Matrix::measure(&lab.record()).unwrap();
    assert!(matrix.wrong().is_empty(), "\n{}", matrix.table(false));
}
