//! A plan as JSON; `show` has the same as text.

use std::collections::BTreeMap;

use reachability::preview::{Difference, ObjectEvent, RowChange};
use serde::Serialize;
use serde_json::Value;
use topology::identity::Owner;

use super::load::Mistake;
use crate::commands::ovsdb::value;

/// JSON of a plan.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether anything would change.
    pub(super) changes: bool,
    /// Number of rows per table.
    pub(super) counts: BTreeMap<String, Count>,
    /// Changes by owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) objects: Option<Vec<Object>>,
    /// Objects that would be refused.
    pub(super) refused: Vec<ObjectRemark>,
    /// Other warnings about objects.
    pub(super) warnings: Vec<ObjectRemark>,
    /// Number of objects that do not concern the network, by kind.
    pub(super) not_part_of_the_network: BTreeMap<String, usize>,
    /// Manifests that could not be planned.
    pub(super) errors: Vec<Mistake>,
    /// Values and objects that are used or assumed without having been given.
    pub(super) notes: Vec<String>,
    /// How to get a more complete plan.
    pub(super) hints: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(super) struct Count {
    pub(super) added: usize,
    pub(super) changed: usize,
    pub(super) removed: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Object {
    /// `Node`, `Pod`, …; `Cluster` for shared rows; none for rows of other clients.
    pub(super) kind: Option<&'static str>,
    pub(super) name: Option<String>,
    /// Display name.
    #[serde(skip)]
    pub(super) shown: String,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) change: &'static str,
    pub(super) table: String,
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) columns: BTreeMap<String, Change>,
    #[serde(skip)]
    pub(super) difference: Difference,
}

#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) old: Value,
    pub(super) new: Value,
}

#[derive(Debug, Serialize)]
pub(super) struct ObjectRemark {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl From<ObjectEvent> for ObjectRemark {
    fn from(remark: ObjectEvent) -> Self {
        let ObjectEvent { kind, name, reason, message } = remark;
        Self { kind: kind.to_owned(), name, reason: reason.to_owned(), message }
    }
}

/// Number of added, changed and removed rows per table.
pub(super) fn counts(differences: &[Difference]) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for difference in differences {
        let count = counts.entry(difference.table.clone()).or_default();
        match difference.change {
            RowChange::Added => count.added += 1,
            RowChange::Changed => count.changed += 1,
            RowChange::Removed => count.removed += 1,
        }
    }
    counts
}

/// Groups the differences by owner; they must be sorted by owner.
pub(super) fn by_object(differences: Vec<Difference>) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    for difference in differences {
        let owner = difference.owner.clone();
        let (kind, name) = (owner.as_ref().map(Owner::kind), owner.as_ref().map(Owner::name));
        let shown = owner.map_or_else(|| "rows of other clients".to_owned(), |owner| owner.to_string());
        let row = row(difference);
        match objects.last_mut() {
            Some(last) if last.kind == kind && last.name == name => last.rows.push(row),
            _ => objects.push(Object { kind, name, shown, rows: vec![row] }),
        }
    }
    objects
}

fn row(difference: Difference) -> Row {
    let columns = difference.columns.iter().map(|column| {
        let change =
            Change { old: value::json(&column.old, &column.kind), new: value::json(&column.new, &column.kind) };
        (column.name.clone(), change)
    });
    Row {
        change: match difference.change {
            RowChange::Added => "added",
            RowChange::Changed => "changed",
            RowChange::Removed => "removed",
        },
        table: difference.table.clone(),
        name: difference.label.clone(),
        uuid: difference.uuid.to_string(),
        columns: columns.collect(),
        difference,
    }
}
