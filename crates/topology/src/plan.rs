//! Compares touched rows with the database and produces the operations of one transaction.
//!
//! Missing rows are inserted; of rows that differ, only the columns that differ are written; of sets, only added and removed
//! members. Nothing that is correct already is written.

use std::collections::{BTreeMap, BTreeSet};

use ovn_schema::TableRow;
use ovn_schema::northbound::{ChassisTemplateVar, LoadBalancer};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator, Operation, RowValues};
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::transaction::{Row, Transaction};

use crate::desired::LOAD_BALANCER_GROUPS;
use crate::identity::{ColumnRef, OURS, OWNER_CONTROLLER, OWNER_NAME, OWNER_TYPE, Owner, RowId, is_computed};
use crate::ledger::{ColumnChange, Entry, Ledger, Touched};
use crate::maps;

/// Tables whose rows the controller writes.
pub const TABLES: [&str; 20] = [
    "ACL",
    "Address_Set",
    "Chassis_Template_Var",
    "Copp",
    "Gateway_Chassis",
    "Load_Balancer",
    "Load_Balancer_Group",
    "Logical_Router",
    "Logical_Router_Policy",
    "Logical_Router_Port",
    "Logical_Router_Static_Route",
    "Logical_Switch",
    "Logical_Switch_Port",
    "Meter",
    "Meter_Band",
    "NAT",
    "NB_Global",
    "Port_Group",
    "QoS",
    "Static_MAC_Binding",
];

const VIPS: &str = LoadBalancer::vips.name();

/// The `'static` name of a table that is written.
pub fn table_name(name: &str) -> Option<&'static str> {
    TABLES.into_iter().find(|known| *known == name)
}

/// Finds a row in the snapshot.
pub(crate) fn row(snapshot: &Snapshot, id: RowId) -> Option<RowView<'_>> {
    snapshot.table(id.table)?.get(id.uuid)
}

/// The owner of a row: by its `external_ids`, or by name in tables without that column; None if another client's.
pub fn owner_of(view: RowView<'_>) -> Option<Owner> {
    match view.schema.name.as_str() {
        "Static_MAC_Binding" => {
            let port = view.text("logical_port").filter(|_| is_computed(view.uuid))?;
            return port.strip_prefix("rtoe-GR_").map(|node| Owner::Node(node.into()));
        }
        "Load_Balancer_Group" => {
            let known = view.text("name").is_some_and(|name| LOAD_BALANCER_GROUPS.contains(&&*name));
            return known.then_some(Owner::Cluster);
        }
        _ => {}
    }
    let marks = view.get("external_ids")?;
    if marks.get_str(OWNER_CONTROLLER).as_deref() != Some(OURS) {
        return None;
    }
    Owner::from_mark(&marks.get_str(OWNER_TYPE)?, &marks.get_str(OWNER_NAME)?)
}

/// The operations for touched rows, and rows that are missing for them.
#[derive(Debug, Default)]
pub struct Plan {
    /// Empty if nothing differs.
    pub transaction: Transaction,
    /// Rows to which members should be added and that are neither in the database nor in this transaction.
    pub missing: BTreeSet<RowId>,
}

