//! What ovn-controller reads in the host's Open vSwitch database: where the southbound database is, our end of the tunnels,
//! which bridge leads outside. Keys of others are left alone, and of a shared key (`ovn-bridge-mappings`) the parts of others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;

use crate::options::Options;
use crate::switch::rows::{keys, strings};

/// The physical network's name in the northbound database.
const PHYSICAL_NETWORK: &str = "physnet";
const MAPPINGS: &str = "ovn-bridge-mappings";
/// Who the chassis is: it outlives us, for the controller may know it.
const SYSTEM_ID: &str = "system-id";
const PROBE: &str = "ovn-remote-probe-interval";
/// What we may have written and take away again; the chassis keeps its name.
const OURS: [&str; 9] = [
    "ovn-remote",
    "ovn-encap-ip",
    "ovn-encap-type",
    PROBE,
    "ovn-bridge-remote-probe-interval",
    "ovn-ofctrl-wait-before-clear",
    "ovn-enable-lflow-cache",
    "ovn-monitor-all",
    "ovn-bridge-datapath-type",
];

/// What is known of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Our end of the tunnels.
    pub encapsulation: IpAddr,
    /// The bridge that leads to the outside; none if there is none.
    pub bridge: Option<String>,
    /// Whether that bridge is forwarded in ovs-vswitchd rather than in the kernel.
    pub userspace: bool,
}

/// ovn-controller's inactivity probe, in milliseconds: what the administrator says, else by the number of nodes. While
/// nobody has counted them, what stands there stays.
fn probe(options: &Options, nodes: Option<usize>, current: &BTreeMap<String, String>) -> String {
    let counted = |nodes| topology::pacing::southbound_probe(nodes).as_millis().to_string();
    match (options.ovn_controller.inactivity_probe, nodes) {
        (Some(milliseconds), _) => milliseconds.to_string(),
        (None, Some(nodes)) => counted(nodes),
        (None, None) => current.get(PROBE).cloned().unwrap_or_else(|| counted(usize::MAX)),
    }
}

/// What the keys shall be, given what stands there.
fn wanted(
    options: &Options,
    facts: Option<&HostFacts>,
    nodes: Option<usize>,
    current: &BTreeMap<String, String>,
) -> BTreeMap<&'static str, String> {
    let told = &options.ovn_controller;
    let mut wanted: BTreeMap<&'static str, String> = [
        ("hostname", options.node.clone()),
        ("ovn-remote", told.southbound.clone()),
        ("ovn-encap-type", "geneve".to_owned()),
        (PROBE, probe(options, nodes, current)),
        // The switch is on this host: it is there, or the connection is not.
        ("ovn-bridge-remote-probe-interval", "0".to_owned()),
        ("ovn-ofctrl-wait-before-clear", told.wait_before_clear.to_string()),
        ("ovn-enable-lflow-cache", "true".to_owned()),
        ("ovn-monitor-all", told.monitor_all.to_string()),
    ]
    .into();
    if current.get(SYSTEM_ID).is_none_or(String::is_empty) {
        wanted.insert(SYSTEM_ID, options.node.clone());
    }
    // Whatever is wrong with the gateway, ovn-controller knows where its database is.
    let Some(facts) = facts else { return wanted };
    wanted.insert("ovn-encap-ip", facts.encapsulation.to_string());
    if facts.userspace {
        wanted.insert("ovn-bridge-datapath-type", "netdev".to_owned());
    }
    if let Some(bridge) = &facts.bridge {
        let current = current.get(MAPPINGS).map_or("", String::as_str);
        wanted.insert(MAPPINGS, with_mapping(current, Some(bridge)));
    }
    wanted
}

/// The mappings with ours in them, or without it.
fn with_mapping(current: &str, bridge: Option<&str>) -> String {
    let ours = bridge.map(|bridge| format!("{PHYSICAL_NETWORK}:{bridge}"));
    let is_ours = |mapping: &str| mapping.split_once(':').is_some_and(|(network, _)| network == PHYSICAL_NETWORK);
    let others = current.split(',').map(str::trim).filter(|mapping| !mapping.is_empty() && !is_ours(mapping));
    let mut mappings: Vec<&str> = others.collect();
    mappings.extend(ours.as_deref());
    mappings.join(",")
}

/// The transaction that makes the keys what they shall be; nothing if they are, or the switch is not seen yet.
pub(crate) fn plan(
    options: &Options,
    facts: Option<&HostFacts>,
    nodes: Option<usize>,
    snapshot: &Snapshot,
) -> Option<Transaction> {
    let (root, current) = current(snapshot)?;
    let wanted = wanted(options, facts, nodes, &current);
    let mut transaction = Transaction::new();
    for (key, value) in &wanted {
        if current.get(*key) != Some(value) {
            transaction.set_key("Open_vSwitch", root, "external_ids", key, value);
        }
    }
    (!transaction.is_empty()).then_some(transaction)
}

/// The transaction that takes our keys away; nothing if there are none.
pub(crate) fn plan_removal(snapshot: &Snapshot) -> Option<Transaction> {
    let (root, current) = current(snapshot)?;
    let mut gone: Vec<&str> = OURS.into_iter().filter(|key| current.contains_key(*key)).collect();
    let mut transaction = Transaction::new();
    match current.get(MAPPINGS).map(|mappings| (mappings, with_mapping(mappings, None))) {
        Some((_, left)) if left.is_empty() => gone.push(MAPPINGS),
        Some((before, left)) if *before != left => {
            transaction.set_key("Open_vSwitch", root, "external_ids", MAPPINGS, &left);
        }
        _ => {}
    }
    if !gone.is_empty() {
        let mutations = vec![Mutation::new("external_ids", Mutator::Delete, keys(&gone))];
        transaction.mutate("Open_vSwitch", vec![Condition::uuid(root)], mutations);
    }
    (!transaction.is_empty()).then_some(transaction)
}

/// The chassis' name.
pub(crate) fn chassis(snapshot: &Snapshot) -> Option<String> {
    current(snapshot)?.1.remove(SYSTEM_ID).filter(|name| !name.is_empty())
}

fn current(snapshot: &Snapshot) -> Option<(ovsdb::uuid::Uuid, BTreeMap<String, String>)> {
    let row = snapshot.table("Open_vSwitch")?.iter().next()?;
    Some((row.uuid, strings(&row, "external_ids")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_others_stay() {
        assert_eq!(with_mapping("", Some("br-ex")), "physnet:br-ex");
        assert_eq!(with_mapping("other:br-a, physnet:old", Some("br-ex")), "other:br-a,physnet:br-ex");
        assert_eq!(with_mapping("physnet:br-ex", Some("br-ex")), "physnet:br-ex");
        assert_eq!(with_mapping("physnet:br-ex,other:br-a", None), "other:br-a");
        assert_eq!(with_mapping("physnet:br-ex", None), "");
    }
}
