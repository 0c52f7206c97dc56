//! An active northbound server and its backup: what a failover loses, although it was acknowledged, the controller writes again.

use std::path::PathBuf;

use lab::Program;
use serde_json::Value;

use crate::cluster::{Cluster, ClusterSpec, LONG_LEASE, pod, until};

/// The servers run on the nodes n1 and n2: between them only replication and the pods' tunnels are cut.
const SERVERS: [&str; 2] = ["n1", "n2"];

struct Servers {
    cluster: Cluster,
}

impl Servers {
    fn start() -> Self {
        let mut spec = ClusterSpec::new("async-failover").nodes(2).arguments(&LONG_LEASE);
        spec.ovn.northds = 0;
        let spec = spec.arguments(&["--run-northd", "--nb-endpoints-service", "servers/ovnkube-nb"]);
        let servers = Self { cluster: spec.start() };
        servers.cluster.lab.kubectl(&["create", "namespace", "servers"]).unwrap();
        for machine in SERVERS {
            let address = servers.address(machine);
            let (data, run) = ("/var/lib/servers", "/run/servers");
            servers.on(machine, &format!("mkdir -p {data} {run}")).unwrap();
            let program = Program::new(component(machine), PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
                .on(machine)
                .arguments(["db", "serve", "nb", "--form", "active-backup", "--nb-endpoints-service", "ovnkube-nb"])
                .arguments(["--host", &address, "--listen", &address, "--namespace", "servers"])
                .arguments(["--data-dir", data, "--run-dir", run, "--metrics-bind-address", "off"])
                .environment("POD_NAME", component(machine));
            servers.cluster.lab.run(&program).unwrap();
        }
        servers
    }

    fn on(&self, machine: &str, script: &str) -> Result<String, String> {
        let machine = self.cluster.lab.machine(machine).unwrap();
        machine.run(&["sh", "-c", script]).map_err(|error| error.to_string())
    }

    fn address(&self, machine: &str) -> String {
        let machines = self.cluster.lab.record().machines;
        let addresses = &machines.iter().find(|record| record.name == machine).unwrap().addresses;
        addresses[0].split('/').next().unwrap().to_owned()
    }

    fn remotes(&self) -> String {
        SERVERS.map(|machine| format!("tcp:{}:6641", self.address(machine))).join(",")
    }

    fn nbctl(&self, machine: &str, words: &str) -> Result<String, String> {
        self.on(
            machine,
            &format!("ovn-nbctl --timeout=10 --no-leader-only --db=unix:/run/servers/ovnnb_db.sock {words}"),
        )
    }

    /// `active`, `backup` or `waiting`, as its manager reports it.
    fn role(&self, machine: &str) -> Option<String> {
        let text = self.on(machine, "cat /run/servers/ovnnb_db.manager.json").ok()?;
        serde_json::from_str::<Value>(&text).ok()?["role"].as_str().map(str::to_owned)
    }

    fn await_role(&self, machine: &str, role: &str) {
        until(&format!("{machine} is {role}"), || (self.role(machine)? == role).then_some(()));
    }

    /// The addresses of a pod's ports in the database of a server: one entry for each port.
    fn ports(&self, machine: &str, name: &str) -> Vec<String> {
        let find = format!("--bare --columns=addresses find Logical_Switch_Port name=default_{name}");
        self.nbctl(machine, &find).unwrap().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn wait_up(&self, machine: &str, name: &str) {
        let get = format!("get Logical_Switch_Port default_{name} up");
        until(&format!("{name} is up"), || (self.nbctl(machine, &get).ok()?.trim() == "true").then_some(()));
    }

    fn ping(&self, from: &lab::Pod, to: &str) {
        let to = self.cluster.network_of("default", to).address().to_string();
        from.run(&["ping", "-c", "1", "-i", "0.2", "-w", "30", &to]).unwrap();
    }
}

fn component(machine: &str) -> String {
    format!("server-{machine}")
}

#[test]
fn an_acknowledged_row_that_a_failover_loses_is_written_again() {
    let servers = Servers::start();
    let cluster = &servers.cluster;
    let active = until("one server is active", || {
        SERVERS.into_iter().find(|machine| servers.role(machine).as_deref() == Some("active"))
    });
    let backup = SERVERS.into_iter().find(|machine| *machine != active).unwrap();
    servers.await_role(backup, "backup");
    cluster.controller_at("c1", &servers.remotes());
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    cluster.apply(&pod("default", "kept", "n1"));
    let kept = cluster.plug(1, "default", "kept");
    servers.wait_up(active, "kept");
    until("the backup has the first pod", || (servers.ports(backup, "kept").len() == 1).then_some(()));

    // Replication is cut off. Meanwhile, the active server acknowledges the row of a pod: its annotation follows the commit.
    let cut = cluster.lab.partition(active, backup).unwrap();
    cluster.apply(&pod("default", "lost", "n2"));
    let network = cluster.network_of("default", "lost");
    let address = network.address().to_string();
    let acknowledged = servers.ports(active, "lost");
    assert!(acknowledged.len() == 1 && acknowledged[0].contains(&address), "{acknowledged:?}");
    assert!(servers.ports(backup, "lost").is_empty(), "the backup is cut off");

    // The active server is lost with its manager, as with its node. Without the controller, what the failover lost stays lost.
    let paused = cluster.lab.pause("c1").unwrap();
    cluster.lab.kill(&component(active)).unwrap();
    servers.on(active, "kill -KILL $(cat /run/servers/ovnnb_db.pid)").unwrap();
    servers.await_role(backup, "active");
    assert!(servers.ports(backup, "lost").is_empty(), "the row was acknowledged, and the new active server has it");
    assert_eq!(servers.ports(backup, "kept").len(), 1);

    // The controller writes the row again, with the address that the pod was told, and the pod works.
    paused.resume().unwrap();
    let again =
        until("the row is written again", || Some(servers.ports(backup, "lost")).filter(|rows| !rows.is_empty()));
    assert_eq!(again, acknowledged);
    assert_eq!(cluster.network_of("default", "lost").address(), network.address());
    cut.heal().unwrap();
    let lost = cluster.plug(2, "default", "lost");
    servers.wait_up(backup, "lost");
    servers.ping(&lost, "kept");
    servers.ping(&kept, "lost");

    // The former active server returns as a backup: its own row is replaced by the new one.
    cluster.lab.restart(&component(active)).unwrap();
    servers.await_role(active, "backup");
    let uuid =
        |machine: &str| servers.nbctl(machine, "--bare --columns=_uuid find Logical_Switch_Port name=default_lost");
    until("both have the same row", || (uuid(active).ok()? == uuid(backup).ok()?).then_some(()));
    assert_eq!(servers.ports(active, "lost"), acknowledged);
}
