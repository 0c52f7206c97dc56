//! The network's own pods are replaced, one node after the other, while applications go on (002.11, 003.10, 003.16).

use std::time::Duration;

use lab::disruption::Testbed;
use lab::probe::{self, Prober, Rounds, Workload};
use lab::{Family, Gateway, Lab};

use crate::common::cluster;

/// Enough that every connection, and every second of it, is seen; few enough for a machine that runs other tests.
const RATE: u32 = 300;

fn pods(lab: &Lab) -> String {
    lab.kubectl(&["-n", "ovn-kubernetes", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]).unwrap()
}

/// Every path of the prober: connections that stay and new ones, datagrams, echo requests; between pods, to Services, to and from
/// the outside. A connection attempt that is not answered counts as lost: nothing is tried again.
fn nothing_is_lost(gateway: Gateway) {
    let lab = cluster("upgrade", Family::V4, gateway);
    let testbed = Testbed::of(&lab);
    let workload = Workload::create(&lab.record()).unwrap();
    let prober = Prober::start(&workload.plan(RATE).unwrap()).unwrap();
    let rounds = Rounds { title: "all pods replaced".into(), rounds: 1, window: Duration::from_secs(20) };
    let (worse, report) = probe::run_confirmed(&prober, &rounds, |marks| {
        for set in ["ovnkube", "ovnkube-master"] {
            let before = pods(&lab);
            marks.mark(set);
            testbed.replace_network(set)?;
            assert_ne!(pods(&lab), before, "{set} was replaced");
        }
        Ok(())
    })
    .unwrap();
    println!("{}", report.table(false));
    assert!(report.total().iter().all(|counts| counts.sent > 3000), "{}", report.table(false));
    assert_eq!(worse, Vec::<String>::new(), "\n{}", report.table(false));
    lab.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=60s"]).unwrap();
}

#[test]
fn connections_go_on_and_new_ones_come_about_while_the_network_is_replaced() {
    nothing_is_lost(Gateway::Shared);
}

#[test]
fn connections_go_on_and_new_ones_come_about_while_a_local_gateway_is_replaced() {
    nothing_is_lost(Gateway::Local);
}
