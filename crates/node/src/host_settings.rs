//! ovn-controller's settings, which are keys of `Open_vSwitch.external_ids`: address of the southbound database, tunnel address,
//! bridge mappings. Keys of other owners are left alone, and so are their parts of `ovn-bridge-mappings`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ovsdb::client::Remote;
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;
use remotes::DatabaseAccess;

use crate::options::Options;
use crate::switch::rows::{keys, strings};

/// Network name of the localnet port in the northbound database.
const PHYSICAL_NETWORK: &str = "physnet";
const MAPPINGS: &str = "ovn-bridge-mappings";
/// Name of the chassis. It stays at cleanup, because the controller may know it.
const SYSTEM_ID: &str = "system-id";
const REMOTE: &str = "ovn-remote";
const PROBE: &str = "ovn-remote-probe-interval";
/// Keys that cleanup removes.
const OWN_KEYS: [&str; 9] = [
    REMOTE,
    "ovn-encap-ip",
    "ovn-encap-type",
    PROBE,
    "ovn-bridge-remote-probe-interval",
    "ovn-ofctrl-wait-before-clear",
    "ovn-enable-lflow-cache",
    "ovn-monitor-all",
    "ovn-bridge-datapath-type",
];

/// What the settings depend on, besides the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inputs {
    /// From the gateway; none until it is known.
    pub(crate) facts: Option<HostFacts>,
    /// Number of nodes in the cluster; none until known.
    pub(crate) nodes: Option<usize>,
    /// Servers of the southbound database that the API names; none until it has named one.
    pub(crate) southbound: Option<Vec<Remote>>,
}

/// Inputs from the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostFacts {
    /// Tunnel address of this node.
    pub(crate) encapsulation: IpAddr,
    pub(crate) bridge: Option<String>,
    /// The bridge has `datapath_type=netdev`.
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

/// Addresses of the southbound database: those that the API names. Until it has answered, the list that an earlier agent
/// wrote is newer than the configured one, unless the connection method was changed.
fn southbound(configured: &DatabaseAccess, named: Option<&[Remote]>, current: &BTreeMap<String, String>) -> String {
    let text = |remotes: &[Remote]| remotes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let method = |remote: &Remote| std::mem::discriminant(remote);
    let written = || {
        let remotes = Remote::parse_list(current.get(REMOTE)?).ok()?;
        let same_method = remotes.iter().all(|remote| configured.remotes.iter().any(|it| method(it) == method(remote)));
        (configured.service.is_some() && same_method).then_some(remotes)
    };
    let wanted = match named.filter(|named| !named.is_empty()) {
        Some(named) => named.to_vec(),
        None => written().unwrap_or_else(|| configured.remotes.clone()),
    };
    // ovn-controller connects again whenever the value changes, and tries the servers in random order: another order of the
    // same servers stays (`southbound_reconnect` writes one).
    let set = |list: &str| list.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    let wanted = text(&wanted);
    current.get(REMOTE).filter(|written| set(written) == set(&wanted)).cloned().unwrap_or(wanted)
}

