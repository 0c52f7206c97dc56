//! A schema with tables and columns by index, and resolved references.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::fault::Fault;
use super::store::Row;
use crate::datum::{Atom, AtomicType, Datum};
use crate::operation::RowValues;
use crate::schema::{BaseType, ColumnType, DatabaseSchema, TableSchema};
use crate::uuid::Uuid;

/// All tables, by index.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) schema: DatabaseSchema,
    pub(crate) tables: Vec<TableLayout>,
    positions: BTreeMap<String, usize>,
    identity: ColumnType,
}

/// A table, with what integrity checks need of it.
#[derive(Debug)]
pub(crate) struct TableLayout {
    pub(crate) schema: TableSchema,
    /// Columns whose uuids refer to rows.
    pub(crate) references: Vec<ReferenceColumn>,
}

/// A column, or one side of a map, whose uuids refer to rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReferenceColumn {
    pub(crate) column: usize,
    pub(crate) side: Side,
    /// Index of the table that it refers to.
    pub(crate) target: usize,
    pub(crate) strong: bool,
}

/// Which part of a column has the uuids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The atoms of a set or the keys of a map.
    Key,
    /// The values of a map.
    Value,
}

/// A column of a table. Two of them are not in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// `_uuid`, the row's identity.
    Identity,
    /// `_version`, a new uuid whenever the row changes.
    Version,
    /// Index of a column in the schema.
    Schema(usize),
}

const IDENTITY: &str = "_uuid";
const VERSION: &str = "_version";

impl Layout {
    pub(crate) fn new(schema: DatabaseSchema) -> Self {
        let positions: BTreeMap<String, usize> = schema.tables.keys().cloned().zip(0..).collect();
        let tables = schema.tables.values().map(|table| TableLayout::new(table, &positions)).collect();
        Self { schema, tables, positions, identity: ColumnType::scalar(AtomicType::Uuid) }
    }

    /// Index of a table.
    pub(crate) fn position(&self, table: &str) -> Result<usize, Fault> {
        self.positions.get(table).copied().ok_or_else(|| Fault::syntax(format!("No table named {table}.")))
    }

    pub(crate) fn column(&self, table: usize, name: &str) -> Option<Column> {
        match name {
            IDENTITY => Some(Column::Identity),
            VERSION => Some(Column::Version),
            _ => self.tables[table].schema.column_index(name).map(Column::Schema),
        }
    }

    /// A column by name, or the error `unknown column`.
    pub(crate) fn require_column(&self, table: usize, name: &str) -> Result<Column, Fault> {
        self.column(table, name).ok_or_else(|| {
            Fault::unknown_column(format!("No column {name} in table {}.", self.tables[table].schema.name))
        })
    }

    /// `_uuid` and `_version`, then the columns of the schema.
    pub(crate) fn all_columns(&self, table: usize) -> Vec<Column> {
        let positions = (0..self.tables[table].schema.columns.len()).map(Column::Schema);
        [Column::Identity, Column::Version].into_iter().chain(positions).collect()
    }

    pub(crate) fn column_name(&self, table: usize, column: Column) -> &str {
        match column {
            Column::Identity => IDENTITY,
            Column::Version => VERSION,
            Column::Schema(position) => &self.tables[table].schema.columns[position].name,
        }
    }

    pub(crate) fn column_type(&self, table: usize, column: Column) -> &ColumnType {
        match column {
            Column::Identity | Column::Version => &self.identity,
            Column::Schema(position) => &self.tables[table].schema.columns[position].kind,
        }
    }

    pub(crate) fn is_mutable(&self, table: usize, column: Column) -> bool {
        matches!(column, Column::Schema(position) if self.tables[table].schema.columns[position].mutable)
    }

    /// A row's values by name, without the two columns that every table has.
    pub(crate) fn named_values(&self, table: usize, row: &Row) -> RowValues {
        let columns = &self.tables[table].schema.columns;
        columns.iter().zip(&row.values).map(|(column, datum)| (column.name.clone(), datum.clone())).collect()
    }
}

impl TableLayout {
    fn new(schema: &TableSchema, positions: &BTreeMap<String, usize>) -> Self {
        let mut references = Vec::new();
        for (column, described) in schema.columns.iter().enumerate() {
            let mut add = |base: &BaseType, side| {
                let Some(reference) = &base.refers_to else { return };
                // A server rejects a schema that refers to an unknown table; here it is a plain uuid.
                let Some(&target) = positions.get(&reference.table) else { return };
                references.push(ReferenceColumn { column, side, target, strong: reference.strong });
            };
            add(&described.kind.key, Side::Key);
            if let Some(value) = &described.kind.value {
                add(value, Side::Value);
            }
        }
        Self { schema: schema.clone(), references }
    }

    pub(crate) fn default_values(&self) -> Vec<Datum> {
        self.schema.columns.iter().map(|column| column.kind.default_datum()).collect()
    }
}

impl Column {
    /// Value of this column in a row.
    pub(crate) fn of(self, uuid: Uuid, row: &Row) -> Cow<'_, Datum> {
        match self {
            Self::Identity => Cow::Owned(Datum::One(Atom::Uuid(uuid))),
            Self::Version => Cow::Owned(Datum::One(Atom::Uuid(row.version))),
            Self::Schema(position) => Cow::Borrowed(&row.values[position]),
        }
    }
}

impl ReferenceColumn {
    /// The rows that a value refers to, sorted; a map may refer to one more than once.
    pub(crate) fn targets(self, values: &[Datum]) -> Vec<Uuid> {
        let uuid = |atom: &Atom| if let Atom::Uuid(uuid) = atom { Some(*uuid) } else { None };
        let datum = &values[self.column];
        let mut targets: Vec<Uuid> = match (self.side, datum) {
            (Side::Key, Datum::Uuids(uuids)) => uuids.to_vec(),
            (Side::Key, _) => datum.atoms().filter_map(|atom| uuid(&atom)).collect(),
            (Side::Value, _) => datum.pairs().iter().filter_map(|pair| uuid(&pair.1)).collect(),
        };
        if self.side == Side::Value {
            targets.sort_unstable();
        }
        targets
    }
}
