//! The agent as a whole: annotations, readiness, and restarts without packet loss.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lab::Family;
use lab::probe::{self, Incident, Network, PathSpec, Plan, Prober, Protocol, Rounds, Server};
use lab::progress::Progress;
use serde_json::{Value, json};

use crate::cluster::{TIMEOUT, until};
use crate::sandbox::{Sandbox, addresses, request};
use crate::site::Site;

const CONDITION: &str = "k8s.ovn.org/NodeNetworkReady";
const CONFIGURATION: &str = "/etc/cni/net.d/10-ovn-kubernetes.conf";

pub(crate) fn node(site: &Site, number: u32) -> Value {
    site.cluster.get(&["node", &format!("n{number}")])
}

pub(crate) fn condition(node: &Value) -> Option<Value> {
    node["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == CONDITION).cloned()
}

/// Waits until the node's condition has a status, and a message that contains a text.
pub(crate) fn wait_condition(site: &Site, number: u32, status: &str, text: &str) {
    until(&format!("n{number} reports {status} with {text:?}"), || {
        let condition = condition(&node(site, number))?;
        (condition["status"] == status && condition["message"].as_str()?.contains(text)).then_some(())
    });
}

fn annotation(node: &Value, name: &str) -> Option<String> {
    Some(node["metadata"]["annotations"][format!("k8s.ovn.org/{name}")].as_str()?.to_owned())
}

#[test]
fn the_agent_annotates_its_node_and_a_restart_writes_nothing() {
    let site = Site::start("agent-annotates", 1, Family::Dual);
    site.agents(&[]);
    wait_condition(&site, 1, "True", "can be connected");
    let before = node(&site, 1);
    assert_eq!(annotation(&before, "node-chassis-id").unwrap(), "n1");
    let gateway: Value = serde_json::from_str(&annotation(&before, "l3-gateway-config").unwrap()).unwrap();
    let gateway = &gateway["default"];
    assert_eq!((&gateway["mode"], &gateway["bridge-id"]), (&json!("shared"), &json!("br-ex")));
    assert_eq!(gateway["ip-addresses"], json!(["10.99.0.11/24", "fd99::b/64"]));
    assert_eq!(gateway["next-hops"], json!(["10.99.0.254", "fd99::fe"]));
    let hosts: Vec<String> = serde_json::from_str(&annotation(&before, "host-cidrs").unwrap()).unwrap();
    assert!(hosts.contains(&"10.99.0.11/24".to_owned()), "{hosts:?}");
    until("the CNI configuration is updated", || site.path(1, CONFIGURATION).exists().then_some(()));

    let keys =
        || site.machine(1).run(&["ovs-vsctl", "--timeout=30", "get", "Open_vSwitch", ".", "external_ids"]).unwrap();
    let written = keys();
    for key in
        ["ovn-ofctrl-wait-before-clear=\"8000\"", "ovn-bridge-mappings=\"physnet:br-ex\"", "ovn-encap-type=geneve"]
    {
        assert!(written.contains(key), "{key} is not in {written}");
    }
    // Other clients write the Node too, and a slow start is reported: one of three restarts must write nothing.
    let mut writes = 0;
    while {
        let before = node(&site, 1);
        site.cluster.lab.terminate("agent-n1", TIMEOUT).unwrap();
        assert!(site.path(1, CONFIGURATION).exists(), "the CNI configuration stays across restarts");
        site.cluster.lab.restart("agent-n1").unwrap();
        until("the agent is ready", || request(&site, 1, "STATUS", &json!({})).ok());
        let after = node(&site, 1);
        before["metadata"]["resourceVersion"] != after["metadata"]["resourceVersion"]
    } {
        writes += 1;
        assert!(writes < 3, "each restart writes the Node");
        wait_condition(&site, 1, "True", "can be connected");
    }
    assert_eq!(keys(), written);

    // Changed settings are restored; settings of others are kept.
    let other = "external_ids:ovn-bridge-mappings=\"other:br-x,physnet:wrong\"";
    site.machine(1).run(&["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", other, "external_ids:mine=1"]).unwrap();
    until("the mapping is restored", || {
        let keys = keys();
        (keys.contains("other:br-x,physnet:br-ex") && keys.contains("mine=\"1\"")).then_some(())
    });
    site.cluster.lab.kubectl(&["annotate", "node", "n1", "k8s.ovn.org/node-chassis-id-"]).unwrap();
    until("the chassis annotation is restored", || annotation(&node(&site, 1), "node-chassis-id"));
}

#[test]
fn a_broken_node_is_reported_in_condition_event_and_status() {
    let site = Site::start("agent-why", 1, Family::V4);
    site.agents(&[]);
    wait_condition(&site, 1, "True", "can be connected");
    for (component, text) in [("n1-ovn-controller", "ovn-controller"), ("n1-ovsdb-server", "start Open vSwitch")] {
        site.cluster.lab.kill(component).unwrap();
        // Without its database Open vSwitch's userspace datapath stalls: the API is unreachable as well.
        if component != "n1-ovsdb-server" {
            wait_condition(&site, 1, "False", text);
            site.cluster.event_in("default", "n1", "NodeNetworkNotReady", &[text]);
        }
        until("STATUS fails", || {
            let error = request(&site, 1, "STATUS", &json!({})).err()?;
            (error["code"] == 50 && error.to_string().contains(text)).then_some(())
        });
        until("the CNI configuration is updated", || (!site.path(1, CONFIGURATION).exists()).then_some(()));
        site.cluster.lab.restart(component).unwrap();
        wait_condition(&site, 1, "True", "can be connected");
        until("the CNI configuration is updated", || site.path(1, CONFIGURATION).exists().then_some(()));
    }
}

/// Paths of all protocols from a sandbox on n1 to one on n2; the nodes' own addresses are the reference.
fn paths(site: &Site, from: (&Sandbox, IpAddr), to: (&Sandbox, IpAddr)) -> Plan {
    let network = |sandbox: &Sandbox| Network { name: sandbox.name.clone(), file: sandbox.network(), own: true };
    let node = |number: u32| {
        let file = PathBuf::from(format!("/proc/{}/ns/net", site.machine(number).init().pid));
        (Network { name: format!("n{number}"), file, own: false }, IpAddr::from([10, 99, 0, 10 + number as u8]))
    };
    let mut paths = Vec::new();
    let mut add = |from: &Network, own: IpAddr, to: SocketAddr, reference, protocols: &[Protocol]| {
        paths.extend(protocols.iter().map(|protocol| PathSpec {
            route: if reference { "host → host" } else { "pod → pod" }.into(),
            protocol: *protocol,
            from: from.clone(),
            to,
            server: Server::Echo,
            sources: vec![format!("{own}/32").parse().unwrap()],
            reference,
        }));
    };
    let (of_pod, of_node) = (SocketAddr::new(to.1, 9000), SocketAddr::new(node(2).1, 9000));
    let all = [Protocol::TcpEstablished, Protocol::TcpNew, Protocol::Udp, Protocol::Icmp];
    add(&network(from.0), from.1, of_pod, false, &all);
    add(&node(1).0, node(1).1, of_node, true, &[Protocol::Udp, Protocol::Icmp]);
    Plan { paths, servers: vec![(network(to.0), of_pod), (node(2).0, of_node)], rate: 400 }
}

/// Losses, resets, duplicates and wrong sources do not exceed those of a control window of the same length.
fn check_no_loss(prober: &Prober, what: &str, work: impl Fn()) {
    let rounds = Rounds { title: what.to_owned(), rounds: 2, window: Duration::from_secs(5) };
    let (worse, report) = probe::run_confirmed(prober, &rounds, |_| {
        work();
        Ok(())
    })
    .unwrap();
    println!("{}", report.table(false));
    assert_eq!(worse, Vec::<String>::new(), "{what}:\n{}", report.table(false));
}

/// Lesson 13: a restart of ovn-controller wiped all flows for 10 s.
#[test]
fn no_packet_is_lost_while_the_agent_or_ovn_controller_restarts() {
    let site = Site::start("agent-restart", 2, Family::V4);
    site.agents(&[]);
    for number in 1..=2 {
        wait_condition(&site, number, "True", "can be connected");
    }
    let (one, two) = (site.sandbox("one", 1), site.sandbox("two", 2));
    let own = addresses(&one.add())[0];
    let address = addresses(&two.add())[0];
    one.reaches(address);
    let prober = Prober::start(&paths(&site, (&one, own), (&two, address))).unwrap();
    let lab = &site.cluster.lab;
    check_no_loss(&prober, "the agents restart", || {
        for number in 1..=2 {
            let agent = format!("agent-n{number}");
            lab.kill(&agent).unwrap();
            lab.restart(&agent).unwrap();
            until("the agent is ready", || request(&site, number, "STATUS", &json!({})).ok());
        }
    });
    check_no_loss(&prober, "ovn-controllers restart", || {
        for number in 1..=2 {
            let controller = format!("n{number}-ovn-controller");
            lab.kill(&controller).unwrap();
            lab.restart(&controller).unwrap();
            let words = ["ovn-appctl", "-t", "ovn-controller", "connection-status"];
            until("ovn-controller is connected", || {
                site.machine(number).run(&words).ok().filter(|said| said.trim() == "connected")
            });
        }
        // Both have installed all flows.
        lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    });
    // The same measurement detects wiped flows.
    let rounds = Rounds { title: "flows are wiped".into(), rounds: 1, window: Duration::from_secs(5) };
    let wiped = probe::run(&prober, &rounds, &Progress::silent(), |_| {
        site.machine(2).run(&["ovs-ofctl", "del-flows", "br-int"])?;
        std::thread::sleep(Duration::from_secs(1));
        lab.kill("n2-ovn-controller")?;
        lab.restart("n2-ovn-controller")
    });
    assert!(wiped.unwrap().excess(Incident::Lost) > 10, "wiped flows are detected");
}
