//! ovn-controller's settings, which are keys of `Open_vSwitch.external_ids`: address of the southbound database, tunnel address,
//! bridge mappings. Keys of other owners are left alone, and so are their parts of `ovn-bridge-mappings`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;

use crate::options::Options;
use crate::switch::rows::{keys, strings};

/// Network name of the localnet port in the northbound database.
const PHYSICAL_NETWORK: &str = "physnet";
const MAPPINGS: &str = "ovn-bridge-mappings";
/// Name of the chassis. It stays at cleanup, because the controller may know it.
const SYSTEM_ID: &str = "system-id";
const PROBE: &str = "ovn-remote-probe-interval";
/// Keys that cleanup removes.
const OWN_KEYS: [&str; 9] = [
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

/// Inputs from the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostFacts {
    /// Tunnel address of this node.
    pub(crate) encapsulation: IpAddr,
    /// The external bridge.
    pub(crate) bridge: Option<String>,
    /// Its datapath is in userspace.
    pub(crate) userspace: bool,
}

/// ovn-controller's inactivity probe in milliseconds: the setting, else by the number of nodes. Until that is known, the current
/// value stays.
fn probe(options: &Options, nodes: Option<usize>, current: &BTreeMap<String, String>) -> String {
    let counted = |nodes| topology::pacing::southbound_probe(nodes).as_millis().to_string();
    match (options.ovn_controller.inactivity_probe, nodes) {
        (Some(milliseconds), _) => milliseconds.to_string(),
        (None, Some(nodes)) => counted(nodes),
        (None, None) => current.get(PROBE).cloned().unwrap_or_else(|| counted(usize::MAX)),
    }
}

/// Desired values of the keys, given the current ones.
fn desired(
    options: &Options,
    facts: Option<&HostFacts>,
    nodes: Option<usize>,
    current: &BTreeMap<String, String>,
) -> BTreeMap<&'static str, String> {
    let settings = &options.ovn_controller;
    let mut desired: BTreeMap<&'static str, String> = [
        ("hostname", options.node.clone()),
        ("ovn-remote", settings.southbound.clone()),
        ("ovn-encap-type", "geneve".to_owned()),
        (PROBE, probe(options, nodes, current)),
        // The switch is local: if it dies, the connection ends.
        ("ovn-bridge-remote-probe-interval", "0".to_owned()),
        ("ovn-ofctrl-wait-before-clear", settings.wait_before_clear.to_string()),
        ("ovn-enable-lflow-cache", "true".to_owned()),
        ("ovn-monitor-all", settings.monitor_all.to_string()),
    ]
    .into();
    if current.get(SYSTEM_ID).is_none_or(String::is_empty) {
        desired.insert(SYSTEM_ID, options.node.clone());
    }
    // The keys above do not wait for the gateway.
    let Some(facts) = facts else { return desired };
    desired.insert("ovn-encap-ip", facts.encapsulation.to_string());
    if facts.userspace {
        desired.insert("ovn-bridge-datapath-type", "netdev".to_owned());
    }
    if let Some(bridge) = &facts.bridge {
        let current = current.get(MAPPINGS).map_or("", String::as_str);
        desired.insert(MAPPINGS, with_mapping(current, Some(bridge)));
    }
    desired
}

/// `ovn-bridge-mappings` with our entry replaced or removed.
fn with_mapping(current: &str, bridge: Option<&str>) -> String {
    let ours = bridge.map(|bridge| format!("{PHYSICAL_NETWORK}:{bridge}"));
    let is_ours = |mapping: &str| mapping.split_once(':').is_some_and(|(network, _)| network == PHYSICAL_NETWORK);
    let others = current.split(',').map(str::trim).filter(|mapping| !mapping.is_empty() && !is_ours(mapping));
    let mut mappings: Vec<&str> = others.collect();
    mappings.extend(ours.as_deref());
    mappings.join(",")
}

/// The transaction that writes what differs; None if nothing does, or the database is not read yet.
pub(crate) fn plan(
    options: &Options,
    facts: Option<&HostFacts>,
    nodes: Option<usize>,
    snapshot: &Snapshot,
) -> Option<Transaction> {
    let (root, current) = current(snapshot)?;
    let desired = desired(options, facts, nodes, &current);
    let mut transaction = Transaction::new();
    for (key, value) in &desired {
        if current.get(*key) != Some(value) {
            transaction.set_key("Open_vSwitch", root, "external_ids", key, value);
        }
    }
    (!transaction.is_empty()).then_some(transaction)
}

/// The transaction that removes the keys; None if there are none.
pub(crate) fn plan_removal(snapshot: &Snapshot) -> Option<Transaction> {
    let (root, current) = current(snapshot)?;
    let mut gone: Vec<&str> = OWN_KEYS.into_iter().filter(|key| current.contains_key(*key)).collect();
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

/// The name of the chassis.
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
    fn mappings_of_other_owners_stay() {
        assert_eq!(with_mapping("", Some("br-ex")), "physnet:br-ex");
        assert_eq!(with_mapping("other:br-a, physnet:old", Some("br-ex")), "other:br-a,physnet:br-ex");
        assert_eq!(with_mapping("physnet:br-ex", Some("br-ex")), "physnet:br-ex");
        assert_eq!(with_mapping("physnet:br-ex,other:br-a", None), "other:br-a");
        assert_eq!(with_mapping("physnet:br-ex", None), "");
    }
}
