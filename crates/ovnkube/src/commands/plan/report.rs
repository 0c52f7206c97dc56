//! What a plan says, as programs read it; people read the same from `show`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use topology::identity::Owner;
use topology::preview::{Difference, Fate, Remark};

use super::load::Mistake;
use crate::commands::ovsdb::value;

/// The whole plan.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether anything would change.
    pub(super) changes: bool,
    /// How many rows of each table.
    pub(super) counts: BTreeMap<String, Count>,
    /// What would change, by the object that it is made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) objects: Option<Vec<Object>>,
    /// Objects that would get nothing, or nothing new.
    pub(super) refused: Vec<Told>,
    /// What else would be told about objects.
    pub(super) warnings: Vec<Told>,
    /// Objects that are no part of the network, by kind.
    pub(super) not_part_of_the_network: BTreeMap<String, usize>,
    /// What could not be planned.
    pub(super) errors: Vec<Mistake>,
    /// What is used or assumed without having been given.
    pub(super) notes: Vec<String>,
    /// What to do for a better plan.
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
    /// `Node`, `Pod`, …; `Cluster` for what all share; none for rows that are somebody else's.
    pub(super) kind: Option<&'static str>,
    pub(super) name: Option<String>,
    /// What people call it.
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
pub(super) struct Told {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl From<Remark> for Told {
    fn from(remark: Remark) -> Self {
        let Remark { kind, name, reason, message } = remark;
        Self { kind: kind.to_owned(), name, reason: reason.to_owned(), message }
    }
}

/// How many rows of each table.
pub(super) fn counts(differences: &[Difference]) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for difference in differences {
        let count = counts.entry(difference.table.clone()).or_default();
        match difference.fate {
            Fate::Added => count.added += 1,
            Fate::Changed => count.changed += 1,
            Fate::Removed => count.removed += 1,
        }
    }
    counts
}

/// The differences by object; they come in that order.
pub(super) fn by_object(differences: Vec<Difference>) -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    for difference in differences {
        let owner = difference.owner.clone();
        let (kind, name) = (owner.as_ref().map(Owner::kind), owner.as_ref().map(Owner::name));
        let shown = owner.map_or_else(|| "rows that are not ovnkube's".to_owned(), |owner| owner.to_string());
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
        change: match difference.fate {
            Fate::Added => "added",
            Fate::Changed => "changed",
            Fate::Removed => "removed",
        },
        table: difference.table.clone(),
        name: difference.label.clone(),
        uuid: difference.uuid.to_string(),
        columns: columns.collect(),
        difference,
    }
}
