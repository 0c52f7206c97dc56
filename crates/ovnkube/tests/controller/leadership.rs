//! Who leads: hand-over, take-over, fencing, a Lease elsewhere, and the northd that comes with the leader.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use lab::{Kubernetes, Lab, LabSpec};
use serde_json::json;

use crate::cluster::{Cluster, LONG_LEASE, PATIENCE, Wish, node, pod, until};

impl Cluster {
    /// How often a controller began to lead.
    fn leaderships(&self, name: &str) -> usize {
        self.lab.log(name).unwrap().matches("\"leading\"").count()
    }

    fn wait_leadership(&self, name: &str, times: usize) {
        until(&format!("{name} leads for the {times}. time"), || (self.leaderships(name) >= times).then_some(()));
    }

    fn wait_logged(&self, name: &str, what: &str) {
        until(&format!("{name} says {what:?}"), || self.lab.log(name).unwrap().contains(what).then_some(()));
    }

    fn holder(&self) -> String {
        let lease = self.get(&["lease", "-n", "kube-system", "ovn-kubernetes-master"]);
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    fn writer(&self) -> String {
        self.sequence().0.split('/').next().unwrap().to_owned()
    }

    fn pod_gets_network(&self, name: &str) {
        self.apply(&pod("default", name, "n1"));
        self.network_of("default", name);
    }

    /// Every port once, every address once.
    fn nobody_is_doubled(&self) {
        let ports = self.raw("Logical_Switch_Port");
        let mut names: Vec<String> = ports.iter().map(|port| crate::rows::text(&port["name"])).collect();
        let mut addresses: Vec<String> = ports
            .iter()
            .map(|port| crate::rows::text(&port["addresses"]))
            .filter(|addresses| addresses.starts_with("0a:58"))
            .collect();
        let (all, with_address) = (names.len(), addresses.len());
        names.sort();
        names.dedup();
        addresses.sort();
        addresses.dedup();
        assert_eq!((names.len(), addresses.len()), (all, with_address), "{names:?} {addresses:?}");
    }
}

/// SIGTERM, SIGKILL, SIGSTOP and a Lease that somebody edits: there is one who leads, and pods go on getting networks.
#[test]
fn leaders_come_and_go() {
    let cluster = Wish::new("leaders").start();
    handed_over(&cluster);
    killed(&cluster);
    stopped(&cluster);
    edited(&cluster);
    cluster.nobody_is_doubled();
}

/// The lease would run for a minute: only a hand-over explains that it is not the old leader's when that one has ended.
fn handed_over(cluster: &Cluster) {
    cluster.controller_with("c1", &LONG_LEASE);
    cluster.wait_leader("c1");
    cluster.apply(&node("n1"));
    cluster.pod_gets_network("p1");
    cluster.controller_with("c2", &LONG_LEASE);
    assert!(cluster.lab.terminate("c1", PATIENCE).unwrap().success());
    assert_ne!(cluster.holder(), "c1");
    cluster.pod_gets_network("p2");
    assert_eq!((cluster.holder().as_str(), cluster.writer().as_str()), ("c2", "c2"));
    assert!(cluster.lab.terminate("c2", PATIENCE).unwrap().success());
}

fn killed(cluster: &Cluster) {
    cluster.controller("c3");
    cluster.wait_leader("c3");
    cluster.controller("c4");
    cluster.lab.kill("c3").unwrap();
    cluster.apply(&pod("default", "p3", "n1"));
    cluster.wait_leader("c4");
    cluster.network_of("default", "p3");
    assert_eq!(cluster.holder(), "c4");
}

/// A leader that was stopped and goes on commits nothing any more, and is a standby like any other.
fn stopped(cluster: &Cluster) {
    cluster.lab.restart("c3").unwrap();
    cluster.apply(&pod("default", "p4", "n1"));
    let paused = cluster.lab.pause("c4").unwrap();
    cluster.wait_leadership("c3", 2);
    let network = cluster.network_of("default", "p4");
    paused.resume().unwrap();
    cluster.wait_logged("c4", "the lease is not ours any more");
    cluster.pod_gets_network("p5");
    assert_eq!((cluster.holder().as_str(), cluster.writer().as_str()), ("c3", "c3"));
    assert_eq!(cluster.network_of("default", "p4").addresses, network.addresses);
    cluster.nobody_is_doubled();
    assert!(cluster.lab.terminate("c3", PATIENCE).unwrap().success());
    cluster.wait_leadership("c4", 2);
    cluster.pod_gets_network("p6");
    assert_eq!(cluster.writer(), "c4");
}

/// Somebody else's name in the Lease is believed for as long as a lease lasts.
fn edited(cluster: &Cluster) {
    let patch = json!({"spec": {"holderIdentity": "somebody"}}).to_string();
    let lease = ["lease", "-n", "kube-system", "ovn-kubernetes-master"];
    cluster.lab.kubectl(&[&["patch"], &lease[..], &["--type=merge", "-p", &patch]].concat()).unwrap();
    cluster.wait_logged("c4", "held by somebody");
    cluster.wait_leadership("c4", 3);
    cluster.pod_gets_network("p7");
    assert_eq!(cluster.holder(), "c4");
}

/// The processes named `ovn-northd` that a controller started.
fn northds_of(cluster: &Cluster, controller: &str) -> Vec<u32> {
    let record = cluster.lab.record();
    let parent = record.component(controller).unwrap().process.pid;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((front, rest)) = stat.rsplit_once(')') else { continue };
        let mut words = rest.split_whitespace();
        let (state, of) = (words.next(), words.next());
        let ours = of.and_then(|of| of.parse::<u32>().ok()) == Some(parent);
        if front.ends_with("(ovn-northd") && ours && state != Some("Z") {
            found.push(pid);
        }
    }
    found
}

