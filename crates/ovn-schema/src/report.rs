//! What the check of a server's schema found, and what can be written to that server.

use std::collections::BTreeMap;
use std::fmt;

use ovsdb::transaction::Row;

use crate::feature::{Feature, Features};
use crate::table::TableRow;
use crate::value::Shape;

/// What a server's schema has of what was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The server's database.
    pub database: String,
    /// Its schema's version.
    pub version: String,
    /// Features that do not work there, each with what it misses.
    pub off: Vec<FeatureOff>,
    /// What is missing of the core: with any of it, nothing works.
    pub errors: Vec<Missing>,
    pub(crate) usable: BTreeMap<&'static str, Vec<Usable>>,
}

/// A column that is there and fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usable {
    pub(crate) column: &'static str,
    pub(crate) writable: bool,
    pub(crate) changeable: bool,
}

/// A feature that does not work with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureOff {
    /// The feature.
    pub feature: Feature,
    /// What it would need.
    pub missing: Vec<Missing>,
}

/// Something that the server's schema does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Where: `Table`, `Table.column`, or the database.
    pub place: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a table or column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It is not there.
    Absent,
    /// It is there, but holds other values.
    OtherShape {
        /// What was declared.
        needed: Shape,
        /// What the server has.
        found: Shape,
    },
    /// The server does not allow this string in it.
    NotAllowed(&'static str),
}

impl Missing {
    pub(crate) fn table(table: &str) -> Self {
        Self { place: table.to_owned(), problem: Problem::Absent }
    }

    pub(crate) fn column(table: &str, column: &str, problem: Problem) -> Self {
        Self { place: format!("{table}.{column}"), problem }
    }

    pub(crate) fn database(name: &str) -> Self {
        Self { place: format!("the database {name}"), problem: Problem::Absent }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)?;
        match &self.problem {
            Problem::Absent => Ok(()),
            Problem::OtherShape { needed, found } => write!(f, " as {needed} (it is {found})"),
            Problem::NotAllowed(word) => write!(f, " with the value {word:?}"),
        }
    }
}

impl Report {
    /// Which features work with this server.
    pub fn features(&self) -> Features {
        let off = self.off.iter().map(|off| off.feature);
        off.chain((!self.errors.is_empty()).then_some(Feature::Core)).collect()
    }

    /// An error that names all that is missing of the core, if anything is.
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

    /// One line for each feature that is off, for the log.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.off.iter().map(|FeatureOff { feature, missing }| {
            let (database, version) = (&self.database, &self.version);
            format!("{feature} is off: {}; {database} {version} lacks {}", feature.loss(), list(missing))
        })
    }

    /// The columns of a table that are there and fit: what can be monitored. None if the table is not there.
    pub fn columns_present(&self, table: &str) -> impl Iterator<Item = &'static str> + '_ {
        self.usable.get(table).into_iter().flatten().map(|usable| usable.column)
    }

    /// A new row for this server: the columns that are not the default. What OVN tells in it is left out.
    pub fn insert_row<R: TableRow>(&self, row: &R) -> Result<Row, Unsupported> {
        let mut values = row.to_sparse_row();
        self.refuse_unknown::<R>(&values)?;
        values.0.retain(|column, _| self.find::<R>(column).is_some_and(|usable| usable.writable));
        Ok(values)
    }

    /// All that an update of a row may set on this server: not what OVN tells in it, nor what cannot change.
    pub fn update_row<R: TableRow>(&self, row: &R) -> Result<Row, Unsupported> {
        self.refuse_unknown::<R>(&row.to_sparse_row())?;
        let mut values = row.to_row();
        values.0.retain(|column, _| self.find::<R>(column).is_some_and(|usable| usable.changeable));
        Ok(values)
    }

    fn find<R: TableRow>(&self, column: &str) -> Option<&Usable> {
        self.usable.get(R::TABLE)?.iter().find(|usable| usable.column == column)
    }

    /// A value that the server has no place for must not get lost in silence.
    fn refuse_unknown<R: TableRow>(&self, values: &Row) -> Result<(), Unsupported> {
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
    let places: Vec<String> = missing.iter().map(ToString::to_string).collect();
    places.join(", ")
}

/// A server that cannot be worked with at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{database} {version} cannot be used: it lacks {}; a newer OVN or Open vSwitch is needed", list(.missing))]
pub struct CoreIncomplete {
    /// The server's database.
    pub database: String,
    /// Its schema's version.
    pub version: String,
    /// What it lacks.
    pub missing: Vec<Missing>,
}

/// A value for a column that the server does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{table}.{column} has a value, but the server has no such column: {feature} is off")]
pub struct Unsupported {
    /// The table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// The feature that should not have been used.
    pub feature: Feature,
}
