//! Checks at commit, in the server's order: strong references, garbage collection, row limits, weak references,
//! indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fault::Fault;
use super::layout::{Layout, ReferenceColumn, Side};
use super::mutation::keep_pairs;
use super::names::Names;
use super::pending::Pending;
use super::store::{Replaced, Row, RowId, index_key};
use crate::datum::{Atom, Datum};
use crate::uuid::Uuid;

/// A checked transaction: the rows that it replaces, and the changes of strong reference counts.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) replaced: Vec<Replaced>,
    pub(crate) strong: BTreeMap<RowId, i64>,
}

/// Checks a transaction; removes garbage and dangling weak references.
pub(crate) fn prepare(layout: &Layout, pending: &mut Pending<'_>, names: &mut Names<'_>) -> Result<Commit, Fault> {
    let mut references = References { layout, changes: BTreeMap::new() };
    let replaced = pending.replaced();
    references.count(pending, &replaced)?;
    references.collect_garbage(pending, &replaced);
    check_row_counts(layout, pending)?;
    drop_weak_references(layout, pending)?;
    let mut replaced = pending.replaced();
    check_indexes(layout, pending, &replaced)?;
    for change in &mut replaced {
        if let (Some(_), Some(after)) = (&change.before, &mut change.after) {
            *after = Arc::new(Row { version: names.fresh(), values: after.values.clone() });
        }
    }
    Ok(Commit { replaced, strong: references.changes })
}

/// Changes of strong reference counts by a transaction.
struct References<'a> {
    layout: &'a Layout,
    changes: BTreeMap<RowId, i64>,
}

impl References<'_> {
    fn strong(&self, table: usize) -> impl Iterator<Item = ReferenceColumn> {
        self.layout.tables[table].references.iter().copied().filter(|reference| reference.strong)
    }

    /// Counts references; the target of a strong one must exist.
    fn count(&mut self, pending: &Pending<'_>, replaced: &[Replaced]) -> Result<(), Fault> {
        for change in replaced {
            let (table, own) = change.id;
            for reference in self.layout.tables[table].references.iter().filter(|reference| reference.strong) {
                let (added, removed) = difference(*reference, change);
                for target in added.into_iter().filter(|target| counts(own, *target)) {
                    let target = (reference.target, target);
                    if pending.row(target).is_none() {
                        let (name, column) = self.describe(table, *reference);
                        let details = format!("{name} {own} column {column} references nonexistent row {}.", target.1);
                        return Err(Fault::referential(details));
                    }
                    *self.changes.entry(target).or_insert(0) += 1;
                }
                for target in removed.into_iter().filter(|target| counts(own, *target)) {
                    *self.changes.entry((reference.target, target)).or_insert(0) -= 1;
                }
            }
        }
        for change in replaced.iter().filter(|change| change.after.is_none()) {
            let left = self.total(pending, change.id);
            if left > 0 {
                let name = &self.layout.tables[change.id.0].schema.name;
                let details = format!("cannot delete {name} row {} because of {left} references", change.id.1);
                return Err(Fault::referential(details));
            }
        }
        Ok(())
    }

    fn describe(&self, table: usize, reference: ReferenceColumn) -> (&str, &str) {
        let schema = &self.layout.tables[table].schema;
        (&schema.name, &schema.columns[reference.column].name)
    }

    fn total(&self, pending: &Pending<'_>, id: RowId) -> i64 {
        pending.store().table(id.0).strong_references(id.1) + self.changes.get(&id).copied().unwrap_or(0)
    }

    /// Removes rows of non-root tables without strong references. By reference counts, as in the server: cycles stay.
    fn collect_garbage(&mut self, pending: &mut Pending<'_>, replaced: &[Replaced]) {
        let mut suspects: Vec<RowId> = replaced.iter().map(|change| change.id).collect();
        suspects.extend(self.changes.keys());
        while let Some(id) = suspects.pop() {
            if self.layout.tables[id.0].schema.is_root || self.total(pending, id) != 0 {
                continue;
            }
            let Some(row) = pending.row(id).cloned() else { continue };
            pending.delete(id);
            for reference in self.strong(id.0).collect::<Vec<_>>() {
                for target in reference.targets(&row.values).into_iter().filter(|target| counts(id.1, *target)) {
                    let target = (reference.target, target);
                    *self.changes.entry(target).or_insert(0) -= 1;
                    suspects.push(target);
                }
            }
        }
    }
}

/// A self-reference does not count. The server compares uuids only, so neither does a reference to a row of another
/// table with the same uuid.
fn counts(own: Uuid, target: Uuid) -> bool {
    own != target
}

