//! A row as the replica keeps it: only what is not the default, in one allocation that all who look at it share.

use std::borrow::Cow;
use std::sync::Arc;

use crate::datum::{Atom, Datum};
use crate::schema::TableSchema;
use crate::update::Fields;
use crate::uuid::Uuid;

/// A table with more columns than this cannot be monitored.
pub const MAX_COLUMNS: usize = 128;

/// The values of a row. Cloning costs a reference count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which columns have a value here; the others have their default.
    present: u128,
    values: Arc<[Datum]>,
}

impl Row {
    /// Takes the values out of `fields` and leaves its room to the next row.
    pub(crate) fn from_fields(fields: &mut Fields, table: &TableSchema) -> Self {
        fields.sort_by_key(|(column, _)| *column);
        fields.dedup_by_key(|(column, _)| *column);
        fields.retain(|(column, datum)| !table.columns[*column].kind.is_default(datum));
        let present = fields.iter().fold(0, |present, (column, _)| present | 1_u128 << column);
        Self { present, values: fields.drain(..).map(|(_, datum)| datum).collect() }
    }

    /// The row after the differences of an `update2`.
    pub(crate) fn modified(&self, differences: Fields, table: &TableSchema) -> Self {
        let mut fields: Fields = self.fields().map(|(column, datum)| (column, datum.clone())).collect();
        for (column, difference) in differences {
            let kind = &table.columns[column].kind;
            let old = self.get(column).cloned().unwrap_or_else(|| kind.default_datum());
            // Of what holds at most one atom or pair, the new value is told; of others, what was toggled.
            let single = kind.max == Some(1);
            let new = if single { difference } else { old.apply_difference(&difference) };
            fields.retain(|(other, _)| *other != column);
            fields.push((column, new));
        }
        Self::from_fields(&mut fields, table)
    }

    /// The same values under another schema of the table; a column that is gone, or has another type, is left out.
    pub(crate) fn migrated(&self, from: &TableSchema, to: &TableSchema) -> Self {
        let fields = self.fields().filter_map(|(column, datum)| {
            let old = &from.columns[column];
            let new = to.column_index(&old.name)?;
            (to.columns[new].kind == old.kind).then(|| (new, datum.clone()))
        });
        Self::from_fields(&mut fields.collect(), to)
    }

    /// The value of a column, unless it is the default.
    pub fn get(&self, column: usize) -> Option<&Datum> {
        if column >= MAX_COLUMNS || self.present & 1 << column == 0 {
            return None;
        }
        let before = self.present & ((1 << column) - 1);
        self.values.get(before.count_ones() as usize)
    }

    /// The columns that are not the default, with their values.
    pub fn fields(&self) -> impl Iterator<Item = (usize, &Datum)> {
        (0..MAX_COLUMNS).filter(|column| self.present & 1 << column != 0).zip(self.values.iter())
    }
}

/// A row with what is needed to read it.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// Its identity.
    pub uuid: Uuid,
    /// Its values.
    pub row: &'a Row,
    /// Its table.
    pub schema: &'a TableSchema,
}

impl<'a> RowView<'a> {
    /// The value of a column; `None` if there is no such column.
    pub fn get(&self, column: &str) -> Option<Cow<'a, Datum>> {
        let index = self.schema.column_index(column)?;
        Some(
            self.row
                .get(index)
                .map_or_else(|| Cow::Owned(self.schema.columns[index].kind.default_datum()), Cow::Borrowed),
        )
    }

    /// A string column's value.
    pub fn text(&self, column: &str) -> Option<String> {
        match &*self.get(column)? {
            Datum::One(Atom::String(text)) => Some(text.to_string()),
            _ => None,
        }
    }

    /// An integer column's value.
    pub fn integer(&self, column: &str) -> Option<i64> {
        match &*self.get(column)? {
            Datum::One(Atom::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    /// A boolean column's value.
    pub fn boolean(&self, column: &str) -> Option<bool> {
        match &*self.get(column)? {
            Datum::One(Atom::Boolean(value)) => Some(*value),
            _ => None,
        }
    }
}
