//! The record of quarantined items in the database: added in the transaction that removes their rows, and deleted in the
//! one that brings them back. Both follow from the transaction and the snapshot alone, not from whose turn it is: a port
//! is also removed with its switch, long before or after the pod's own turn.

use std::collections::{BTreeMap, BTreeSet};

use ovn_schema::TableRow;
use ovn_schema::northbound::{LogicalSwitch, LogicalSwitchPort};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator, RowValues};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::transaction::Transaction;

use super::seed::{self, QUARANTINE_PREFIX};
use crate::allocation::{Allocatable, KnownNode, Quarantine};
use crate::identity::{Owner, RowId};
use crate::ledger::{Entry, Touched};
use crate::plan::{owner_of, row};

/// The addresses, subnets and node IDs that a transaction removes from the database and adds to it.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    lost: BTreeMap<Allocatable, Former>,
    gained: BTreeSet<Allocatable>,
}

/// Who had an item, and where.
#[derive(Debug, Clone)]
struct Former {
    owner: String,
    node: String,
    /// Recorded with a node ID: the next leader has to remove this chassis.
    chassis: Option<String>,
}

impl Former {
    /// The value in the database: `owner@node[@chassis]`.
    fn text(&self) -> String {
        let Self { owner, node, chassis } = self;
        chassis.as_ref().map_or_else(|| format!("{owner}@{node}"), |chassis| format!("{owner}@{node}@{chassis}"))
    }
}

impl Record {
    /// What the touched rows lose and gain. `before` has the former entries of the owners whose turn it is.
    pub(super) fn of(touched: &Touched, before: &[(Owner, Entry)], snapshot: &Snapshot) -> Self {
        let mut record = Self::default();
        for (owner, entry) in before {
            for id in entry.rows() {
                match (owner, id.table) {
                    (Owner::Pod(_), LogicalSwitchPort::TABLE) => {
                        let switch =
                            entry.members().iter().find(|member| member.column.row.table == LogicalSwitch::TABLE);
                        let switch = switch.and_then(|member| row(snapshot, member.column.row));
                        let node = switch.and_then(|switch| switch.text("name")).unwrap_or_default();
                        record.port(*id, touched, &node, snapshot);
                    }
                    (Owner::Node(name), LogicalSwitch::TABLE) => record.switch(*id, touched, name, snapshot),
                    _ => {}
                }
            }
        }
        for (id, wanted) in &touched.rows {
            let Some((_, values)) = wanted else { continue };
            let stays =
                |column: &str| row(snapshot, *id).and_then(|view| view.get(column)).as_deref() == values.get(column);
            match id.table {
                LogicalSwitchPort::TABLE if !stays("addresses") => record.gained.extend(addresses_in(values)),
                LogicalSwitch::TABLE if !stays("other_config") || !stays("external_ids") => {
                    record.gained.extend(items(&seed::read_switch(|column| values.get(column))));
                }
                _ => {}
            }
        }
        let gained = &record.gained;
        record.lost.retain(|item, _| !gained.contains(item));
        record
    }

