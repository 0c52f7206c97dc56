//! The rows of a pod's port, and how they are found.

use std::collections::BTreeMap;

use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::{IndexKey, RowView, Snapshot};
use ovsdb::text::Text;
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use crate::options::INTEGRATION_BRIDGE;

/// The logical port's name.
const LOGICAL: &str = "iface-id";
/// The pod's sandbox: by this key a port is known to be of a pod.
pub(crate) const SANDBOX: &str = "sandbox";
/// The interface in the sandbox.
const INSIDE: &str = "k8s.ovn.org/interface";
/// The sandbox's network namespace.
const NAMESPACE: &str = "k8s.ovn.org/netns";

/// The pod's MAC.
const MAC: &str = "attached_mac";
/// The pod's addresses, with commas.
const ADDRESSES: &str = "ip_addresses";

/// A pod's port, as it shall be.
#[derive(Debug, Clone)]
pub struct PodPort {
    /// The identity of its Port row.
    pub port_row: Uuid,
    /// The identity of its Interface row.
    pub interface_row: Uuid,
    /// The device.
    pub name: String,
    /// The logical port.
    pub logical: String,
    /// The pod's identity, which the logical port asks for.
    pub uid: String,
    /// The pod's MAC.
    pub mac: String,
    /// The pod's addresses, with commas.
    pub addresses: String,
    /// The pod's sandbox.
    pub sandbox: String,
    /// The interface in it.
    pub inside: String,
    /// The path of its network namespace.
    pub namespace: String,
}

/// A pod's port that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPort {
    /// The identity of its Port row.
    pub port_row: Uuid,
    /// The device.
    pub name: String,
    /// The logical port.
    pub logical: String,
    /// The pod's identity.
    pub uid: String,
    /// The pod's sandbox.
    pub sandbox: String,
    /// The interface in it; none if another implementation made it.
    pub inside: Option<String>,
    /// The path of its network namespace; none if another implementation made it.
    pub namespace: Option<String>,
    /// The pod's MAC.
    pub mac: Option<String>,
    /// The pod's addresses, with commas.
    pub addresses: Option<String>,
    /// Whether ovn-controller has installed it.
    pub installed: bool,
    /// What ovs-vswitchd says against it.
    pub error: Option<String>,
}

/// A column of strings by strings.
pub(crate) fn strings(row: &RowView<'_>, column: &str) -> BTreeMap<String, String> {
    let text = |atom: &Atom| match atom {
        Atom::String(text) => Some(text.to_string()),
        _ => None,
    };
    let datum = row.get(column);
    let pairs = datum.as_deref().map(Datum::pairs).unwrap_or_default();
    pairs.iter().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
}

/// Keys of a map, to delete them.
pub(crate) fn keys(names: &[&str]) -> Datum {
    Datum::set(names.iter().map(|name| Atom::String(Text::new(name))))
}

/// A key of a row's external_ids.
pub(crate) fn external_id(row: &RowView<'_>, key: &str) -> Option<String> {
    row.get("external_ids")?.get_str(key)
}

/// The integration bridge.
pub(crate) fn bridge(snapshot: &Snapshot) -> Option<RowView<'_>> {
    by_name(snapshot, "Bridge", INTEGRATION_BRIDGE)
}

fn by_name<'a>(snapshot: &'a Snapshot, table: &str, name: &str) -> Option<RowView<'a>> {
    let table = snapshot.table(table)?;
    let key = IndexKey::columns(table.schema(), &["name"])?;
    let found = table.find(&key, &[Datum::One(Atom::String(name.into()))]).next().map(|row| row.uuid)?;
    table.get(found)
}

/// Interfaces with this key in their external_ids.
fn by_external_id<'a>(snapshot: &'a Snapshot, key: &str, value: &str) -> Vec<RowView<'a>> {
    let Some(table) = snapshot.table("Interface") else { return Vec::new() };
    let Some(index) = IndexKey::map_key(table.schema(), "external_ids", key) else { return Vec::new() };
    let found: Vec<Uuid> = table.find(&index, &[Datum::One(Atom::String(value.into()))]).map(|row| row.uuid).collect();
    found.into_iter().filter_map(|uuid| table.get(uuid)).collect()
}

