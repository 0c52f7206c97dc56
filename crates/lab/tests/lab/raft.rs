//! Raft clusters: leader loss, partitions, TLS.

use std::time::{Duration, Instant};

use lab::{Database, Lab, LabSpec, Ovn};

fn cluster(purpose: &str, tls: bool) -> Lab {
    Lab::start(LabSpec::for_test(purpose).unwrap().ovn(Ovn { tls, ..Ovn::default() })).unwrap()
}

fn machine_of(component: &str) -> String {
    component.replace("nb-", "db-")
}

#[test]
fn raft_continues_after_leader_loss() {
    let lab = cluster("leader", false);
    lab.nbctl(&["ls-add", "before"]).unwrap();
    let leader = lab.raft_leader(Database::Northbound).unwrap();
    let killed = lab.kill(&leader).unwrap();
    assert!(!killed.process.is_alive());
    through_another(&lab, &leader, "after");
    let now = lab.raft_leader(Database::Northbound).unwrap();
    assert_ne!(now, leader);
    lab.restart(&leader).unwrap();
    // The restarted member has both rows: read from it, not from the leader.
    await_switches(&lab, &leader, &["before", "after"]);
    // And northd follows: a change still reaches the southbound database.
    lab.nbctl(&["--wait=sb", "sync"]).unwrap();
}

#[test]
fn a_partitioned_leader_is_replaced_and_catches_up() {
    let lab = cluster("cut-off", false);
    let leader = lab.raft_leader(Database::Northbound).unwrap();
    let alone = machine_of(&leader);
    let others: Vec<String> = (1..=3).map(|member| format!("db-{member}")).filter(|name| *name != alone).collect();
    let cuts: Vec<_> = others.iter().map(|other| lab.partition(&alone, other).unwrap()).collect();
    through_another(&lab, &leader, "meanwhile");
    assert!(cuts.iter().map(|cut| cut.dropped().unwrap()).sum::<u64>() > 0, "the partition dropped nothing");
    for cut in cuts {
        cut.heal().unwrap();
    }
    await_switches(&lab, &leader, &["meanwhile"]);
}

/// Waits until a member has rejoined its cluster and has these rows itself.
fn await_switches(lab: &Lab, member: &str, switches: &[&str]) {
    let machine = lab.machine(&machine_of(member)).unwrap();
    let socket = "unix:/run/ovn/ovnnb_db.sock";
    let own = format!("--db={socket}");
    let deadline = Instant::now() + Duration::from_secs(60);
    for switch in switches {
        let connected = ["ovsdb-client", "--timeout=60", "wait", socket, "OVN_Northbound", "connected"];
        let present = ["ovn-nbctl", &own, "--no-leader-only", "--timeout=60", "wait-until", "Logical_Switch", switch];
        // A member that loses its cluster or changes its role closes its connections, and ovn-nbctl does not reconnect.
        // Right after a partition that may happen several times.
        while let Err(error) = machine.run(&connected).and_then(|_| machine.run(&present)) {
            assert!(Instant::now() < deadline, "{member} does not have {switch}: {error}");
        }
    }
}

/// Writes through a follower: it holds the write until there is a leader again.
fn through_another(lab: &Lab, leader: &str, switch: &str) {
    let other = (1..=3).map(|member| format!("db-{member}")).find(|name| *name != machine_of(leader)).unwrap();
    let machine = lab.machine(&other).unwrap();
    let own = "--db=unix:/run/ovn/ovnnb_db.sock";
    let add = ["ovn-nbctl", own, "--no-leader-only", "--timeout=60", "--may-exist", "ls-add", switch];
    let deadline = Instant::now() + Duration::from_secs(60);
    // As above: a follower that loses its leader closes its connections, and ovn-nbctl does not reconnect.
    while let Err(error) = machine.run(&add) {
        assert!(Instant::now() < deadline, "{switch} was not written through {other}: {error}");
    }
}

fn lab_dir(lab: &Lab) -> std::path::PathBuf {
    lab::directories::Directories::from_environment().unwrap().lab(lab.name())
}

#[test]
fn mutual_tls_rejects_clients_without_a_valid_certificate() {
    let lab = cluster("tls", true);
    let remote = lab.record().endpoints.northbound_remote.clone().unwrap();
    assert!(remote.starts_with("ssl:"), "{remote}");
    let pki = lab_dir(&lab).join("pki/ovn");
    let db = format!("--db={remote}");
    let path = |file: &str| pki.join(file).display().to_string();
    let control = lab.machine("control").unwrap();
    let (key, certificate, authority) = (path("ovn.key"), path("ovn.crt"), path("ca.crt"));
    let with = ["ovn-nbctl", &db, "--timeout=30", "-p", &key, "-c", &certificate, "-C", &authority, "ls-add", "with"];
    control.run(&with).unwrap();
    // A certificate of another CA is rejected.
    let stranger = lab::pki::Authority::create(&lab_dir(&lab).join("pki/stranger"), "stranger").unwrap();
    let identity = stranger.issue("stranger", "ovn", None, &[], &[]).unwrap();
    let (key, certificate) = (identity.key.display().to_string(), identity.certificate.display().to_string());
    let without =
        ["ovn-nbctl", &db, "--timeout=3", "-p", &key, "-c", &certificate, "-C", &authority, "ls-add", "without"];
    assert!(control.run(&without).is_err());
    // So is a client without one: the alert comes with the first read.
    let address = remote.split(',').next().unwrap().trim_start_matches("ssl:");
    let script = "openssl s_client -quiet -connect \"$1\" </dev/null 2>&1 || true";
    let output = control.run(&["sh", "-c", script, "sh", address]).unwrap();
    assert!(output.contains("alert"), "{output}");
    // Raft connections use TLS, too.
    let raft = address.replace(":6641", ":6643");
    let output = control.run(&["sh", "-c", script, "sh", &raft]).unwrap();
    assert!(output.contains("alert"), "{output}");
    let switches = lab.nbctl(&["ls-list"]).unwrap();
    assert!(switches.contains("with") && !switches.contains("without"), "{switches}");
}
