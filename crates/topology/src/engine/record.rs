//! What rests is written down in the very transaction that takes it out of the database, and struck out in the one that
//! puts it back. Both follow from the transaction and the snapshot alone, not from who has his turn: a port also goes
//! when its switch goes, long before or after the pod has its own turn.

use std::collections::{BTreeMap, BTreeSet};

use ovn_schema::TableRow;
use ovn_schema::northbound::{LogicalSwitch, LogicalSwitchPort};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator, RowValues};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::transaction::Transaction;

use super::seed::{self, RESTING};
use crate::allocation::{KnownNode, Quarantine, Thing};
use crate::identity::{Owner, RowId};
use crate::ledger::{Entry, Touched};
use crate::plan::{owner_of, row};

/// What a transaction takes out of the database and puts into it, of all that can be given to one owner only.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    lost: BTreeMap<Thing, Former>,
    gained: BTreeSet<Thing>,
}

/// Who had a thing, and where.
#[derive(Debug, Clone)]
struct Former {
    owner: String,
    node: String,
    /// With a node's number its chassis is written down: whoever leads next has to remove it.
    chassis: Option<String>,
}

impl Former {
    /// As it stands in the database.
    fn text(&self) -> String {
        let Self { owner, node, chassis } = self;
        chassis.as_ref().map_or_else(|| format!("{owner}@{node}"), |chassis| format!("{owner}@{node}@{chassis}"))
    }
}

impl Record {
    /// What the touched rows lose and gain. `before` is what the owners had whose turn it is.
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
                    record.gained.extend(things(&seed::switch_words(|column| values.get(column))));
                }
                _ => {}
            }
        }
        let gained = &record.gained;
        record.lost.retain(|thing, _| !gained.contains(thing));
        record
    }

    /// Whether something goes whose end on the nodes somebody will wait for.
    pub(super) fn loses(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The transaction was committed.
    pub(super) fn committed(&self, quarantine: &mut Quarantine) {
        for thing in &self.gained {
            quarantine.regained(*thing);
        }
        for (thing, former) in &self.lost {
            quarantine.lost(*thing, &former.owner, &former.node);
        }
    }

    /// A port goes, or gets other addresses.
    fn port(&mut self, id: RowId, touched: &Touched, node: &str, snapshot: &Snapshot) {
        let Some(view) = row(snapshot, id) else { return };
        let Some(port) = seed::port_words(view) else { return };
        let Some(wanted) = touched.rows.get(&id) else { return };
        let kept: BTreeSet<Thing> = wanted.iter().flat_map(|(_, values)| addresses_in(values)).collect();
        let lost = port.addresses.into_iter().map(Thing::Address).filter(|address| !kept.contains(address));
        let former = former_pod(view, node);
        self.lost.extend(lost.map(|address| (address, former.clone())));
    }

    /// A switch goes, with all ports that nobody wants elsewhere; or it gets other subnets.
    fn switch(&mut self, id: RowId, touched: &Touched, name: &str, snapshot: &Snapshot) {
        let Some(view) = row(snapshot, id) else { return };
        let Some(wanted) = touched.rows.get(&id) else { return };
        let held = seed::switch_words(|column| view.get(column));
        let kept = wanted.as_ref().map(|(_, values)| seed::switch_words(|column| values.get(column)));
        let kept: BTreeSet<Thing> = kept.iter().flat_map(things).collect();
        for thing in things(&held).filter(|thing| !kept.contains(thing)) {
            let chassis = matches!(thing, Thing::NodeId(_)).then(|| seed::chassis_of(name, snapshot)).flatten();
            self.lost.insert(thing, Former { owner: name.to_owned(), node: name.to_owned(), chassis });
        }
        if wanted.is_some() {
            return;
        }
        for port in view.get("ports").iter().flat_map(|ports| ports.atoms()) {
            let Atom::Uuid(uuid) = port else { continue };
            let id = RowId { table: LogicalSwitchPort::TABLE, uuid };
            let Some(view) = row(snapshot, id).filter(|_| !touched.rows.contains_key(&id)) else { continue };
            if let (Some(Owner::Pod(_)), Some(port)) = (owner_of(view), seed::port_words(view)) {
                let former = former_pod(view, name);
                self.lost.extend(port.addresses.into_iter().map(|address| (Thing::Address(address), former.clone())));
            }
        }
    }

    /// Adds what is to be written down and struck out to a transaction, and by how much `nb_cfg` is raised.
    pub(super) fn keep(&self, transaction: &mut Transaction, freed: &[Thing], raise: Option<i64>, snapshot: &Snapshot) {
        let Some(global) = seed::global(snapshot) else { return };
        let key = |thing: &Thing| Atom::String(format!("{RESTING}{thing}").as_str().into());
        let held = global.get("external_ids");
        let stands = |key: &Atom| held.as_ref().and_then(|held| held.get(key));
        let mut pairs: Vec<(Atom, Atom)> =
            self.lost.iter().map(|(thing, former)| (key(thing), Atom::String(former.text().as_str().into()))).collect();
        pairs.retain(|(key, text)| stands(key) != Some(text));
        // A key's value is only replaced by taking the key out first.
        let gone = self.gained.iter().chain(freed.iter().filter(|thing| !self.lost.contains_key(thing))).map(key);
        let gone = gone.chain(pairs.iter().map(|(key, _)| key.clone()));
        let gone: BTreeSet<Atom> = gone.filter(|key| stands(key).is_some()).collect();
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
            transaction.owned_by_nobody();
            transaction.mutate("NB_Global", vec![Condition::uuid(global.uuid)], mutations);
        }
    }
}

fn former_pod(port: RowView<'_>, node: &str) -> Former {
    let owner = port.get("options").and_then(|options| options.get_str("iface-id-ver")).unwrap_or_default();
    Former { owner, node: node.to_owned(), chassis: None }
}

/// What a node's switch stands for.
fn things(known: &KnownNode) -> impl Iterator<Item = Thing> + '_ {
    known.subnets.iter().copied().map(Thing::Subnet).chain(known.id.map(Thing::NodeId))
}

/// The addresses that a pod's port shall have.
fn addresses_in(values: &RowValues) -> impl Iterator<Item = Thing> {
    let port = values.get("addresses").filter(|_| pod_port(values)).and_then(seed::port_in);
    port.into_iter().flat_map(|port| port.addresses).map(Thing::Address)
}

/// A port of a pod says whose it is.
fn pod_port(values: &RowValues) -> bool {
    values.get("options").is_some_and(|options| options.get_str("iface-id-ver").is_some())
}