/// The Port row of an interface: both have the name of the device.
fn port_row(snapshot: &Snapshot, interface: &RowView<'_>) -> Option<Uuid> {
    by_name(snapshot, "Port", &interface.text("name")?).map(|row| row.uuid)
}

/// Ports of older sandboxes of the same pod, and what an earlier try of this one left.
pub(crate) fn predecessors(snapshot: &Snapshot, port: &PodPort) -> Vec<Uuid> {
    let older = by_external_id(snapshot, LOGICAL, &port.logical);
    let mut rows: Vec<Uuid> = older.iter().filter_map(|row| port_row(snapshot, row)).collect();
    rows.extend(by_name(snapshot, "Port", &port.name).map(|row| row.uuid));
    rows.retain(|row| *row != port.port_row);
    rows
}

/// The ports of a sandbox's interface.
pub(crate) fn of_sandbox(snapshot: &Snapshot, sandbox: &str, interface: &str) -> Vec<Uuid> {
    let rows = by_external_id(snapshot, SANDBOX, sandbox);
    let ours = rows.iter().filter(|row| external_id(row, INSIDE).is_none_or(|inside| inside == interface));
    ours.filter_map(|row| port_row(snapshot, row)).collect()
}

/// The ports of pods, those of one sandbox or all.
pub fn pod_ports(snapshot: &Snapshot, sandbox: Option<&str>) -> Vec<FoundPort> {
    let Some(table) = snapshot.table("Interface") else { return Vec::new() };
    let found = |row: RowView<'_>| {
        Some(FoundPort {
            port_row: port_row(snapshot, &row)?,
            name: row.text("name")?,
            sandbox: external_id(&row, SANDBOX)?,
            logical: external_id(&row, LOGICAL).unwrap_or_default(),
            uid: external_id(&row, "iface-id-ver").unwrap_or_default(),
            inside: external_id(&row, INSIDE),
            namespace: external_id(&row, NAMESPACE),
            mac: external_id(&row, MAC),
            addresses: external_id(&row, ADDRESSES),
            installed: external_id(&row, "ovn-installed").as_deref() == Some("true"),
            error: row.text("error").filter(|error| !error.is_empty()),
        })
    };
    match sandbox {
        Some(sandbox) => by_external_id(snapshot, SANDBOX, sandbox).into_iter().filter_map(found).collect(),
        None => table.iter().filter_map(found).collect(),
    }
}

/// Makes the rows; they live by the bridge's reference.
pub(crate) fn insert(transaction: &mut Transaction, port: &PodPort) {
    transaction.owned_by(port.logical.as_str());
    let ids = [
        (LOGICAL, port.logical.as_str()),
        ("iface-id-ver", &port.uid),
        (MAC, &port.mac),
        (ADDRESSES, &port.addresses),
        (SANDBOX, &port.sandbox),
        (INSIDE, &port.inside),
        (NAMESPACE, &port.namespace),
    ];
    let interface = Row::new().text("name", &port.name).map("external_ids", ids);
    transaction.insert_with_uuid("Interface", port.interface_row, interface);
    let row = Row::new().text("name", &port.name).set("interfaces", Datum::One(Atom::Uuid(port.interface_row)));
    transaction.insert_with_uuid("Port", port.port_row, row);
    transaction.owned_by_nobody();
}

/// Changes which ports the bridge has.
pub(crate) fn change_bridge(transaction: &mut Transaction, bridge: Uuid, removed: &[Uuid], added: &[Uuid]) {
    let set = |rows: &[Uuid]| Datum::set(rows.iter().copied().map(Atom::Uuid));
    let mut mutations = Vec::new();
    if !removed.is_empty() {
        mutations.push(Mutation::new("ports", Mutator::Delete, set(removed)));
    }
    if !added.is_empty() {
        mutations.push(Mutation::new("ports", Mutator::Insert, set(added)));
    }
    if !mutations.is_empty() {
        transaction.mutate("Bridge", vec![Condition::uuid(bridge)], mutations);
    }
}