/// Compares touched rows and columns with the database.
pub fn plan(touched: &Touched, ledger: &Ledger, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let rows = touched.rows.iter();
    let inserted = rows.filter(|(id, wanted)| wanted.is_some() && row(snapshot, **id).is_none()).map(|(id, _)| *id);
    let existing = Existing { snapshot, inserted: inserted.collect() };
    let mut sets: BTreeMap<ColumnRef, (BTreeSet<Atom>, BTreeSet<Atom>)> = BTreeMap::new();
    for (id, wanted) in &touched.rows {
        match (wanted, row(snapshot, *id)) {
            (Some((owner, values)), None) => {
                let values = with_sets(values, *id, ledger, &existing);
                plan.transaction.owned_by(owner.to_string());
                plan.transaction.insert_with_uuid(id.table, id.uuid, Row(values));
            }
            (Some((owner, values)), Some(view)) => {
                let mut changed = differing(values, view, ledger, *id);
                plan.transaction.owned_by(owner.to_string());
                // A change of one endpoint must not write all of them.
                if id.table == LoadBalancer::TABLE
                    && let Some(vips) = changed.remove(VIPS)
                {
                    let mutations = maps::difference(view, VIPS, &vips);
                    plan.transaction.mutate(id.table, vec![Condition::uuid(id.uuid)], mutations);
                }
                if !changed.is_empty() {
                    plan.transaction.update(id.table, vec![Condition::uuid(id.uuid)], Row(changed));
                }
            }
            (None, Some(view)) => {
                // A row that is not a root is garbage-collected with its reference. A row of template variables stays, empty,
                // until its chassis is gone (`Progress::forget_variables`).
                if view.schema.is_root && id.table != ChassisTemplateVar::TABLE {
                    plan.transaction.without_owner();
                    plan.transaction.delete(id.table, vec![Condition::uuid(id.uuid)]);
                }
            }
            (None, None) => {}
        }
    }
    let regained = members_of_inserted(&existing.inserted, touched, ledger);
    let regained_only = regained.iter().filter(|(column, _)| !touched.columns.contains_key(column));
    for (column, change) in touched.columns.iter().chain(regained_only) {
        let counted_map = maps::is_counted(column.row.table, column.column);
        let gone = matches!(touched.rows.get(&column.row), Some(None)) && !counted_map;
        if gone || existing.inserted.contains(&column.row) {
            continue;
        }
        let Some(view) = row(snapshot, column.row) else {
            // The pairs of a map come with its row, which a node without a chassis lacks.
            if !change.added.is_empty() && !counted_map {
                plan.missing.insert(column.row);
            }
            continue;
        };
        let held = view.get(column.column);
        let holds = |atom: &Atom| match held.as_deref() {
            Some(held) if counted_map => maps::holds(held, atom),
            Some(held) => held.contains(atom),
            None => false,
        };
        let (added, removed) = sets.entry(*column).or_default();
        let atoms = change.added.iter().chain(regained.get(column).into_iter().flat_map(|change| &change.added));
        added.extend(atoms.filter(|atom| !holds(atom)).cloned());
        removed.extend(change.removed.iter().filter(|atom| holds(atom)).cloned());
    }
    mutate(&mut plan.transaction, sets, snapshot);
    plan
}

/// The rows that exist once the transaction is committed.
struct Existing<'a> {
    snapshot: &'a Snapshot,
    inserted: BTreeSet<RowId>,
}

impl Existing<'_> {
    /// Whether a set can hold a member now. A reference to a missing row is added with that row.
    fn can_hold(&self, of: RowId, column: &str, atom: &Atom) -> bool {
        let Atom::Uuid(uuid) = atom else { return true };
        let schema = self.snapshot.table(of.table).and_then(|table| table.schema().column(column));
        let target = schema.and_then(|column| column.kind.key.refers_to.as_ref());
        let Some(table) = target.and_then(|target| table_name(&target.table)) else { return true };
        let id = RowId { table, uuid: *uuid };
        self.inserted.contains(&id) || row(self.snapshot, id).is_some()
    }
}

/// One operation per row whose sets change.
fn mutate(
    transaction: &mut Transaction,
    sets: BTreeMap<ColumnRef, (BTreeSet<Atom>, BTreeSet<Atom>)>,
    snapshot: &Snapshot,
) {
    let mut rows: BTreeMap<RowId, Vec<Mutation>> = BTreeMap::new();
    for (column, (added, removed)) in sets {
        if maps::is_counted(column.row.table, column.column) {
            let held = row(snapshot, column.row).and_then(|view| view.get(column.column));
            let removed = removed.iter().map(|atom| maps::pair(atom).0);
            let added = added.iter().map(maps::pair).collect();
            let mutations = maps::mutations(column.column, held.as_deref(), removed, added);
            if !mutations.is_empty() {
                rows.entry(column.row).or_default().extend(mutations);
            }
            continue;
        }
        // Insert before delete: the server checks a set's size after each mutation, and a set that must not be empty (the
        // bands of a meter) is never empty in between.
        for (mutator, atoms) in [(Mutator::Insert, added), (Mutator::Delete, removed)] {
            if !atoms.is_empty() {
                let mutation = Mutation::new(column.column, mutator, Datum::set(atoms));
                rows.entry(column.row).or_default().push(mutation);
            }
        }
    }
    for (row, mutations) in rows {
        transaction.without_owner();
        transaction.mutate(row.table, vec![Condition::uuid(row.uuid)], mutations);
    }
}

