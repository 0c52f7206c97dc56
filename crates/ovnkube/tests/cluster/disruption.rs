//! Restarts and failovers under the prober, briefly; `make disruption` measures more scenarios, and longer.

use std::time::Duration;

use lab::disruption::{RunLength, Scenario, Testbed};
use lab::probe::{self, Incident, Prober, Rounds, WindowKind, Workload};
use lab::progress::Progress;
use lab::{Databases, Family, GatewayMode};

use crate::common::cluster_of;

const RATE: u32 = 300;

#[test]
fn restarts_and_failovers_lose_no_packet() {
    let lab = cluster_of(2, "disruption", Family::V4, GatewayMode::Shared, Databases::Standalone);
    let testbed = Testbed::of(&lab);
    testbed.prepare().unwrap();
    let workload = Workload::create(&lab.record()).unwrap();
    let prober = Prober::start(&workload.plan(RATE).unwrap()).unwrap();
    for name in ["agent-restart", "ovn-controller-restart", "controller-failover"] {
        let scenario = Scenario::named(name).unwrap();
        let rounds = Rounds { title: name.into(), rounds: 1, window: Duration::from_secs(10) };
        let (worse, report) =
            probe::run_confirmed(&prober, &rounds, |marks| scenario.fault(&testbed, marks, RunLength::Short)).unwrap();
        println!("{}", report.table(false));
        assert_eq!(worse, Vec::<String>::new(), "{name}:\n{}", report.table(false));
    }
    // The prober detects losses of the underlay, on the affected paths.
    let rounds = Rounds { title: "loss".into(), rounds: 1, window: Duration::from_secs(5) };
    let lossy = probe::run(&prober, &rounds, &Progress::silent(), |marks| {
        marks.mark("a tenth is lost");
        let drops = lab.lose("n2", 10)?;
        std::thread::sleep(Duration::from_secs(3));
        assert!(drops.dropped()? > 0);
        drops.heal()
    })
    .unwrap();
    assert!(!lossy.ok, "{}", lossy.table(false));
    let path = |route: &str, protocol: &str| {
        lossy.paths.iter().find(|path| path.name() == format!("{route}, {protocol}")).unwrap()
    };
    let far = path("pod → pod, other node", "UDP");
    assert!(far.excess(Incident::Lost) > 0, "{}", lossy.table(false));
    let lost: Vec<_> = far.incidents.iter().filter(|one| one.window == WindowKind::Fault).collect();
    assert!(lost.len() as u64 >= far.fault.lost && lossy.svg().contains("a tenth is lost"));
    // Retransmissions are counted as well.
    assert!(lossy.retransmitted.values().any(|[control, fault]| fault > control), "{:?}", lossy.retransmitted);
}
