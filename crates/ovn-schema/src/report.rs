//! Result of the check of a server's schema, and rows restricted to it.

use std::collections::BTreeMap;
use std::fmt;

use ovsdb::transaction::Row;

use crate::feature::{Feature, Features};
use crate::table::TableRow;
use crate::value::Shape;

/// Comparison of a server's schema with the declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Such as `OVN_Northbound`.
    pub database: String,
    /// Version of the server's schema.
    pub version: String,
    /// Unsupported features, with what they lack.
    pub off: Vec<FeatureOff>,
    /// Missing parts of the core; if any, the server is unusable.
    pub errors: Vec<Missing>,
    pub(crate) usable: BTreeMap<&'static str, Vec<Usable>>,
}

/// A column that exists with the declared type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usable {
    pub(crate) column: &'static str,
    pub(crate) writable: bool,
    pub(crate) changeable: bool,
}

/// A feature that a server does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureOff {
    /// Stays unused with this server.
    pub feature: Feature,
    /// What the server lacks for it.
    pub missing: Vec<Missing>,
}

/// A missing or different table, column or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// `Table`, `Table.column`, or the database.
    pub location: String,
    /// How the server's schema differs there.
    pub problem: Problem,
}

/// Difference between declaration and schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It does not exist.
    Absent,
    /// It has another type.
    OtherShape {
        /// Declared type.
        needed: Shape,
        /// Type in the server's schema.
        found: Shape,
    },
    /// The server does not allow this value.
    NotAllowed(&'static str),
}

impl Missing {
    pub(crate) fn table(table: &str) -> Self {
        Self { location: table.to_owned(), problem: Problem::Absent }
    }

    pub(crate) fn column(table: &str, column: &str, problem: Problem) -> Self {
        Self { location: format!("{table}.{column}"), problem }
    }

    pub(crate) fn database(name: &str) -> Self {
        Self { location: format!("the database {name}"), problem: Problem::Absent }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location)?;
        match &self.problem {
            Problem::Absent => Ok(()),
            Problem::OtherShape { needed, found } => write!(f, " as {needed} (it is {found})"),
            Problem::NotAllowed(word) => write!(f, " with the value {word:?}"),
        }
    }
}

impl Report {
    /// Features that this server supports.
    pub fn features(&self) -> Features {
        let off = self.off.iter().map(|off| off.feature);
        off.chain((!self.errors.is_empty()).then_some(Feature::Core)).collect()
    }

    /// Fails with everything that is missing of the core.
    pub fn require_core(&self) -> Result<(), CoreIncomplete> {
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(CoreIncomplete {
            database: self.database.clone(),
            version: self.version.clone(),
            missing: self.errors.clone(),
        })
    }

    /// One line per unsupported feature, for the log.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.off.iter().map(|FeatureOff { feature, missing }| {
            let (database, version) = (&self.database, &self.version);
            format!("{feature} is off: {}; {database} {version} lacks {}", feature.loss(), list(missing))
        })
    }

    /// Usable columns of a table, for monitoring; empty if the table does not exist.
    pub fn columns_present(&self, table: &str) -> impl Iterator<Item = &'static str> + '_ {
        self.usable.get(table).into_iter().flatten().map(|usable| usable.column)
    }

    /// A row to insert: columns with values other than the default, without those that OVN writes.
    pub fn insert_row<R: TableRow>(&self, row: &R) -> Result<Row, Unsupported> {
        let mut values = row.to_sparse_row();
        self.reject_unknown::<R>(&values)?;
        values.0.retain(|column, _| self.find::<R>(column).is_some_and(|usable| usable.writable));
        Ok(values)
    }

    /// A row to update: without columns that OVN writes, and without immutable ones.
    pub fn update_row<R: TableRow>(&self, row: &R) -> Result<Row, Unsupported> {
        self.reject_unknown::<R>(&row.to_sparse_row())?;
        let mut values = row.to_row();
        values.0.retain(|column, _| self.find::<R>(column).is_some_and(|usable| usable.changeable));
        Ok(values)
    }

    fn find<R: TableRow>(&self, column: &str) -> Option<&Usable> {
        self.usable.get(R::TABLE)?.iter().find(|usable| usable.column == column)
    }

    /// Fails if a value has no column on the server.
    fn reject_unknown<R: TableRow>(&self, values: &Row) -> Result<(), Unsupported> {
        let table = R::DECLARATION;
        let lost = table
            .columns
            .iter()
            .find(|column| values.0.contains_key(column.name) && self.find::<R>(column.name).is_none());
        match lost {
            Some(column) => Err(Unsupported {
                table: table.name,
                column: column.name,
                feature: column.feature.unwrap_or(table.feature),
            }),
            None => Ok(()),
        }
    }
}

fn list(missing: &[Missing]) -> String {
    let locations: Vec<String> = missing.iter().map(ToString::to_string).collect();
    locations.join(", ")
}

/// The server lacks parts of the core.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{database} {version} is not supported: it lacks {}; upgrade OVN or Open vSwitch", list(.missing))]
pub struct CoreIncomplete {
    /// Such as `OVN_Northbound`.
    pub database: String,
    /// Version of the server's schema.
    pub version: String,
    /// Of the core only: without other features the server is usable.
    pub missing: Vec<Missing>,
}

/// A value for a column that the server lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{table}.{column} has a value, but the server has no such column: {feature} is off")]
pub struct Unsupported {
    /// As in the schema, such as `ACL`.
    pub table: &'static str,
    /// As in the schema, such as `tier`.
    pub column: &'static str,
    /// The feature that the column belongs to.
    pub feature: Feature,
}
