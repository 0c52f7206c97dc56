//! A rollout restart of ovnkube's DaemonSets under load.

use std::time::Duration;

use lab::disruption::Testbed;
use lab::probe::{self, Prober, Rounds, Workload};
use lab::{Family, GatewayMode, Lab};

use crate::common::cluster;

/// Packets per second in total; low enough for a machine that runs other tests.
const RATE: u32 = 300;

fn pods(lab: &Lab) -> String {
    lab.kubectl(&["-n", "ovn-kubernetes", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]).unwrap()
}

/// All paths of the prober lose no more than in the control window. A connection attempt without a reply counts as lost:
/// nothing is retried.
fn check_rollout(gateway: GatewayMode) {
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
    lab.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=110s"]).unwrap();
}

#[test]
fn a_rollout_restart_loses_no_packet() {
    check_rollout(GatewayMode::Shared);
}

#[test]
fn a_rollout_restart_with_a_local_gateway_loses_no_packet() {
    check_rollout(GatewayMode::Local);
}
