//! Nodes behind two relays: they keep their flows and get changes while a relay hangs, dies, or loses its upstream.

use std::time::Duration;

use lab::{Database, Databases};

use crate::cluster::{until, until_within};
use crate::site::{Relay, Site};

const NODES: u32 = 2;
const RELAYS: [Relay; 2] = [Relay(1), Relay(2)];
/// An ovn-controller leaves a silent relay after two probes of 2 s; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

/// Connects all nodes to both relays.
fn use_relays(site: &Site) {
    let remotes = RELAYS.map(Relay::remote).join(",");
    for node in 1..=NODES {
        let set = format!("external_ids:ovn-remote=\"{remotes}\"");
        let probe = "external_ids:ovn-remote-probe-interval=2000";
        let node = site.lab.node(node).unwrap();
        node.run(&["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", &set, probe]).unwrap();
    }
    until("every node is a client of a relay", || {
        // Each manager is a client of its own relay.
        let nodes: u32 = RELAYS.iter().map(|relay| site.sessions(*relay).saturating_sub(1)).sum();
        (nodes == NODES).then_some(())
    });
}

/// Binds a new port on a node; returns when northd and the node have done it, through whatever relay the node uses.
fn bind(site: &Site, node: u32, port: &str) {
    let id = format!("external_ids:iface-id={port}");
    let words = ["--no-wait", "add-port", "br-int", port, "--", "set", "Interface", port, "type=internal", &id];
    site.lab.node(node).unwrap().run(&[&["ovs-vsctl"], words.as_slice()].concat()).unwrap();
    site.lab.nbctl(&["lsp-add", "ls", port]).unwrap();
    until_within(LIMIT, &format!("{port} is up"), || {
        let up = site.lab.nbctl(&["get", "Logical_Switch_Port", port, "up"]).ok()?;
        (up.trim() == "true").then_some(())
    });
}

/// Flows of a node's br-int.
fn flows(site: &Site, node: u32) -> usize {
    site.lab.node(node).unwrap().run(&["ovs-ofctl", "dump-flows", "br-int"]).unwrap().lines().count()
}

#[test]
fn nodes_keep_their_flows_and_get_changes_while_relays_fail() {
    let site = Site::start("relays", NODES, Databases::Raft);
    for relay in RELAYS {
        site.relay(relay, &site.southbound(), &[]);
        site.await_ready(relay);
    }
    site.lab.nbctl(&["ls-add", "ls"]).unwrap();
    use_relays(&site);
    (1..=NODES).for_each(|node| bind(&site, node, &format!("first-{node}")));
    let before: Vec<usize> = (1..=NODES).map(|node| flows(&site, node)).collect();
    let keep = |after: &str| {
        for node in 1..=NODES {
            let now = flows(&site, node);
            assert!(now >= before[node as usize - 1], "n{node} has {now} flows {after}, had {before:?}");
        }
    };

    // One relay hangs: its nodes go to the other one, and its manager replaces the server.
    let hung = site.signal(RELAYS[0], "STOP");
    keep("with a hung relay");
    (1..=NODES).for_each(|node| bind(&site, node, &format!("hung-{node}")));
    until_within(LIMIT, "the hung server is replaced", || (site.server(RELAYS[0]) != hung).then_some(()));
    site.await_ready(RELAYS[0]);
    assert!(site.restarts(RELAYS[0]) > 0);
    keep("after a hung relay");

    // Both die at once: the nodes work with their flows until a relay is back.
    RELAYS.iter().for_each(|relay| drop(site.signal(*relay, "KILL")));
    keep("without relays");
    (1..=NODES).for_each(|node| bind(&site, node, &format!("killed-{node}")));
    keep("after both relays died");

    // The upstream of a relay dies: the relay finds another member.
    let leader = site.lab.raft_leader(Database::Southbound).unwrap();
    site.lab.kill(&leader).unwrap();
    (1..=NODES).for_each(|node| bind(&site, node, &format!("leader-{node}")));
    RELAYS.iter().for_each(|relay| site.await_ready(*relay));
    keep("after the leader died");
}