/// Desired values of the keys, given the current ones.
fn desired(options: &Options, inputs: &Inputs, current: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    let settings = &options.ovn_controller;
    let mut desired: BTreeMap<&'static str, String> = [
        ("hostname", options.node.clone()),
        (REMOTE, southbound(&options.southbound, inputs.southbound.as_deref(), current)),
        ("ovn-encap-type", "geneve".to_owned()),
        (PROBE, probe(options, inputs.nodes, current)),
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
    let Some(facts) = &inputs.facts else { return desired };
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
pub(crate) fn plan(options: &Options, inputs: &Inputs, snapshot: &Snapshot) -> Option<Transaction> {
    let (root, current) = current(snapshot)?;
    let desired = desired(options, inputs, &current);
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

/// `system-id` of this host; none if it is not set.
pub(crate) fn chassis(snapshot: &Snapshot) -> Option<String> {
    current(snapshot)?.1.remove(SYSTEM_ID).filter(|name| !name.is_empty())
}

/// The transaction that gives ovn-controller the same servers of the southbound database in another order.
pub(crate) fn plan_reorder(snapshot: &Snapshot) -> Option<Transaction> {
    let (root, current) = current(snapshot)?;
    let mut transaction = Transaction::new();
    transaction.set_key("Open_vSwitch", root, "external_ids", REMOTE, &reordered(current.get(REMOTE)?));
    Some(transaction)
}

/// The same servers, as another string. A single one is repeated.
fn reordered(remotes: &str) -> String {
    match remotes.split_once(',') {
        None => format!("{remotes},{remotes}"),
        Some((first, rest)) if first == rest => first.to_owned(),
        Some((first, rest)) => format!("{rest},{first}"),
    }
}

/// Addresses of the southbound database that ovn-controller uses.
pub(crate) fn remote(snapshot: &Snapshot) -> Option<String> {
    current(snapshot)?.1.remove(REMOTE)
}

fn current(snapshot: &Snapshot) -> Option<(ovsdb::uuid::Uuid, BTreeMap<String, String>)> {
    let row = snapshot.table("Open_vSwitch")?.iter().next()?;
    Some((row.uuid, strings(&row, "external_ids")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_written_servers_count_until_the_api_has_answered() {
        let list = |text: &str| Remote::parse_list(text).unwrap();
        let access = |service: &str| DatabaseAccess {
            remotes: list("ssl:192.0.2.1:6642"),
            tls: None,
            service: remotes::Service::parse(service, "south").unwrap(),
        };
        let find = |service: &str, named: Option<&str>, written: &str| {
            let current = [(REMOTE.to_owned(), written.to_owned())].into();
            southbound(&access(service), named.map(list).as_deref(), &current)
        };
        let (one, two) = ("ssl:192.0.2.1:6642", "ssl:192.0.2.2:6642,ssl:192.0.2.3:6642");
        // The API has answered.
        assert_eq!(find("db", Some(two), one), two);
        assert_eq!(find("db", Some(one), two), one);
        // It has not: a node that boots meanwhile keeps what it had.
        assert_eq!(find("db", None, two), two);
        assert_eq!(find("db", None, ""), one);
        assert_eq!(find("db", None, "tcp:192.0.2.2:6642"), one, "the databases use TLS by now");
        // Without a Service the configured servers count.
        assert_eq!(find("", None, two), one);
        assert_eq!(southbound(&access("db"), Some(&[]), &BTreeMap::new()), one, "never empty");
    }

    #[test]
    fn another_order_of_the_same_servers_stays() {
        let list = |text: &str| Remote::parse_list(text).unwrap();
        let (two, three) =
            ("ssl:192.0.2.2:6642,ssl:192.0.2.3:6642", "ssl:192.0.2.1:6642,ssl:192.0.2.2:6642,ssl:192.0.2.3:6642");
        for servers in [three, two, "ssl:192.0.2.1:6642"] {
            let access = DatabaseAccess { remotes: list(servers), tls: None, service: None };
            let mut written = servers.to_owned();
            for _ in 0..4 {
                let next = reordered(&written);
                assert_ne!(next, written);
                let current = [(REMOTE.to_owned(), next.clone())].into();
                assert_eq!(southbound(&access, Some(&list(servers)), &current), next);
                assert_eq!(southbound(&access, None, &current), next);
                written = next;
            }
            let current = [(REMOTE.to_owned(), written)].into();
            assert_eq!(southbound(&access, Some(&list("ssl:192.0.2.9:6642")), &current), "ssl:192.0.2.9:6642");
        }
    }

    #[test]
    fn mappings_of_other_owners_stay() {
        assert_eq!(with_mapping("", Some("br-ex")), "physnet:br-ex");
        assert_eq!(with_mapping("other:br-a, physnet:old", Some("br-ex")), "other:br-a,physnet:br-ex");
        assert_eq!(with_mapping("physnet:br-ex", Some("br-ex")), "physnet:br-ex");
        assert_eq!(with_mapping("physnet:br-ex,other:br-a", None), "other:br-a");
        assert_eq!(with_mapping("physnet:br-ex", None), "");
    }
}
