//! Execution of single operations.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::condition::{self, Clause};
use super::fault::Fault;
use super::layout::{Column, Layout};
use super::mutation;
use super::names::{Names, is_id};
use super::pending::Pending;
use super::store::Row;
use super::value::{admit, check_atoms, row_to_json};
use crate::datum::{Atom, Datum};
use crate::operation::{Condition, Mutation, Operation, RowValues};
use crate::uuid::Uuid;

/// A transaction in progress.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) pending: Pending<'a>,
    pub(crate) names: Names<'a>,
    pub(crate) locks: &'a BTreeSet<String>,
}

/// Values of selected columns, for `wait` and `select`.
type Projection = Vec<Datum>;

impl Execution<'_> {
    /// Executes one operation and returns its result.
    pub(crate) fn run(&mut self, operation: &Operation) -> Result<Value, Fault> {
        match operation {
            Operation::Insert { table, row, uuid, name } => self.insert(table, row, *uuid, name.as_deref()),
            Operation::Select { table, conditions, columns } => self.select(table, conditions, columns.as_deref()),
            Operation::Update { table, conditions, row } => self.update(table, conditions, row),
            Operation::Mutate { table, conditions, mutations } => self.mutate(table, conditions, mutations),
            Operation::Delete { table, conditions } => self.delete(table, conditions),
            Operation::Wait { table, conditions, columns, equal, rows, timeout: _ } => {
                self.wait(table, conditions, columns.as_deref(), *equal, rows)
            }
            Operation::Commit { .. } | Operation::Comment(_) => Ok(json!({})),
            Operation::Abort => Err(Fault::aborted("aborted by request")),
            Operation::Assert { lock } if !is_id(lock) => Err(Fault::syntax(format!("invalid lock name {lock:?}"))),
            Operation::Assert { lock } if self.locks.contains(lock) => Ok(json!({})),
            Operation::Assert { lock } => Err(Fault::not_owner(format!("Asserted lock {lock} not held."))),
        }
    }

    fn insert(&mut self, table: &str, row: &RowValues, uuid: Option<Uuid>, name: Option<&str>) -> Result<Value, Fault> {
        let table = self.layout.position(table)?;
        if let Some(name) = name.filter(|name| !is_id(name)) {
            return Err(Fault::syntax(format!("invalid row name {name:?}")));
        }
        if uuid.is_some_and(|uuid| !self.pending.may_insert((table, uuid))) {
            return Err(Fault::duplicate_uuid("the uuid exists in the table, or was deleted by this transaction"));
        }
        let uuid = match (name, uuid) {
            (Some(name), explicit) => self.names.insert(name, explicit)?,
            (None, Some(explicit)) => explicit,
            (None, None) => self.names.fresh(),
        };
        let mut values = self.layout.tables[table].default_values();
        for (column, datum) in self.read_row(table, row)? {
            // `_uuid` and `_version` in the row are parsed and ignored.
            if let Column::Schema(position) = column {
                values[position] = datum;
            }
        }
        for (described, datum) in self.layout.tables[table].schema.columns.iter().zip(&values) {
            // Defaults may violate the constraints of the column.
            if datum.len() == 1 {
                check_atoms(datum, &described.kind)?;
            }
        }
        let version = self.names.fresh();
        self.pending.put((table, uuid), Row { version, values });
        Ok(json!({"uuid": ["uuid", uuid.to_string()]}))
    }

    fn select(&mut self, table: &str, conditions: &[Condition], columns: Option<&[String]>) -> Result<Value, Fault> {
        let (table, clauses) = self.read_conditions(table, conditions)?;
        let columns = self.read_columns(table, columns)?;
        // Equal projections are returned once.
        let mut seen: BTreeSet<Projection> = BTreeSet::new();
        let mut rows = Vec::new();
        for (uuid, row) in self.pending.matching(table, &clauses) {
            let projection = project(&columns, uuid, &row);
            if seen.insert(projection.clone()) {
                let names = columns.iter().map(|column| self.layout.column_name(table, *column).to_owned());
                rows.push(row_to_json(&names.zip(projection).collect()));
            }
        }
        Ok(json!({ "rows": rows }))
    }

    fn update(&mut self, table: &str, conditions: &[Condition], row: &RowValues) -> Result<Value, Fault> {
        let position = self.layout.position(table)?;
        let mut assignments = Vec::new();
        for (column, datum) in self.read_row(position, row)? {
            match column {
                Column::Schema(at) if self.layout.is_mutable(position, column) => assignments.push((at, datum)),
                _ => {
                    let name = self.layout.column_name(position, column);
                    return Err(Fault::constraint(format!("Cannot update immutable column {name}.")));
                }
            }
        }
        let (position, clauses) = self.read_conditions(table, conditions)?;
        let found = self.pending.matching(position, &clauses);
        for (uuid, row) in &found {
            let mut values = row.values.clone();
            for (at, datum) in &assignments {
                values[*at] = datum.clone();
            }
            self.pending.set_values((position, *uuid), values);
        }
        Ok(json!({"count": found.len()}))
    }

    fn mutate(&mut self, table: &str, conditions: &[Condition], mutations: &[Mutation]) -> Result<Value, Fault> {
        let position = self.layout.position(table)?;
        let steps = mutation::read(self.layout, position, mutations, &mut self.names)?;
        let (position, clauses) = self.read_conditions(table, conditions)?;
        let found = self.pending.matching(position, &clauses);
        for (uuid, row) in &found {
            let mut values = row.values.clone();
            steps.iter().try_for_each(|step| step.apply(&mut values))?;
            self.pending.set_values((position, *uuid), values);
        }
        Ok(json!({"count": found.len()}))
    }

    fn delete(&mut self, table: &str, conditions: &[Condition]) -> Result<Value, Fault> {
        let (table, clauses) = self.read_conditions(table, conditions)?;
        let found = self.pending.matching(table, &clauses);
        for (uuid, _) in &found {
            self.pending.delete((table, *uuid));
        }
        Ok(json!({"count": found.len()}))
    }

    fn wait(
        &mut self,
        table: &str,
        conditions: &[Condition],
        columns: Option<&[String]>,
        equal: bool,
        rows: &[RowValues],
    ) -> Result<Value, Fault> {
        let (table, clauses) = self.read_conditions(table, conditions)?;
        let columns = self.read_columns(table, columns)?;
        let expected =
            rows.iter().map(|row| self.expected(table, &columns, row)).collect::<Result<BTreeSet<_>, _>>()?;
        let found = self.pending.matching(table, &clauses);
        let actual: BTreeSet<Projection> = found.iter().map(|(uuid, row)| project(&columns, *uuid, row)).collect();
        if (actual == expected) == equal {
            return Ok(json!({}));
        }
        // No other client can change the database, so waiting is pointless.
        Err(Fault::timed_out("\"where\" clause test failed"))
    }

    /// A row as a `wait` describes it; unnamed columns have their default.
    fn expected(&mut self, table: usize, columns: &[Column], row: &RowValues) -> Result<Projection, Fault> {
        let mut expected = Row { version: Uuid::ZERO, values: self.layout.tables[table].default_values() };
        let mut identity = Uuid::ZERO;
        for (column, datum) in self.read_row(table, row)? {
            match (column, datum) {
                (Column::Identity, Datum::One(Atom::Uuid(uuid))) => identity = uuid,
                (Column::Version, Datum::One(Atom::Uuid(uuid))) => expected.version = uuid,
                (Column::Schema(position), datum) => expected.values[position] = datum,
                _ => {}
            }
        }
        Ok(project(columns, identity, &expected))
    }

    fn read_conditions(&mut self, table: &str, conditions: &[Condition]) -> Result<(usize, Vec<Clause>), Fault> {
        let table = self.layout.position(table)?;
        Ok((table, condition::read(self.layout, table, conditions, &mut self.names)?))
    }

    fn read_columns(&self, table: usize, names: Option<&[String]>) -> Result<Vec<Column>, Fault> {
        let Some(names) = names else { return Ok(self.layout.all_columns(table)) };
        let mut columns: Vec<Column> = Vec::with_capacity(names.len());
        for name in names {
            let column = self.layout.column(table, name);
            let column = column.ok_or_else(|| Fault::syntax(format!("{name} is not a valid column name")))?;
            if columns.contains(&column) {
                return Err(Fault::syntax("array of distinct column names expected"));
            }
            columns.push(column);
        }
        Ok(columns)
    }

    fn read_row(&mut self, table: usize, row: &RowValues) -> Result<Vec<(Column, Datum)>, Fault> {
        row.iter()
            .map(|(name, datum)| {
                let column = self.layout.require_column(table, name)?;
                Ok((column, admit(datum, self.layout.column_type(table, column), &mut self.names)?))
            })
            .collect()
    }
}

fn project(columns: &[Column], uuid: Uuid, row: &Row) -> Projection {
    columns.iter().map(|column| column.of(uuid, row).into_owned()).collect()
}
