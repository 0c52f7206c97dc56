//! Undoes and reports claims of logical ports by a chassis that they do not belong to (`topology::port_bindings`).

use std::collections::BTreeMap;
use std::time::Duration;

use ovsdb::client::Client;
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Function};
use ovsdb::replica::{Changes, RowView, Snapshot, Table};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use topology::Engine;
use topology::port_bindings::{Claims, Conflict, PortBindings};

use crate::effect_runner::EffectRunner;

const TABLE: &str = "Port_Binding";
/// Columns with the chassis that claim a port.
const CLAIMS: [&str; 2] = ["chassis", "additional_chassis"];
const REASON: &str = "PortClaimedByOtherChassis";
/// Most ports to name in one report, and most ports to get an Event.
const MAX_NAMED: usize = 5;

/// Follows the claims while this instance leads.
#[derive(Debug, Default)]
pub(crate) struct BindingWatch {
    bindings: PortBindings<Uuid>,
    /// Whether all rows were seen in this term.
    leading: bool,
}

/// Names of the chassis that claim a row's port.
fn claims(row: &RowView<'_>, snapshot: &Snapshot) -> Claims {
    let mut names = Claims::new();
    for datum in CLAIMS.iter().filter_map(|column| row.get(column)) {
        for atom in datum.atoms() {
            let Atom::Uuid(uuid) = atom else { continue };
            let known = snapshot.table("Chassis").and_then(|table| table.get(uuid)).and_then(|row| row.text("name"));
            names.push(known.unwrap_or_else(|| uuid.to_string()).into());
        }
    }
    names
}

/// Whether changes include rows of other tables, which acknowledge `nb_cfg`.
pub(crate) fn has_progress(changes: &Changes) -> bool {
    changes.changes.iter().any(|change| {
        let table = changes.snapshot.table_at(change.table).map(Table::schema);
        table.is_some_and(|schema| matches!(&*schema.name, "SB_Global" | "Chassis_Private"))
    })
}

impl BindingWatch {
    /// Takes changes of the southbound database.
    pub(crate) fn changed(&mut self, changes: &Changes, engine: &Engine, now: Duration) {
        if !self.leading {
            return;
        }
        for change in &changes.changes {
            let table = changes.snapshot.table_at(change.table).filter(|table| table.schema().name == TABLE);
            let Some(schema) = table.map(Table::schema) else { continue };
            let view = |row| RowView { uuid: change.uuid, row, schema };
            let (before, after) = (change.before.as_ref().map(view), change.after.as_ref().map(view));
            let port = after.as_ref().or(before.as_ref()).and_then(|row| row.text("logical_port")).unwrap_or_default();
            let of = |row: &RowView<'_>| claims(row, &changes.snapshot);
            let before = before.as_ref().map(of).unwrap_or_default();
            self.bindings.observe(change.uuid, &port, &before, after.as_ref().map(of), engine.store(), now);
        }
    }

    /// Undoes and reports what is wrong; to be called once a second.
    pub(crate) fn check(&mut self, engine: &Engine, effects: &EffectRunner, now: Duration) {
        // A stale replica would undo claims that were corrected long ago.
        if !engine.is_leading() || !effects.southbound.status().borrow().connected {
            *self = Self::default();
            return;
        }
        if !std::mem::replace(&mut self.leading, true) {
            let snapshot = effects.southbound.snapshot();
            for row in snapshot.table(TABLE).into_iter().flat_map(Table::iter) {
                let (port, claims) = (row.text("logical_port").unwrap_or_default(), claims(&row, &snapshot));
                self.bindings.observe(row.uuid, &port, &Claims::new(), Some(claims), engine.store(), now);
            }
        }
        let conflicts = self.bindings.conflicts(engine.store(), now);
        if conflicts.is_empty() {
            return;
        }
        effects.metrics.port_binding_conflicts.inc_by(conflicts.len() as u64);
        undo(&effects.southbound, &conflicts);
        let mut by_chassis: BTreeMap<&str, Vec<&Conflict<Uuid>>> = BTreeMap::new();
        for conflict in &conflicts {
            by_chassis.entry(&conflict.chassis).or_default().push(conflict);
        }
        for (chassis, conflicts) in by_chassis {
            report(chassis, &conflicts, effects);
        }
    }
}

/// Releases the ports whose wrong claim stands; their own chassis claims them again. A claim that changed meanwhile is left alone.
fn undo(southbound: &Client, conflicts: &[Conflict<Uuid>]) {
    let snapshot = southbound.snapshot();
    let mut transaction = Transaction::new();
    for conflict in conflicts.iter().filter(|conflict| conflict.stands) {
        let Some(row) = snapshot.table(TABLE).and_then(|table| table.get(conflict.row)) else { continue };
        for (column, encapsulation) in CLAIMS.into_iter().zip(["encap", "additional_encap"]) {
            let Some(claimed) = row.get(column).map(std::borrow::Cow::into_owned).filter(|claimed| !claimed.is_empty())
            else {
                continue;
            };
            let is_home = |atom: Atom| {
                let Atom::Uuid(uuid) = atom else { return false };
                let chassis = snapshot.table("Chassis").and_then(|table| table.get(uuid));
                chassis.and_then(|row| row.text("name")).as_deref() == Some(&*conflict.home.chassis)
            };
            if claimed.atoms().all(is_home) {
                continue;
            }
            let mut released = Row::new().set(column, Datum::Empty).set(encapsulation, Datum::Empty);
            if column == "chassis" {
                released = released.set("up", Datum::One(Atom::Boolean(false)));
            }
            let unchanged = Condition::new(column, Function::Equal, claimed);
            transaction.update(TABLE, vec![Condition::uuid(conflict.row), unchanged], released);
        }
    }
    if transaction.is_empty() {
        return;
    }
    let client = southbound.clone();
    tokio::spawn(async move {
        if let Err(error) = client.transact(&transaction).await {
            tracing::warn!(%error, "cannot release ports that another chassis claimed; retrying while they are claimed");
        }
    });
}

/// One log line, an Event on the claimant's Node, and Events on the first objects.
fn report(chassis: &str, conflicts: &[&Conflict<Uuid>], effects: &EffectRunner) {
    let claimant = conflicts.iter().find_map(|conflict| conflict.claimant.clone());
    let named = conflicts.iter().take(MAX_NAMED).map(|one| format!("{} of node {}", one.port, one.home.node));
    let mut ports = named.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = conflicts.len().checked_sub(MAX_NAMED) {
        ports += &format!(" and {more} more");
    }
    let node = claimant.as_ref().map(|node| node.name.to_string());
    tracing::warn!(chassis, node, ports, "a chassis claimed ports that do not belong to it; released them");
    if let Some(node) = claimant {
        let message = format!(
            "chassis {chassis} of this node claimed logical ports that do not belong to it: {ports}; the controller released them. If nothing but \
             ovn-controller writes there, treat this node as compromised"
        );
        effects.record(node, REASON, message);
    }
    let of_node = node_text(conflicts);
    for conflict in conflicts.iter().filter(|conflict| conflict.home.object.kind == "Pod").take(MAX_NAMED) {
        let message = format!(
            "chassis {chassis}{of_node} claimed logical port {}, which belongs to node {}: it could receive the packets of this pod; the \
             controller released the port",
            conflict.port, conflict.home.node
        );
        effects.record(conflict.home.object.clone(), REASON, message);
    }
}

fn node_text(conflicts: &[&Conflict<Uuid>]) -> String {
    let claimant = conflicts.iter().find_map(|conflict| conflict.claimant.as_ref());
    claimant.map(|node| format!(" (node {})", node.name)).unwrap_or_default()
}
