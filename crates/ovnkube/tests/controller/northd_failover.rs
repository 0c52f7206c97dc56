//! The leader's ovn-northd leaves a database member that can no longer commit: one that is killed, one that is stopped, and
//! one that is cut off from the others but still replies. It does so through the socket that leads to the leader, without a
//! backoff of its own.

use lab::{Database, NorthdSync};

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT};

/// A leader with its northd, on three raft members of each database, and a client.
struct Northd {
    cluster: Cluster,
    sync: NorthdSync,
}

impl Northd {
    fn start(purpose: &'static str) -> Self {
        let mut spec = ClusterSpec::new(purpose).raft();
        spec.ovn.northds = 0;
        let cluster = spec.start();
        cluster.controller_with("c1", &["--run-northd"]);
        cluster.wait_leader("c1");
        let sync = NorthdSync::connect(&cluster.lab.record().endpoints.northbound.unwrap()).unwrap();
        let northd = Self { cluster, sync };
        northd.await_sync("the start");
        // Its connections, and how long it waits before the next one.
        let verbose = ["ovn-appctl", "-t", "ovn-northd", "vlog/set", "reconnect:console:info"];
        northd.cluster.lab.machine("control").unwrap().run(&verbose).unwrap();
        northd
    }

    /// Returns when northd has copied a new `nb_cfg` to the southbound database, and back.
    fn await_sync(&self, fault: &str) {
        self.sync.wait(TIMEOUT).unwrap_or_else(|error| panic!("after {fault}: {error}"));
    }

    fn leader(&self, database: Database) -> String {
        crate::cluster::until("there is a leader", || self.cluster.lab.raft_leader(database).ok())
    }

    /// Asserts that the controller connected northd to another server than this one, the last time that it did.
    fn assert_led_away_from(&self, database: Database, former: &str) {
        let socket = match database {
            Database::Northbound => "/run/ovn/ovnnb_db.sock",
            Database::Southbound => "/run/ovn/ovnsb_db.sock",
        };
        let log = self.cluster.lab.log("c1").unwrap();
        let led = |line: &&str| line.contains("connected ovn-northd to the leader") && line.contains(socket);
        let last = log.lines().rfind(led).expect("the controller leads northd to the leader");
        let former_socket = format!("/{}{socket}", machine(former));
        assert!(!last.contains(&former_socket), "northd is still connected to {former}: {last}");
    }

    /// Asserts that northd reconnected, and each time at once.
    fn assert_never_backed_off(&self) {
        let log = self.cluster.lab.log("c1").unwrap();
        let of_northd = || log.lines().filter(|line| line.contains("ovn-northd") && line.contains("reconnect"));
        let connections = of_northd().filter(|line| line.contains(": connected")).count();
        assert!(connections > 0, "northd does not say that it reconnected");
        let waits: Vec<&str> = of_northd()
            .filter(|line| line.contains("seconds before reconnect") || line.contains("suppressing further logging"))
            .filter(|line| !line.contains("waiting 0 seconds"))
            .collect();
        assert!(waits.is_empty(), "northd waited before it connected again:\n{}", waits.join("\n"));
    }
}

/// The machine of a database server.
fn machine(server: &str) -> String {
    format!("db-{}", server.rsplit('-').next().unwrap())
}

#[test]
fn northd_leaves_a_leader_that_is_killed_or_stopped() {
    let northd = Northd::start("northd-stop");
    for database in [Database::Southbound, Database::Northbound] {
        let leader = northd.leader(database);
        let paused = northd.cluster.lab.pause(&leader).unwrap();
        northd.await_sync(&format!("{leader} was stopped"));
        northd.assert_led_away_from(database, &leader);
        paused.resume().unwrap();
        let leader = northd.leader(database);
        northd.cluster.lab.kill(&leader).unwrap();
        northd.await_sync(&format!("{leader} was killed"));
        northd.assert_led_away_from(database, &leader);
        northd.cluster.lab.restart(&leader).unwrap();
    }
    northd.assert_never_backed_off();
}

#[test]
fn northd_leaves_a_leader_that_lost_its_quorum() {
    let northd = Northd::start("northd-cut");
    let mut dropped = 0;
    for database in [Database::Southbound, Database::Northbound] {
        let leader = northd.leader(database);
        let machine = machine(&leader);
        let others = ["db-1", "db-2", "db-3"].into_iter().filter(|other| *other != machine);
        let cuts: Vec<_> = others.map(|other| northd.cluster.lab.partition(&machine, other).unwrap()).collect();
        northd.await_sync(&format!("{leader} was cut off"));
        northd.assert_led_away_from(database, &leader);
        for cut in cuts {
            dropped += cut.dropped().unwrap();
            cut.heal().unwrap();
        }
    }
    // Not by each cut: both databases have members on the machines, so one that was cut off before may not have connected again
    // yet, and be succeeded without another packet.
    assert!(dropped > 0);
    northd.assert_never_backed_off();
}

/// The northd of a controller that hangs keeps its session, and with it the lock of the southbound database.
#[test]
fn northd_of_a_new_leader_takes_the_lock_of_the_former_one() {
    let northd = Northd::start("northd-lock");
    northd.cluster.controller_on("db-1", "c2", &["--run-northd"]);
    let paused = northd.cluster.lab.pause("c1").unwrap();
    northd.cluster.wait_leader("c2");
    northd.await_sync("the leader was stopped");
    paused.resume().unwrap();
}
