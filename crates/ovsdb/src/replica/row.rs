//! Rows of the replica: only values that are not the default, in one shared allocation.

use std::borrow::Cow;
use std::sync::Arc;

use crate::datum::{Atom, Datum};
use crate::schema::TableSchema;
use crate::update::Fields;
use crate::uuid::Uuid;

/// Columns beyond this number are not monitored.
pub const MAX_COLUMNS: usize = 128;

/// Values of a row. Cloning increments a reference count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Bit set of the columns in `values`; the others have their default.
    present: u128,
    values: Arc<[Datum]>,
}

impl Row {
    /// Drains `fields`, whose allocation is reused for the next row.
    pub(crate) fn from_fields(fields: &mut Fields, table: &TableSchema) -> Self {
        fields.sort_by_key(|(column, _)| *column);
        fields.dedup_by_key(|(column, _)| *column);
        fields.retain(|(column, datum)| !table.columns[*column].kind.is_default(datum));
        let present = fields.iter().fold(0, |present, (column, _)| present | 1_u128 << column);
        Self { present, values: fields.drain(..).map(|(_, datum)| datum).collect() }
    }

    /// The row after applying the differences of an `update2`.
    pub(crate) fn modified(&self, differences: Fields, table: &TableSchema) -> Self {
        let mut fields: Fields = self.fields().map(|(column, datum)| (column, datum.clone())).collect();
        for (column, difference) in differences {
            let kind = &table.columns[column].kind;
            let old = self.get(column).cloned().unwrap_or_else(|| kind.default_datum());
            // A column with at most one atom or pair comes with its new value; others with a difference.
            let single = kind.max == Some(1);
            let new = if single { difference } else { old.apply_difference(&difference) };
            fields.retain(|(other, _)| *other != column);
            fields.push((column, new));
        }
        Self::from_fields(&mut fields, table)
    }

    /// The same values under another schema of the table; removed columns and those of another type are dropped.
    pub(crate) fn migrated(&self, from: &TableSchema, to: &TableSchema) -> Self {
        let fields = self.fields().filter_map(|(column, datum)| {
            let old = &from.columns[column];
            let new = to.column_index(&old.name)?;
            (to.columns[new].kind == old.kind).then(|| (new, datum.clone()))
        });
        Self::from_fields(&mut fields.collect(), to)
    }

    /// Value of a column; `None` if it is the default.
    pub fn get(&self, column: usize) -> Option<&Datum> {
        if column >= MAX_COLUMNS || self.present & 1 << column == 0 {
            return None;
        }
        let before = self.present & ((1 << column) - 1);
        self.values.get(before.count_ones() as usize)
    }

    /// Columns with values other than the default.
    pub fn fields(&self) -> impl Iterator<Item = (usize, &Datum)> {
        (0..MAX_COLUMNS).filter(|column| self.present & 1 << column != 0).zip(self.values.iter())
    }
}

/// A row with its uuid and schema, for access by column name.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// Row of the table that `schema` describes.
    pub uuid: Uuid,
    /// Without defaults; use [`RowView::get`].
    pub row: &'a Row,
    /// Columns that are monitored, which names are looked up in.
    pub schema: &'a TableSchema,
}

impl<'a> RowView<'a> {
    /// Value of a column, also the default; `None` if the column does not exist.
    pub fn get(&self, column: &str) -> Option<Cow<'a, Datum>> {
        let index = self.schema.column_index(column)?;
        Some(
            self.row
                .get(index)
                .map_or_else(|| Cow::Owned(self.schema.columns[index].kind.default_datum()), Cow::Borrowed),
        )
    }

    /// Value of a string column; `None` for another type.
    pub fn text(&self, column: &str) -> Option<String> {
        match &*self.get(column)? {
            Datum::One(Atom::String(text)) => Some(text.to_string()),
            _ => None,
        }
    }

    /// Value of an integer column; `None` for another type.
    pub fn integer(&self, column: &str) -> Option<i64> {
        match &*self.get(column)? {
            Datum::One(Atom::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    /// Value of a boolean column; `None` for another type.
    pub fn boolean(&self, column: &str) -> Option<bool> {
        match &*self.get(column)? {
            Datum::One(Atom::Boolean(value)) => Some(*value),
            _ => None,
        }
    }
}
