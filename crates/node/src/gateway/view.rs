//! Bridges and their ports, as the switch's database has them.

use std::collections::BTreeMap;

use ovsdb::datum::Atom;
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::uuid::Uuid;

use crate::switch::rows::strings;

/// A Bridge row with its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BridgeView {
    pub(super) uuid: Uuid,
    pub(super) name: String,
    /// `datapath_type=netdev`: ovs-vswitchd forwards, not the kernel.
    pub(super) userspace: bool,
    pub(super) external_ids: BTreeMap<String, String>,
    pub(super) interfaces: Vec<InterfaceView>,
}

/// An Interface row and the Port row that references it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InterfaceView {
    pub(super) uuid: Uuid,
    pub(super) port: Uuid,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) number: Option<u32>,
    pub(super) error: Option<String>,
    pub(super) external_ids: BTreeMap<String, String>,
}

impl InterfaceView {
    /// True for a kernel device: the kernel also sees its frames if the datapath is in userspace.
    pub(super) fn is_kernel_device(&self) -> bool {
        matches!(self.kind.as_str(), "" | "system")
    }

    /// True for a device of the host, which may be the uplink.
    pub(super) fn is_device(&self) -> bool {
        matches!(self.kind.as_str(), "" | "system" | "dpdk" | "afxdp" | "afxdp-nonpmd")
    }
}

fn uuids(row: &RowView<'_>, column: &str) -> Vec<Uuid> {
    let datum = row.get(column);
    let atoms = datum.iter().flat_map(|datum| datum.atoms().collect::<Vec<_>>());
    atoms.filter_map(|atom| if let Atom::Uuid(uuid) = atom { Some(uuid) } else { None }).collect()
}

/// By name, with the interfaces of all ports.
pub(super) fn bridges(snapshot: &Snapshot) -> BTreeMap<String, BridgeView> {
    let (Some(bridges), Some(ports), Some(interfaces)) =
        (snapshot.table("Bridge"), snapshot.table("Port"), snapshot.table("Interface"))
    else {
        return BTreeMap::new();
    };
    let view = |row: RowView<'_>| {
        let name = row.text("name")?;
        let mut found = Vec::new();
        for port in uuids(&row, "ports").into_iter().filter_map(|uuid| ports.get(uuid)) {
            for interface in uuids(&port, "interfaces").into_iter().filter_map(|uuid| interfaces.get(uuid)) {
                found.push(InterfaceView {
                    uuid: interface.uuid,
                    port: port.uuid,
                    name: interface.text("name").unwrap_or_default(),
                    kind: interface.text("type").unwrap_or_default(),
                    number: interface.integer("ofport").and_then(|number| u32::try_from(number).ok()),
                    error: interface.text("error"),
                    external_ids: strings(&interface, "external_ids"),
                });
            }
        }
        found.sort_by(|one, two| one.name.cmp(&two.name));
        let userspace = row.text("datapath_type").is_some_and(|kind| kind == "netdev");
        let external_ids = strings(&row, "external_ids");
        Some((name.clone(), BridgeView { uuid: row.uuid, name, userspace, external_ids, interfaces: found }))
    };
    bridges.iter().filter_map(view).collect()
}

/// The `Open_vSwitch` row, and whether it requests the userspace datapath.
pub(super) fn root(snapshot: &Snapshot) -> Option<(Uuid, bool)> {
    let row = snapshot.table("Open_vSwitch")?.iter().next()?;
    let kind = strings(&row, "external_ids").remove("ovn-bridge-datapath-type");
    Some((row.uuid, kind.as_deref() == Some("netdev")))
}
