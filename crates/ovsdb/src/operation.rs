//! The operations of a transaction, as RFC 7047 has them.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeTuple, Serializer};

use crate::datum::{Atom, Datum};
use crate::uuid::Uuid;

/// Values by column name.
pub type RowValues = BTreeMap<String, Datum>;

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `<`, of numbers.
    Less,
    /// `<=`, of numbers.
    LessOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`, of numbers.
    GreaterOrEqual,
    /// `>`, of numbers.
    Greater,
    /// The column holds all of the value.
    Includes,
    /// The column holds none of the value.
    Excludes,
}

impl Function {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::GreaterOrEqual => ">=",
            Self::Greater => ">",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
        }
    }
}

/// Which rows are meant. All conditions of a list must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The column; `_uuid` is one too.
    pub column: String,
    /// How it is compared.
    pub function: Function,
    /// With what.
    pub value: Datum,
}

impl Condition {
    /// Any condition.
    pub fn new(column: impl Into<String>, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), function, value: value.into() }
    }

    /// The row of this identity.
    pub fn uuid(uuid: Uuid) -> Self {
        Self::new("_uuid", Function::Equal, Atom::Uuid(uuid))
    }

    /// The rows whose column is equal to a string.
    pub fn equals(column: impl Into<String>, text: &str) -> Self {
        Self::new(column, Function::Equal, Atom::String(text.into()))
    }
}

/// How a mutation changes a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutator {
    /// `+=`
    Add,
    /// `-=`
    Subtract,
    /// `*=`
    Multiply,
    /// `/=`
    Divide,
    /// `%=`
    Modulo,
    /// Adds atoms to a set, or pairs to a map whose keys are not there yet.
    Insert,
    /// Removes atoms from a set, or pairs (or keys) from a map.
    Delete,
}

impl Mutator {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "+=",
            Self::Subtract => "-=",
            Self::Multiply => "*=",
            Self::Divide => "/=",
            Self::Modulo => "%=",
            Self::Insert => "insert",
            Self::Delete => "delete",
        }
    }
}

/// A change of one column, without knowing what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The column.
    pub column: String,
    /// How it changes.
    pub mutator: Mutator,
    /// By what. To delete keys of a map, a set of keys.
    pub value: Datum,
}

impl Mutation {
    /// Any mutation.
    pub fn new(column: impl Into<String>, mutator: Mutator, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), mutator, value: value.into() }
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A new row.
    Insert {
        /// The table.
        table: String,
        /// Its values; columns that are not named get their defaults.
        row: RowValues,
        /// The identity that it shall have; the server chooses one otherwise.
        uuid: Option<Uuid>,
        /// A name by which other operations of the transaction refer to it ([`Atom::Named`]).
        name: Option<String>,
    },
    /// Reads rows.
    Select {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns; all if not said.
        columns: Option<Vec<String>>,
    },
    /// Sets columns of rows.
    Update {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// The new values.
        row: RowValues,
    },
    /// Changes columns of rows by what they hold.
    Mutate {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// How.
        mutations: Vec<Mutation>,
    },
    /// Deletes rows.
    Delete {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
    },
    /// Fails the transaction unless rows are as they are said to be.
    Wait {
        /// The table.
        table: String,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns are compared; all if not said.
        columns: Option<Vec<String>>,
        /// Whether they must be equal to `rows`, or must not.
        equal: bool,
        /// The rows to compare with.
        rows: Vec<RowValues>,
        /// How many milliseconds the server may wait for it; 0 is not at all.
        timeout: Option<u64>,
    },
    /// Asks for the transaction to be on disk before the answer.
    Commit {
        /// Whether it must be.
        durable: bool,
    },
    /// Fails the transaction.
    Abort,
    /// A word for the server's log.
    Comment(
        /// The word.
        String,
    ),
    /// Fails the transaction unless this client holds the lock.
    Assert {
        /// The lock's name.
        lock: String,
    },
}

impl Operation {
    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Insert { .. } => "insert",
            Self::Select { .. } => "select",
            Self::Update { .. } => "update",
            Self::Mutate { .. } => "mutate",
            Self::Delete { .. } => "delete",
            Self::Wait { .. } => "wait",
            Self::Commit { .. } => "commit",
            Self::Abort => "abort",
            Self::Comment(_) => "comment",
            Self::Assert { .. } => "assert",
        }
    }

    /// The table that it is about.
    pub fn table(&self) -> Option<&str> {
        match self {
            Self::Insert { table, .. }
            | Self::Select { table, .. }
            | Self::Update { table, .. }
            | Self::Mutate { table, .. }
            | Self::Delete { table, .. }
            | Self::Wait { table, .. } => Some(table),
            _ => None,
        }
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        triple(serializer, &self.column, self.function.name(), &self.value)
    }
}

impl Serialize for Mutation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        triple(serializer, &self.column, self.mutator.name(), &self.value)
    }
}

fn triple<S: Serializer>(serializer: S, column: &str, word: &str, value: &Datum) -> Result<S::Ok, S::Error> {
    let mut tuple = serializer.serialize_tuple(3)?;
    tuple.serialize_element(column)?;
    tuple.serialize_element(word)?;
    tuple.serialize_element(value)?;
    tuple.end()
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("op", self.name())?;
        if let Some(table) = self.table() {
            map.serialize_entry("table", table)?;
        }
        match self {
            Self::Insert { row, uuid, name, .. } => {
                map.serialize_entry("row", row)?;
                if let Some(uuid) = uuid {
                    map.serialize_entry("uuid", &uuid.to_string())?;
                }
                if let Some(name) = name {
                    map.serialize_entry("uuid-name", name)?;
                }
            }
            Self::Select { conditions, columns, .. } => {
                map.serialize_entry("where", conditions)?;
                if let Some(columns) = columns {
                    map.serialize_entry("columns", columns)?;
                }
            }
            Self::Update { conditions, row, .. } => {
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("row", row)?;
            }
            Self::Mutate { conditions, mutations, .. } => {
                map.serialize_entry("where", conditions)?;
                map.serialize_entry("mutations", mutations)?;
            }
            Self::Delete { conditions, .. } => map.serialize_entry("where", conditions)?,
            Self::Wait { conditions, columns, equal, rows, timeout, .. } => {
                map.serialize_entry("where", conditions)?;
                if let Some(columns) = columns {
                    map.serialize_entry("columns", columns)?;
                }
                map.serialize_entry("until", if *equal { "==" } else { "!=" })?;
                map.serialize_entry("rows", rows)?;
                if let Some(timeout) = timeout {
                    map.serialize_entry("timeout", timeout)?;
                }
            }
            Self::Commit { durable } => map.serialize_entry("durable", durable)?,
            Self::Abort => {}
            Self::Comment(comment) => map.serialize_entry("comment", comment)?,
            Self::Assert { lock } => map.serialize_entry("lock", lock)?,
        }
        map.end()
    }
}

/// The parameters of a `transact` request: the database, then the operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransactParameters<'a> {
    pub(crate) database: &'a str,
    pub(crate) operations: &'a [Operation],
    /// An `abort` at the end makes it a rehearsal.
    pub(crate) dry_run: bool,
}

impl Serialize for TransactParameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        sequence.serialize_element(self.database)?;
        for operation in self.operations {
            sequence.serialize_element(operation)?;
        }
        if self.dry_run {
            sequence.serialize_element(&Operation::Abort)?;
        }
        sequence.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_written_as_the_standard_has_them() {
        let json = |operation: &Operation| serde_json::to_value(operation).unwrap();
        let uuid = Uuid::from_bytes([1; 16]);
        let row = RowValues::from([("name".to_owned(), Datum::One(Atom::String("sw".into())))]);
        let insert =
            Operation::Insert { table: "T".into(), row: row.clone(), uuid: Some(uuid), name: Some("r".into()) };
        assert_eq!(
            json(&insert),
            serde_json::json!({"op": "insert", "table": "T", "row": {"name": "sw"}, "uuid": uuid.to_string(), "uuid-name": "r"})
        );
        let wait = Operation::Wait {
            table: "T".into(),
            conditions: vec![Condition::uuid(uuid)],
            columns: Some(vec!["name".into()]),
            equal: true,
            rows: vec![row],
            timeout: Some(0),
        };
        assert_eq!(
            json(&wait),
            serde_json::json!({"op": "wait", "table": "T", "where": [["_uuid", "==", ["uuid", uuid.to_string()]]],
                "columns": ["name"], "until": "==", "rows": [{"name": "sw"}], "timeout": 0})
        );
        let mutate = Operation::Mutate {
            table: "T".into(),
            conditions: vec![],
            mutations: vec![Mutation::new("ports", Mutator::Insert, Atom::Named("r".into()))],
        };
        assert_eq!(
            json(&mutate),
            serde_json::json!({"op": "mutate", "table": "T", "where": [], "mutations": [["ports", "insert", ["named-uuid", "r"]]]})
        );
    }
}