    /// Whether it removes something that is quarantined until the nodes acknowledge it.
    pub(super) fn loses(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Updates the quarantine: what was lost enters it, what was gained leaves it.
    pub(super) fn committed(&self, quarantine: &mut Quarantine) {
        for item in &self.gained {
            quarantine.regained(*item);
        }
        for (item, former) in &self.lost {
            quarantine.lost(*item, &former.owner, &former.node);
        }
    }

    /// A port is removed, or its addresses change.
    fn port(&mut self, id: RowId, touched: &Touched, node: &str, snapshot: &Snapshot) {
        let Some(view) = row(snapshot, id) else { return };
        let Some(port) = seed::read_port(view) else { return };
        let Some(wanted) = touched.rows.get(&id) else { return };
        let kept: BTreeSet<Allocatable> = wanted.iter().flat_map(|(_, values)| addresses_in(values)).collect();
        let lost = port.addresses.into_iter().map(Allocatable::Address).filter(|address| !kept.contains(address));
        let former = former_pod(view, node);
        self.lost.extend(lost.map(|address| (address, former.clone())));
    }

    /// A switch is removed, with all ports that are not kept elsewhere; or its subnets change.
    fn switch(&mut self, id: RowId, touched: &Touched, name: &str, snapshot: &Snapshot) {
        let Some(view) = row(snapshot, id) else { return };
        let Some(wanted) = touched.rows.get(&id) else { return };
        let held = seed::read_switch(|column| view.get(column));
        let kept = wanted.as_ref().map(|(_, values)| seed::read_switch(|column| values.get(column)));
        let kept: BTreeSet<Allocatable> = kept.iter().flat_map(items).collect();
        for item in items(&held).filter(|item| !kept.contains(item)) {
            let chassis = matches!(item, Allocatable::NodeId(_)).then(|| seed::chassis_of(name, snapshot)).flatten();
            self.lost.insert(item, Former { owner: name.to_owned(), node: name.to_owned(), chassis });
        }
        if wanted.is_some() {
            return;
        }
        for port in view.get("ports").iter().flat_map(|ports| ports.atoms()) {
            let Atom::Uuid(uuid) = port else { continue };
            let id = RowId { table: LogicalSwitchPort::TABLE, uuid };
            let Some(view) = row(snapshot, id).filter(|_| !touched.rows.contains_key(&id)) else { continue };
            if let (Some(Owner::Pod(_)), Some(port)) = (owner_of(view), seed::read_port(view)) {
                let former = former_pod(view, name);
                self.lost
                    .extend(port.addresses.into_iter().map(|address| (Allocatable::Address(address), former.clone())));
            }
        }
    }

    /// Adds the changes of the record to a transaction, and by how much it raises `nb_cfg`.
    pub(super) fn keep(
        &self,
        transaction: &mut Transaction,
        freed: &[Allocatable],
        raise: Option<i64>,
        snapshot: &Snapshot,
    ) {
        let Some(global) = seed::global(snapshot) else { return };
        let key = |item: &Allocatable| Atom::String(format!("{QUARANTINE_PREFIX}{item}").as_str().into());
        let held = global.get("external_ids");
        let listed = |key: &Atom| held.as_ref().and_then(|held| held.get(key));
        let mut pairs: Vec<(Atom, Atom)> =
            self.lost.iter().map(|(item, former)| (key(item), Atom::String(former.text().as_str().into()))).collect();
        pairs.retain(|(key, text)| listed(key) != Some(text));
        // OVSDB replaces the value of a key only if the key is deleted first.
        let gone = self.gained.iter().chain(freed.iter().filter(|item| !self.lost.contains_key(item))).map(key);
        let gone = gone.chain(pairs.iter().map(|(key, _)| key.clone()));
        let gone: BTreeSet<Atom> = gone.filter(|key| listed(key).is_some()).collect();
        let mut mutations = Vec::new();
        if !gone.is_empty() {
            mutations.push(Mutation::new("external_ids", Mutator::Delete, Datum::set(gone)));
        }
        if !pairs.is_empty() {
            mutations.push(Mutation::new("external_ids", Mutator::Insert, Datum::map(pairs)));
        }
        if let Some(raise) = raise {
            mutations.push(Mutation::new("nb_cfg", Mutator::Add, Atom::Integer(raise)));
        }
        if !mutations.is_empty() {
            transaction.without_owner();
            transaction.mutate("NB_Global", vec![Condition::uuid(global.uuid)], mutations);
        }
    }
}

fn former_pod(port: RowView<'_>, node: &str) -> Former {
    let owner = port.get("options").and_then(|options| options.get_str("iface-id-ver")).unwrap_or_default();
    Former { owner, node: node.to_owned(), chassis: None }
}

/// The subnets and the node ID of a node's switch.
fn items(known: &KnownNode) -> impl Iterator<Item = Allocatable> + '_ {
    known.subnets.iter().copied().map(Allocatable::Subnet).chain(known.id.map(Allocatable::NodeId))
}

/// The addresses of a pod's port.
fn addresses_in(values: &RowValues) -> impl Iterator<Item = Allocatable> {
    let port = values.get("addresses").filter(|_| pod_port(values)).and_then(seed::parse_port);
    port.into_iter().flat_map(|port| port.addresses).map(Allocatable::Address)
}

/// Whether it is a pod's port: only those have `iface-id-ver`.
fn pod_port(values: &RowValues) -> bool {
    values.get("options").is_some_and(|options| options.get_str("iface-id-ver").is_some())
}