/// Memberships of inserted rows. A row that was deleted together with its parent lost them, though the owners of the
/// memberships have not changed.
fn members_of_inserted(
    inserted: &BTreeSet<RowId>,
    touched: &Touched,
    ledger: &Ledger,
) -> BTreeMap<ColumnRef, ColumnChange> {
    let mut columns: BTreeMap<ColumnRef, ColumnChange> = BTreeMap::new();
    for id in inserted {
        let Some(Some((owner, _))) = touched.rows.get(id) else { continue };
        let members = ledger.entry(owner).map(Entry::members).unwrap_or_default();
        for member in members.iter().filter(|member| member.atom == Atom::Uuid(id.uuid)) {
            let known = touched.columns.get(&member.column).is_some_and(|change| change.added.contains(&member.atom));
            if !known {
                columns.entry(member.column).or_default().added.insert(member.atom.clone());
            }
        }
    }
    columns
}

/// The values of a row with all its sets, without references to rows that do not exist yet.
fn with_sets(values: &RowValues, id: RowId, ledger: &Ledger, existing: &Existing<'_>) -> RowValues {
    let mut values = values.clone();
    for (column, members) in ledger.sets_of(id) {
        if maps::is_counted(id.table, column) {
            values.insert(column.to_owned(), Datum::map(members.map(maps::pair)));
            continue;
        }
        let members = members.filter(|atom| existing.can_hold(id, column, atom));
        values.insert(column.to_owned(), Datum::set(members.cloned()));
    }
    values
}

/// The columns that differ, with their desired values; without sets of counted members, sets of references, and columns
/// that OVN writes.
fn differing(wanted: &RowValues, view: RowView<'_>, ledger: &Ledger, id: RowId) -> RowValues {
    let mut changed = RowValues::new();
    for (column, datum) in wanted {
        if view.get(column).as_deref() != Some(datum) {
            changed.insert(column.clone(), datum.clone());
        }
    }
    for (index, _) in view.row.fields() {
        let column = &view.schema.columns[index];
        if wanted.contains_key(&column.name) || is_observed(id.table, &column.name) {
            continue;
        }
        // Every client may add to a set of references.
        let many = column.kind.max != Some(1) && !column.kind.is_map();
        let shared = many && (column.kind.key.refers_to.is_some() || is_shared(id.table, &column.name));
        let counted = ledger.sets_of(id).any(|(counted, _)| counted == column.name);
        if !shared && !counted {
            changed.insert(column.name.clone(), column.kind.default_datum());
        }
    }
    changed
}

/// Sets of strings that several owners add to.
fn is_shared(table: &str, column: &str) -> bool {
    (table, column) == ("Address_Set", "addresses")
}

/// Columns that OVN writes.
fn is_observed(table: &str, column: &str) -> bool {
    matches!(
        (table, column),
        ("Logical_Switch_Port", "up" | "dynamic_addresses" | "tag") | ("Logical_Router_Port", "status" | "ipv6_prefix")
    )
}

/// Sets whose members are counted per owner, by table.
pub(crate) fn set_column(table: &str, column: &str) -> Option<&'static str> {
    let columns: &[&'static str] = match table {
        "Address_Set" => &["addresses"],
        "Chassis_Template_Var" => &["variables"],
        "Logical_Switch" => &["ports", "acls", "load_balancer", "load_balancer_group", "qos_rules"],
        "Logical_Router" => &["ports", "static_routes", "policies", "nat", "load_balancer", "load_balancer_group"],
        "Logical_Router_Port" => &["gateway_chassis"],
        "Port_Group" => &["ports", "acls"],
        "Meter" => &["bands"],
        "Load_Balancer_Group" => &["load_balancer"],
        _ => &[],
    };
    columns.iter().copied().find(|known| *known == column)
}

/// The rows that a transaction inserts, or changes by UUID.
pub fn rows_of(transaction: &Transaction) -> BTreeSet<RowId> {
    let mut rows = BTreeSet::new();
    for operation in transaction.operations() {
        let Some(table) = operation.table().and_then(table_name) else { continue };
        match operation {
            Operation::Insert { uuid: Some(uuid), .. } => {
                rows.insert(RowId { table, uuid: *uuid });
            }
            Operation::Update { conditions, .. }
            | Operation::Mutate { conditions, .. }
            | Operation::Delete { conditions, .. } => {
                let uuids = conditions.iter().filter(|condition| condition.column == "_uuid");
                rows.extend(uuids.filter_map(|condition| match condition.value {
                    Datum::One(Atom::Uuid(uuid)) => Some(RowId { table, uuid }),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    rows
}
