//! A controller trusts a cluster that `ovnkube db rebuild` recorded, although only one of three servers has it.

use lab::Program;

use crate::site::{LIMIT, Member, Site, host, until};

#[test]
fn a_rebuild_by_command_is_trusted_because_of_its_record() {
    let site = Site::start("rebuild");
    site.namespace("rebuilt");
    let members = [1, 2, 3].map(|number| Member::new(number, "nb", "rebuilt", &[1, 2, 3]));
    // As if they served 200 nodes of another cluster.
    let south = Member::new(1, "sb", "rebuilt", &[1]).with(&["--nodes", "200"]);
    members.iter().chain([&south]).for_each(|member| site.serve(member));
    members.iter().chain([&south]).for_each(|member| site.await_member(member));
    let northbound: Vec<String> = (1..=3).map(|number| format!("tcp:{}:6641", host(number))).collect();
    let controller = Program::new("c1", env!("CARGO_BIN_EXE_ovnkube"))
        .environment("OVNKUBE_METRICS_BIND_ADDRESS", "off")
        .environment("OVNKUBE_KUBERNETES_SERVICE_CIDRS", "10.96.0.0/16")
        .arguments(["controller", "--identity", "c1", "--leader-election-namespace", "rebuilt"])
        .arguments(["--nb-address", &northbound.join(","), "--sb-address", &format!("tcp:{}:6642", host(1))]);
    site.lab.run(&controller).unwrap();
    let leads = || site.lab.log("c1").unwrap().matches("\"started leading\"").count();
    until("the controller leads", || (leads() > 0).then_some(()));
    let former = site.record("rebuilt", "nb");
    until("the election timer follows --nodes", || (site.raft(&south, "Election timer") == "4000").then_some(()));
    assert_eq!(site.raft(&members[0], "Election timer"), "1000");

    // Two volumes and their nodes are gone for good.
    for member in &members[1..] {
        site.stop(member);
    }
    site.await_finding(&members[0], "NoQuorum");
    let (data, run) = (members[0].data(), members[0].run());
    let rebuild = Program::new("rebuild", env!("CARGO_BIN_EXE_ovnkube"))
        .environment("OVNKUBE_OVNNORTH_ADDRESS", northbound.join(","))
        .environment("POD_NAME", "member-1")
        .arguments(["db", "rebuild", "nb", "--force", "--host", &host(1), "--namespace", "rebuilt"])
        .arguments(["--data-dir", &data, "--run-dir", &run]);
    site.lab.run(&rebuild).unwrap();
    let status = site.lab.wait_end("rebuild", LIMIT).unwrap();
    assert!(status.success(), "{}", site.lab.log("rebuild").unwrap());
    assert_ne!(site.record("rebuilt", "nb"), former);

    // It may lead several times: on a busy machine it loses its Lease, too. What counts comes after it saw the new cluster.
    const NEW: &str = "the servers belong to a new raft cluster";
    let log = until("the controller leads in the new cluster", || {
        let log = site.lab.log("c1").unwrap();
        log.split_once(NEW).is_some_and(|(_, after)| after.contains("\"started leading\"")).then_some(log)
    });
    let line = log.lines().find(|line| line.contains(NEW)).unwrap();
    assert!(line.contains("\"recorded\":true"), "{line}");
}
