//! Raft members whose names change: what ovsdb-server does, and what `ovnkube db rename` makes of it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use database::rename::{Renaming, apply, save_request};
use database::{Kind, Options, Peers};
use lab::directories::Directories;
use lab::{Lab, LabSpec, Program, ZONE};

const MEMBERS: std::ops::RangeInclusive<u32> = 1..=3;
const LIMIT: Duration = Duration::from_secs(120);

struct Cluster {
    lab: Lab,
    directory: PathBuf,
}

impl Cluster {
    /// Three machines without a server yet.
    fn new() -> Self {
        let lab = Lab::start(LabSpec::for_test("rename").unwrap().nodes(3)).unwrap();
        // This directory has the same path on the host and on all machines.
        let directory = Directories::from_environment().unwrap().lab(lab.name()).join("rename");
        MEMBERS.for_each(|member| std::fs::create_dir_all(directory.join(format!("n{member}"))).unwrap());
        Self { lab, directory }
    }

    fn host(member: u32, domain: &str) -> String {
        format!("db-{member}.{domain}.{ZONE}")
    }

    /// Gives the machines names in a domain, and takes away those of the other domain.
    fn set_names(&self, domain: &str, former: &str) {
        for member in MEMBERS {
            self.lab.set_name(&Self::host(member, former), &[]).unwrap();
            let address = format!("10.99.0.{}", 10 + member).parse().unwrap();
            self.lab.set_name(&Self::host(member, domain), &[address]).unwrap();
        }
    }

    fn options(&self, member: u32, domain: &str) -> Options {
        let directory = self.directory.join(format!("n{member}"));
        Options {
            kind: Kind::Northbound,
            member: format!("n{member}"),
            data_directory: directory.clone(),
            run_directory: directory,
            schema_directory: "/usr/share/ovn".into(),
            host: Self::host(member, domain),
            listen: "0.0.0.0".into(),
            port: 6641,
            raft_port: 6643,
            tls: None,
            control_port: None,
            status_port: None,
            nodes: None,
            peers: Peers::Hosts(MEMBERS.map(|member| Self::host(member, domain)).collect()),
            election_timer: None,
            node_count: None,
            gone_after: database::GONE,
            namespace: "default".into(),
            kubeconfig: None,
        }
    }

    fn file(&self, member: u32) -> String {
        Kind::Northbound.file(&self.directory.join(format!("n{member}"))).display().to_string()
    }

    fn socket(&self, member: u32) -> String {
        format!("unix:{}", Kind::Northbound.socket(&self.directory.join(format!("n{member}"))).display())
    }

    fn run(&self, member: u32, command: &[&str]) -> Result<String, String> {
        self.lab.node(member).unwrap().run(command).map_err(|error| error.to_string())
    }

    fn start(&self, member: u32, domain: &str) {
        let arguments = self.options(member, domain).server_arguments(None);
        self.lab
            .run(&Program::new(format!("nb-{member}"), "ovsdb-server").on(&format!("n{member}")).arguments(arguments))
            .unwrap();
    }

    fn stop(&self, member: u32) {
        self.lab.terminate(&format!("nb-{member}"), LIMIT).unwrap();
    }

    /// Waits until a member is in contact with a quorum.
    fn await_connected(&self, member: u32) {
        let socket = self.socket(member);
        self.run(member, &["ovsdb-client", "--timeout=100", "wait", &socket, "OVN_Northbound", "connected"]).unwrap();
    }

    fn add_switch(&self, member: u32, name: &str) {
        let database = format!("--db={}", self.socket(member));
        self.run(member, &["ovn-nbctl", &database, "--no-leader-only", "--timeout=100", "ls-add", name]).unwrap();
    }

    fn switches(&self, member: u32) -> usize {
        let database = format!("--db={}", self.socket(member));
        self.run(member, &["ovn-nbctl", &database, "--no-leader-only", "--timeout=100", "ls-list"])
            .unwrap()
            .lines()
            .count()
    }

