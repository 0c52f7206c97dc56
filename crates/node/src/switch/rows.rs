//! Rows of pods' ports: reading, inserting, and changing br-int's list.

use std::collections::BTreeMap;

use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::{IndexKey, RowView, Snapshot};
use ovsdb::text::Text;
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use crate::options::INTEGRATION_BRIDGE;

/// Name of the logical port.
const IFACE_ID: &str = "iface-id";
/// ID of the pod's sandbox. A port with this key belongs to a pod.
pub(crate) const SANDBOX: &str = "sandbox";
/// Name of the interface in the sandbox, such as `eth0`.
const POD_INTERFACE: &str = "k8s.ovn.org/interface";
/// Path of the sandbox's network namespace.
const NETNS: &str = "k8s.ovn.org/netns";

/// MAC of the pod.
const MAC: &str = "attached_mac";
/// Addresses of the pod, separated by commas.
pub(crate) const ADDRESSES: &str = "ip_addresses";

/// A port as it is to be written.
#[derive(Debug, Clone)]
pub(crate) struct PodPort {
    /// UUID that the Port row is inserted with.
    pub(crate) port_row: Uuid,
    /// UUID that the Interface row is inserted with.
    pub(crate) interface_row: Uuid,
    /// Name of both rows and of the device on the host.
    pub(crate) name: String,
    pub(crate) logical_port: String,
    /// UID of the Pod object; the logical port requires the same.
    pub(crate) uid: String,
    pub(crate) mac: String,
    /// Separated by commas.
    pub(crate) addresses: String,
    pub(crate) sandbox: String,
    /// Such as `eth0`.
    pub(crate) pod_interface: String,
    /// Path of the sandbox's network namespace.
    pub(crate) netns: String,
}

/// Existing port of a pod. OVN-Kubernetes (Go) does not write the optional keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundPort {
    pub(crate) port_row: Uuid,
    pub(crate) name: String,
    pub(crate) logical_port: String,
    pub(crate) uid: String,
    pub(crate) sandbox: String,
    pub(crate) pod_interface: Option<String>,
    pub(crate) netns: Option<String>,
    pub(crate) mac: Option<String>,
    pub(crate) addresses: Option<String>,
    /// ovn-controller has installed its flows.
    pub(crate) installed: bool,
    /// Error of ovs-vswitchd.
    pub(crate) error: Option<String>,
}

/// A map column of strings.
pub(crate) fn strings(row: &RowView<'_>, column: &str) -> BTreeMap<String, String> {
    let text = |atom: &Atom| match atom {
        Atom::String(text) => Some(text.to_string()),
        _ => None,
    };
    let datum = row.get(column);
    let pairs = datum.as_deref().map(Datum::pairs).unwrap_or_default();
    pairs.iter().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
}

/// Keys of a map column, for a deletion.
pub(crate) fn keys(names: &[&str]) -> Datum {
    Datum::set(names.iter().map(|name| Atom::String(Text::new(name))))
}

/// The value of a key in `external_ids`.
pub(crate) fn external_id(row: &RowView<'_>, key: &str) -> Option<String> {
    row.get("external_ids")?.get_str(key)
}

/// The Bridge row of br-int.
pub(crate) fn bridge(snapshot: &Snapshot) -> Option<RowView<'_>> {
    by_name(snapshot, "Bridge", INTEGRATION_BRIDGE)
}

fn by_name<'a>(snapshot: &'a Snapshot, table: &str, name: &str) -> Option<RowView<'a>> {
    let table = snapshot.table(table)?;
    let key = IndexKey::columns(table.schema(), &["name"])?;
    let found = table.find(&key, &[Datum::One(Atom::String(name.into()))]).next().map(|row| row.uuid)?;
    table.get(found)
}

/// Interfaces with this value of a key in `external_ids`; the key must be indexed.
fn by_external_id<'a>(snapshot: &'a Snapshot, key: &str, value: &str) -> Vec<RowView<'a>> {
    let Some(table) = snapshot.table("Interface") else { return Vec::new() };
    let Some(index) = IndexKey::map_key(table.schema(), "external_ids", key) else { return Vec::new() };
    let found: Vec<Uuid> = table.find(&index, &[Datum::One(Atom::String(value.into()))]).map(|row| row.uuid).collect();
    found.into_iter().filter_map(|uuid| table.get(uuid)).collect()
}

/// The Port row of an interface; both are named like the device.
fn port_row(snapshot: &Snapshot, interface: &RowView<'_>) -> Option<Uuid> {
    by_name(snapshot, "Port", &interface.text("name")?).map(|row| row.uuid)
}

/// Ports that this one replaces: of older sandboxes of the pod, and of an earlier attempt for this sandbox.
pub(crate) fn replaced_ports(snapshot: &Snapshot, port: &PodPort) -> Vec<Uuid> {
    let older = by_external_id(snapshot, IFACE_ID, &port.logical_port);
    let mut rows: Vec<Uuid> = older.iter().filter_map(|row| port_row(snapshot, row)).collect();
    rows.extend(by_name(snapshot, "Port", &port.name).map(|row| row.uuid));
    rows.retain(|row| *row != port.port_row);
    rows
}

/// Ports of an attachment. Ports of OVN-Kubernetes (Go) do not name the interface.
pub(crate) fn sandbox_ports(snapshot: &Snapshot, sandbox: &str, interface: &str) -> Vec<Uuid> {
    let rows = by_external_id(snapshot, SANDBOX, sandbox);
    let ours = rows
        .iter()
        .filter(|row| external_id(row, POD_INTERFACE).is_none_or(|pod_interface| pod_interface == interface));
    ours.filter_map(|row| port_row(snapshot, row)).collect()
}

/// Ports of all pods, or of one sandbox.
pub(crate) fn pod_ports(snapshot: &Snapshot, sandbox: Option<&str>) -> Vec<FoundPort> {
    let Some(table) = snapshot.table("Interface") else { return Vec::new() };
    let found = |row: RowView<'_>| {
        Some(FoundPort {
            port_row: port_row(snapshot, &row)?,
            name: row.text("name")?,
            sandbox: external_id(&row, SANDBOX)?,
            logical_port: external_id(&row, IFACE_ID).unwrap_or_default(),
            uid: external_id(&row, "iface-id-ver").unwrap_or_default(),
            pod_interface: external_id(&row, POD_INTERFACE),
            netns: external_id(&row, NETNS),
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

/// Inserts the Port and Interface rows. OVSDB deletes them unless the bridge references the port.
pub(crate) fn insert(transaction: &mut Transaction, port: &PodPort) {
    transaction.owned_by(port.logical_port.as_str());
    let ids = [
        (IFACE_ID, port.logical_port.as_str()),
        ("iface-id-ver", &port.uid),
        (MAC, &port.mac),
        (ADDRESSES, &port.addresses),
        (SANDBOX, &port.sandbox),
        (POD_INTERFACE, &port.pod_interface),
        (NETNS, &port.netns),
    ];
    let interface = Row::new().text("name", &port.name).map("external_ids", ids);
    transaction.insert_with_uuid("Interface", port.interface_row, interface);
    let row = Row::new().text("name", &port.name).set("interfaces", Datum::One(Atom::Uuid(port.interface_row)));
    transaction.insert_with_uuid("Port", port.port_row, row);
    transaction.without_owner();
}

/// Removes ports from a bridge and adds others.
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
