//! The southbound database behind a host name: a router in front of it selects the backend by SNI, and certificates are
//! replaced at run time.

use std::path::{Path, PathBuf};

use lab::pki::Authority;
use lab::{Family, Lab, Program, TlsRoute};

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, node, until};

const PORT: u16 = 443;

fn path(cluster: &Cluster, machine: &str, path: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{path}", cluster.lab.machine(machine).unwrap().init().pid))
}

fn connected(cluster: &Cluster) -> bool {
    let words = ["ovn-appctl", "-t", "ovn-controller", "connection-status"];
    cluster.lab.node(1).unwrap().run(&words).is_ok_and(|said| said.trim() == "connected")
}

/// The certificates of ovn-controller, the agent and the database.
fn certificates(cluster: &Cluster) -> PathBuf {
    lab::directories::Directories::from_environment().unwrap().lab(cluster.lab.name()).join("pki/ovn")
}

/// Starts an agent and waits until it has set `ovn-remote`.
fn agent(cluster: &Cluster, name: &str, southbound: &str) {
    let program = Program::new(name, PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
        .on("n1")
        .arguments(["node", "--node", "n1", "--sb-address", southbound, "--metrics-bind-address", "off"])
        .arguments(["--log-level", "info,ovsdb=debug"])
        .arguments(
            [("privkey", "ovn.key"), ("cert", "ovn.crt"), ("cacert", "ca.crt")]
                .map(|(option, file)| format!("--sb-client-{option}={}", certificates(cluster).join(file).display())),
        )
        .ready_when_logged("CNI server listening");
    cluster.lab.run(&program).unwrap();
    let words = ["ovs-vsctl", "--timeout=30", "get", "Open_vSwitch", ".", "external_ids:ovn-remote"];
    until("ovn-remote is set", || {
        let remote = cluster.lab.node(1).unwrap().run(&words).ok()?;
        // Repeated by the agent to make ovn-controller reconnect.
        remote.trim().trim_matches('"').split(',').all(|server| server == southbound).then_some(())
    });
}

/// Replaces all certificates by those of another CA.
fn replace_certificates(lab: &Lab, folder: &Path, name: &str) {
    let fresh = folder.with_extension("fresh");
    let authority = Authority::create(&fresh, "another-ca").unwrap();
    authority.issue("ovn", "ovn", None, &["control", name], &["10.99.0.1".parse().unwrap()]).unwrap();
    for file in ["ovn.key", "ovn.crt", "ca.crt"] {
        std::fs::rename(fresh.join(file), folder.join(file)).unwrap();
    }
    // The restarted server accepts only the new CA.
    lab.kill("sb").unwrap();
    lab.restart("sb").unwrap();
}

#[test]
fn southbound_by_host_name_uses_sni_and_renewed_certificates() {
    let mut spec = ClusterSpec::new("agent-name").nodes(1);
    spec.ovn.tls = true;
    spec.family = Family::V4;
    let cluster = spec.start();
    cluster.apply(&node("n1"));
    let name = "ovnkube-sbdb.apps.example.com";
    let southbound = "10.99.0.1:6642".parse().unwrap();
    cluster.lab.route_tls("control", PORT, &[TlsRoute::new(name, southbound)]).unwrap();
    let hosts = path(&cluster, "n1", "/etc/hosts");
    let more =
        format!("{}\n10.99.0.1 {name}\n10.99.0.1 other.apps.example.com\n", std::fs::read_to_string(&hosts).unwrap());
    std::fs::write(&hosts, more).unwrap();
    // ovn-controller reads /etc/hosts only at start.
    cluster.lab.kill("n1-ovn-controller").unwrap();
    cluster.lab.restart("n1-ovn-controller").unwrap();

    // Another name is not routed: the name decides, not the address.
    agent(&cluster, "agent", &format!("ssl:other.apps.example.com:{PORT}"));
    until("ovn-controller is disconnected", || (!connected(&cluster)).then_some(()));
    cluster.lab.terminate("agent", TIMEOUT).unwrap();
    agent(&cluster, "agent-again", &format!("ssl:{name}:{PORT}"));
    until("ovn-controller is connected", || connected(&cluster).then_some(()));

    replace_certificates(&cluster.lab, &certificates(&cluster), name);
    until("ovn-controller is connected with its new certificate", || connected(&cluster).then_some(()));

    check_backoff_is_ended(&cluster);
}

/// The agent makes ovn-controller connect when a server is back, instead of after its backoff.
fn check_backoff_is_ended(cluster: &Cluster) {
    let written = || {
        let words = ["ovs-vsctl", "--timeout=30", "get", "Open_vSwitch", ".", "external_ids:ovn-remote"];
        cluster.lab.node(1).unwrap().run(&words).unwrap()
    };
    // The router accepts and closes what the database does not serve.
    let failures = || cluster.lab.log("n1-ovn-controller").unwrap().matches("stream_ssl|ERR|").count();
    let before = written();
    // After five failures ovn-controller waits for 8 s; if the machine is so slow that it connects by itself before the agent
    // has asked, that proves nothing.
    let intervened = (0..5).any(|_| {
        let before_kill = failures();
        cluster.lab.kill("sb").unwrap();
        until("ovn-controller's backoff has grown to its longest", || (failures() >= before_kill + 5).then_some(()));
        assert_eq!(written(), before, "nothing is changed while no server works");
        cluster.lab.restart("sb").unwrap();
        until("ovn-controller is connected again", || connected(cluster).then_some(()));
        written() != before
    });
    assert!(intervened, "the agent gave ovn-controller the same server in another form");
}
