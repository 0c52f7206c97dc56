//! Leader election: release, takeover, fencing, a Lease in another cluster, and the leader's ovn-northd.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use lab::{Kubernetes, Lab, LabSpec};
use serde_json::json;

use crate::api_proxy::ApiProxy;
use crate::cluster::{Cluster, ClusterSpec, LONG_LEASE, SHORT_LEASE, TIMEOUT, node, pod, until, until_within};
use crate::inspect::METRICS;

impl Cluster {
    /// How often a controller became leader.
    fn leaderships(&self, name: &str) -> usize {
        self.lab.log(name).unwrap().matches("\"started leading\"").count()
    }

    fn wait_leadership(&self, name: &str, times: usize) {
        until(&format!("{name} leads for the {times}. time"), || (self.leaderships(name) >= times).then_some(()));
    }

    fn wait_logged(&self, name: &str, what: &str) {
        until(&format!("{name} logs {what:?}"), || self.lab.log(name).unwrap().contains(what).then_some(()));
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

    /// Every port name and every address exists once.
    fn assert_no_duplicates(&self) {
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

/// After SIGTERM, SIGKILL, SIGSTOP, an edited Lease and an API outage one controller leads, and pods get networks.
#[test]
fn one_controller_leads_across_termination_crash_pause_and_lease_edits() {
    let cluster = ClusterSpec::new("leaders").start();
    leader_terminates(&cluster);
    leader_is_killed(&cluster);
    leader_is_paused(&cluster);
    lease_is_edited(&cluster);
    api_hangs(&cluster);
    cluster.assert_no_duplicates();
}

/// The Lease lasts a minute: only a release explains that the old leader does not hold it after its end.
fn leader_terminates(cluster: &Cluster) {
    cluster.controller_with("c1", &LONG_LEASE);
    cluster.wait_leader("c1");
    cluster.apply(&node("n1"));
    cluster.pod_gets_network("p1");
    cluster.controller_with("c2", &LONG_LEASE);
    assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
    assert_ne!(cluster.holder(), "c1");
    cluster.pod_gets_network("p2");
    assert_eq!((cluster.holder().as_str(), cluster.writer().as_str()), ("c2", "c2"));
    assert!(cluster.lab.terminate("c2", TIMEOUT).unwrap().success());
}

/// The Lease lasts a minute and is not awaited: the takeover follows from the end of the leader's database session.
fn leader_is_killed(cluster: &Cluster) {
    cluster.controller_with("c3", &LONG_LEASE);
    cluster.wait_leader("c3");
    cluster.controller_with("c4", &LONG_LEASE);
    cluster.wait_logged("c4", "standby ready");
    cluster.lab.kill("c3").unwrap();
    let killed = Instant::now();
    cluster.apply(&pod("default", "p3", "n1"));
    until_within(TIMEOUT / 2, "c4 leads", || (cluster.leaderships("c4") > 0).then_some(()));
    println!("a killed leader was replaced after {:?}", killed.elapsed());
    cluster.network_of("default", "p3");
    assert_eq!(cluster.holder(), "c4");
    let log = cluster.lab.log("c4").unwrap();
    let place = |what: &str| log.find(what).unwrap_or_else(|| panic!("c4 does not log {what:?}"));
    assert!(place("no leader has a session with the northbound database") < place("Lease acquired"));
    assert!(cluster.lab.terminate("c4", TIMEOUT).unwrap().success());
}

/// A leader that was paused beyond its Lease is fenced when it resumes, and becomes a standby.
fn leader_is_paused(cluster: &Cluster) {
    cluster.controller_with("c5", &SHORT_LEASE);
    cluster.wait_leader("c5");
    cluster.controller_with("c6", &SHORT_LEASE);
    cluster.wait_logged("c6", "standby ready");
    cluster.apply(&pod("default", "p4", "n1"));
    let paused = cluster.lab.pause("c5").unwrap();
    cluster.wait_leadership("c6", 1);
    let network = cluster.network_of("default", "p4");
    paused.resume().unwrap();
    let deposed = ["leader Lease lost", "another controller has taken over"];
    until("c5 steps down", || {
        let log = cluster.lab.log("c5").unwrap();
        deposed.iter().any(|what| log.contains(what)).then_some(())
    });
    cluster.pod_gets_network("p5");
    assert_eq!((cluster.holder().as_str(), cluster.writer().as_str()), ("c6", "c6"));
    assert_eq!(cluster.network_of("default", "p4").addresses, network.addresses);
    cluster.assert_no_duplicates();
    let before = cluster.leaderships("c5");
    assert!(cluster.lab.terminate("c6", TIMEOUT).unwrap().success());
    cluster.wait_leadership("c5", before + 1);
    cluster.pod_gets_network("p6");
    assert_eq!(cluster.writer(), "c5");
}

/// A foreign holder in the Lease is respected until it is known not to exist.
fn lease_is_edited(cluster: &Cluster) {
    let patch = json!({"spec": {"holderIdentity": "somebody"}}).to_string();
    let lease = ["lease", "-n", "kube-system", "ovn-kubernetes-master"];
    let before = cluster.leaderships("c5");
    cluster.lab.kubectl(&[&["patch"], &lease[..], &["--type=merge", "-p", &patch]].concat()).unwrap();
    cluster.wait_logged("c5", "held by somebody");
    cluster.wait_leadership("c5", before + 1);
    cluster.pod_gets_network("p7");
    assert_eq!(cluster.holder(), "c5");
    assert!(cluster.lab.terminate("c5", TIMEOUT).unwrap().success());
}

/// The API hangs for longer than the Lease lasts: the leader keeps working with what it knows.
fn api_hangs(cluster: &Cluster) {
    let proxy = ApiProxy::start_for_all(cluster);
    let kubeconfig = proxy.kubeconfig.display().to_string();
    let arguments = [&["--kubeconfig", &kubeconfig][..], &SHORT_LEASE[..]].concat();
    cluster.controller_with("c7", &[&arguments[..], &["--metrics-bind-address", METRICS]].concat());
    cluster.wait_leader("c7");
    cluster.controller_with("c8", &arguments);
    cluster.wait_logged("c8", "standby ready");
    cluster.pod_gets_network("p8");
    let terms =
        cluster.get(&["lease", "-n", "kube-system", "ovn-kubernetes-master"])["spec"]["leaseTransitions"].clone();
    proxy.hold();
    cluster.wait_logged("c7", "renewal failed; leading until another process takes the Lease");
    // The standby saw the Lease expire, and cannot tell whether the leader renews it.
    cluster.wait_logged("c8", "the Lease looks expired, but the API server is slow");
    let (writer, before) = cluster.sequence();
    cluster.lab.nbctl(&["lsp-set-addresses", "default_p8", "unknown"]).unwrap();
    let restored = |port: &str| cluster.lab.nbctl(&["lsp-get-addresses", port]).unwrap();
    until("the leader restores a row", || restored("default_p8").contains("0a:58").then_some(()));
    let (now, after) = cluster.sequence();
    assert!(now == writer && after > before, "{writer}:{before}, {now}:{after}");
    proxy.release();
    cluster.wait_logged("c7", "Lease operations work again");
    cluster.pod_gets_network("p9");
    let lease = cluster.get(&["lease", "-n", "kube-system", "ovn-kubernetes-master"]);
    assert_eq!((cluster.holder().as_str(), &lease["spec"]["leaseTransitions"]), ("c7", &terms));
    assert_eq!((cluster.leaderships("c7"), cluster.leaderships("c8")), (1, 0));
    cluster.restored_rows_are_reported("c7");
}

impl Cluster {
    /// Repaired drift is reported in the log, as an Event and in a metric.
    fn restored_rows_are_reported(&self, leader: &str) {
        self.wait_logged(leader, "another client changed northbound rows of ours; restored them");
        self.wait_logged(leader, "Logical_Switch_Port default_p8");
        assert!(self.metric("ovnkube_controller_nb_rows_restored_total{table=\"Logical_Switch_Port\"}") >= 1.0);
        until("the pod has an Event", || {
            let events = self.get(&["events", "-n", "default"]);
            let mut events = events["items"].as_array()?.iter();
            let ours = |event: &&serde_json::Value| event["reason"] == "NetworkRowsRestored";
            events.find(ours).filter(|event| event["involvedObject"]["name"] == "p8").map(|_| ())
        });
    }
}

/// PIDs of the `ovn-northd` processes that a controller started.
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

/// With `--run-northd` the leader runs ovn-northd, and no other controller.
#[test]
fn only_the_leader_runs_ovn_northd() {
    let mut spec = ClusterSpec::new("northd");
    spec.ovn.northds = 0;
    let cluster = spec.start();
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
    // A hung northd is killed and replaced.
    let hung = northds_of(&cluster, "c1");
    assert!(Command::new("kill").args(["-STOP", &hung[0].to_string()]).status().unwrap().success());
    until("the hung northd is replaced", || {
        northds_of(&cluster, "c1").first().filter(|pid| **pid != hung[0]).map(|_| ())
    });
    assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
    cluster.wait_leader("c2");
    cluster.apply(&node("n3"));
    reaches_southbound("n3");
    assert_eq!((northds_of(&cluster, "c2").len(), all_northds(&cluster)), (1, 1));
    assert!(cluster.lab.terminate("c2", TIMEOUT).unwrap().success());
    until("no northd is left", || (all_northds(&cluster) == 0).then_some(()));
    // A missing binary does not prevent leadership.
    cluster.controller_with("c3", &["--run-northd=/nonexistent/northd"]);
    cluster.wait_leader("c3");
    cluster.wait_logged("c3", "cannot start ovn-northd");
    cluster.apply(&pod("default", "p1", "n1"));
    cluster.network_of("default", "p1");
}

/// A controller on the host, from where it reaches the API servers of several labs.
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
            std::fs::read_to_string(&self.log).unwrap().contains("\"started leading\"").then_some(())
        });
    }

    fn terminate(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = until("the controller exits", || self.child.try_wait().unwrap());
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

/// As with a hosted control plane: the Lease is in the management cluster.
#[test]
fn leader_election_may_use_another_cluster() {
    let cluster = ClusterSpec::new("served").start();
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