fn all_northds(cluster: &Cluster) -> usize {
    let counted = cluster.lab.machine("control").unwrap().output(&["pgrep", "-c", "-x", "ovn-northd"]).unwrap();
    String::from_utf8_lossy(&counted.stdout).trim().parse().unwrap()
}

/// Where nobody else runs ovn-northd, whoever leads does, and only that one.
#[test]
fn northd_comes_with_the_leader() {
    let mut wish = Wish::new("northd");
    wish.ovn.northds = 0;
    let cluster = wish.start();
    cluster.controller_with("c1", &["--run-northd"]);
    cluster.wait_leader("c1");
    cluster.controller_with("c2", &["--run-northd"]);
    cluster.apply(&node("n1"));
    let reaches_southbound = |name: &str| {
        until(&format!("{name} is in the southbound database"), || {
            cluster.tunnel_keys().keys().any(|ids| ids.split(' ').any(|id| id == format!("name={name}"))).then_some(())
        });
    };
    reaches_southbound("n1");
    let first = northds_of(&cluster, "c1");
    assert_eq!(first.len(), 1);
    assert!(Command::new("kill").args(["-9", &first[0].to_string()]).status().unwrap().success());
    until("another northd runs", || northds_of(&cluster, "c1").iter().any(|pid| *pid != first[0]).then_some(()));
    cluster.apply(&node("n2"));
    reaches_southbound("n2");
    assert!(cluster.lab.terminate("c1", PATIENCE).unwrap().success());
    cluster.wait_leader("c2");
    cluster.apply(&node("n3"));
    reaches_southbound("n3");
    assert_eq!((northds_of(&cluster, "c2").len(), all_northds(&cluster)), (1, 1));
    assert!(cluster.lab.terminate("c2", PATIENCE).unwrap().success());
    until("no northd is left", || (all_northds(&cluster) == 0).then_some(()));
    // One that is not there keeps nobody from leading.
    cluster.controller_with("c3", &["--run-northd=/nonexistent/northd"]);
    cluster.wait_leader("c3");
    cluster.wait_logged("c3", "ovn-northd cannot be started");
    cluster.apply(&pod("default", "p1", "n1"));
    cluster.network_of("default", "p1");
}

/// A controller on the host, which reaches the APIs of several labs.
struct OnHost {
    child: Child,
    log: PathBuf,
}

impl OnHost {
    fn start(cluster: &Cluster, name: &str, election: &Path) -> Self {
        let endpoints = cluster.lab.record().endpoints;
        let log = std::env::temp_dir().join(format!("{}-{name}.log", cluster.lab.name()));
        let child = Command::new(env!("CARGO_BIN_EXE_ovnkube"))
            .args(["controller", "--identity", name, "--metrics-bind-address", "off"])
            .args(["--nb-address", &endpoints.northbound.unwrap(), "--sb-address", &endpoints.southbound.unwrap()])
            .arg("--kubeconfig")
            .arg(endpoints.kubeconfig.unwrap())
            .arg("--leader-election-kubeconfig")
            .arg(election)
            .args(["--leader-election-namespace", "default"])
            .args(LONG_LEASE)
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn wait_leader(&self) {
        until("the controller on the host leads", || {
            std::fs::read_to_string(&self.log).unwrap().contains("\"leading\"").then_some(())
        });
    }

    fn terminate(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = until("it has ended", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

impl Drop for OnHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- controller on the host\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// As in the hosted form: the cluster that is served is one, the cluster that holds the Lease another.
#[test]
fn the_lease_may_live_in_another_cluster() {
    let cluster = Wish::new("served").start();
    let spec = LabSpec::for_test("management").unwrap().kubernetes(Kubernetes::default());
    let management = Lab::start(spec).unwrap();
    let election = management.record().endpoints.kubeconfig.unwrap();
    let one = OnHost::start(&cluster, "c1", &election);
    one.wait_leader();
    let two = OnHost::start(&cluster, "c2", &election);
    cluster.apply(&node("n1"));
    cluster.pod_gets_network("p1");
    let lease = ["get", "lease", "-n", "default", "ovn-kubernetes-master", "-o", "jsonpath={.spec.holderIdentity}"];
    assert_eq!(management.kubectl(&lease).unwrap(), "c1");
    let leases = cluster.lab.kubectl(&["get", "leases", "-A", "-o", "name"]).unwrap();
    assert!(!leases.contains("ovn-kubernetes-master"), "{leases}");
    one.terminate();
    two.wait_leader();
    cluster.pod_gets_network("p2");
    assert_eq!(management.kubectl(&lease).unwrap(), "c2");
    two.terminate();
}