/// The references that a change adds and removes.
fn difference(reference: ReferenceColumn, change: &Replaced) -> (Vec<Uuid>, Vec<Uuid>) {
    let values = |row: &Option<Arc<Row>>| row.as_ref().map(|row| reference.targets(&row.values)).unwrap_or_default();
    if let (Some(before), Some(after)) = (&change.before, &change.after)
        && before.values[reference.column] == after.values[reference.column]
    {
        return (Vec::new(), Vec::new());
    }
    let (before, after) = (values(&change.before), values(&change.after));
    (missing(&after, &before), missing(&before, &after))
}

/// Elements of one sorted list that are not in the other; each occurrence counts.
fn missing(one: &[Uuid], other: &[Uuid]) -> Vec<Uuid> {
    let mut other = other.iter().peekable();
    let mut found = Vec::new();
    for uuid in one {
        while other.next_if(|next| *next < uuid).is_some() {}
        if other.next_if_eq(&uuid).is_none() {
            found.push(*uuid);
        }
    }
    found
}

fn check_row_counts(layout: &Layout, pending: &Pending<'_>) -> Result<(), Fault> {
    let mut changes: BTreeMap<usize, i64> = BTreeMap::new();
    for change in pending.replaced() {
        *changes.entry(change.id.0).or_insert(0) +=
            i64::from(change.after.is_some()) - i64::from(change.before.is_some());
    }
    for (table, change) in changes {
        let schema = &layout.tables[table].schema;
        let rows = i128::try_from(pending.store().table(table).rows.len()).unwrap_or(i128::MAX) + i128::from(change);
        if schema.max_rows.is_some_and(|max| rows > i128::from(max)) {
            return Err(Fault::constraint(format!("{} would contain {rows} rows, more than it may", schema.name)));
        }
    }
    Ok(())
}

/// Removes weak references to rows that do not exist. Open vSwitch 3.5 misses some if the same transaction touches the
/// referring row (which ones depends on a hash): writers should remove them explicitly.
fn drop_weak_references(layout: &Layout, pending: &mut Pending<'_>) -> Result<(), Fault> {
    let mut suspects: BTreeSet<RowId> = BTreeSet::new();
    for change in pending.replaced() {
        suspects.insert(change.id);
        if change.after.is_none() {
            suspects.extend(pending.store().table(change.id.0).weak_referrers(change.id.1));
        }
    }
    for id in suspects {
        let Some(row) = pending.row(id).cloned() else { continue };
        let described = &layout.tables[id.0];
        let mut values = row.values.clone();
        for reference in described.references.iter().filter(|reference| !reference.strong) {
            let there =
                |atom: &Atom| !matches!(atom, Atom::Uuid(uuid) if pending.row((reference.target, *uuid)).is_none());
            let datum = &values[reference.column];
            let kept = match (datum, reference.side) {
                (Datum::Map(_), Side::Key) => keep_pairs(datum, |pair| there(&pair.0)),
                (Datum::Map(_), Side::Value) => keep_pairs(datum, |pair| there(&pair.1)),
                _ if datum.atoms().all(|atom| there(&atom)) => continue,
                _ => Datum::set(datum.atoms().filter(there)),
            };
            let column = &described.schema.columns[reference.column];
            if kept.len() < datum.len() && u64::try_from(kept.len()).is_ok_and(|left| left < column.kind.min) {
                let details =
                    format!("{}.{} of {} lost its last weak reference", described.schema.name, column.name, id.1);
                return Err(Fault::constraint(details));
            }
            values[reference.column] = kept;
        }
        if values != row.values {
            pending.set_values(id, values);
        }
    }
    Ok(())
}

fn check_indexes(layout: &Layout, pending: &Pending<'_>, replaced: &[Replaced]) -> Result<(), Fault> {
    let moved: BTreeSet<RowId> = replaced.iter().map(|change| change.id).collect();
    let mut taken: BTreeSet<(usize, usize, Vec<Datum>)> = BTreeSet::new();
    for change in replaced {
        let Some(row) = &change.after else { continue };
        let table = change.id.0;
        let schema = &layout.tables[table].schema;
        for (index, columns) in schema.indexes.iter().enumerate() {
            let key = index_key(columns, row);
            let holder = pending.store().table(table).holder(index, &key);
            let held = holder.is_some_and(|holder| !moved.contains(&(table, holder)));
            if held || !taken.insert((table, index, key)) {
                return Err(Fault::constraint(format!(
                    "rows of {} would have identical values for an index",
                    schema.name
                )));
            }
        }
    }
    Ok(())
}