    /// Waits until the server of a member has logged these words.
    fn await_log(&self, member: u32, words: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let log = self.lab.log(&format!("nb-{member}")).unwrap();
            if log.contains(words) {
                return;
            }
            assert!(Instant::now() < deadline, "no {words:?} in {log}");
        }
    }

    fn has_leader(&self, member: u32) -> bool {
        let control = Kind::Northbound.control_socket(&self.directory.join(format!("n{member}")));
        let command = ["ovn-appctl", "-t", &control.display().to_string(), "cluster/status", "OVN_Northbound"];
        !self.run(member, &command).unwrap().contains("Leader: unknown")
    }

    fn rename(&self, member: u32, renaming: &Renaming) {
        let options = self.options(member, "new");
        save_request(&options, renaming).unwrap();
        let kept = apply(&options).unwrap().unwrap();
        assert!(kept.display().to_string().contains("before-rename"), "{}", kept.display());
    }

    fn cluster_id(&self, member: u32) -> String {
        self.run(member, &["ovsdb-tool", "db-cid", &self.file(member)]).unwrap()
    }
}

#[test]
fn renamed_members_keep_their_data_and_their_cluster() {
    let cluster = Cluster::new();
    cluster.set_names("old", "new");
    let address = |member| format!("tcp:{}:6643", Cluster::host(member, "old"));
    let schema = "/usr/share/ovn/ovn-nb.ovsschema";
    cluster.run(1, &["ovsdb-tool", "create-cluster", &cluster.file(1), schema, &address(1)]).unwrap();
    cluster.start(1, "old");
    cluster.await_connected(1);
    for member in 2..=3 {
        let file = cluster.file(member);
        cluster
            .run(member, &["ovsdb-tool", "join-cluster", &file, "OVN_Northbound", &address(member), &address(1)])
            .unwrap();
        cluster.start(member, "old");
        cluster.await_connected(member);
    }
    (0..20).for_each(|number| cluster.add_switch(1 + number % 3, &format!("sw-{number}")));
    let id = cluster.cluster_id(1);
    MEMBERS.for_each(|member| cluster.stop(member));

    // What raft does by itself: a server listens at, and looks for others by, the names in its file. Under other names no
    // member finds any other, and nothing is lost.
    cluster.set_names("new", "old");
    MEMBERS.for_each(|member| cluster.start(member, "new"));
    for member in MEMBERS {
        cluster.await_log(member, &format!("{}: failed to resolve", Cluster::host(member, "old")));
        assert!(!cluster.has_leader(member));
    }
    MEMBERS.for_each(|member| cluster.stop(member));

    let pairs: Vec<String> =
        MEMBERS.map(|member| format!("{}={}", Cluster::host(member, "old"), Cluster::host(member, "new"))).collect();
    let renaming = Renaming::parse(&pairs).unwrap();
    // One renamed member of three is not a quorum; two are, and the third follows when it is renamed.
    cluster.rename(1, &renaming);
    MEMBERS.for_each(|member| cluster.start(member, "new"));
    cluster.await_log(1, &format!("{}:6643: connecting", Cluster::host(2, "new")));
    assert!(!cluster.has_leader(1));
    cluster.stop(2);
    cluster.rename(2, &renaming);
    cluster.start(2, "new");
    cluster.await_connected(1);
    cluster.add_switch(2, "by-two");
    cluster.stop(3);
    cluster.rename(3, &renaming);
    cluster.start(3, "new");
    cluster.await_connected(3);
    cluster.add_switch(3, "by-three");

    for member in MEMBERS {
        // A member answers with what it has: wait for the last row.
        let database = format!("--db={}", cluster.socket(member));
        let wait =
            ["ovn-nbctl", &database, "--no-leader-only", "--timeout=100", "wait-until", "Logical_Switch", "by-three"];
        cluster.run(member, &wait).unwrap();
        assert_eq!(cluster.switches(member), 22);
    }
    MEMBERS.for_each(|member| cluster.stop(member));
    for member in MEMBERS {
        assert_eq!(cluster.cluster_id(member), id);
    }
    let files: Vec<String> = MEMBERS.map(|member| cluster.file(member)).collect();
    let check = [&["ovsdb-tool", "check-cluster"][..], &files.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    cluster.run(1, &check).unwrap();
}
