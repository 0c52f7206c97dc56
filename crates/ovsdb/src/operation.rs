//! Operations of a transaction, as in RFC 7047.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeTuple, Serializer};

use crate::datum::{Atom, Datum};
use crate::uuid::Uuid;

/// Values by column name.
pub type RowValues = BTreeMap<String, Datum>;

/// Comparison of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `<`, of numbers.
    Less,
    /// `<=`, of numbers.
    LessOrEqual,
    /// `==`, of any type; for sets and maps, all members.
    Equal,
    /// `!=`, the opposite of `==`.
    NotEqual,
    /// `>=`, of numbers.
    GreaterOrEqual,
    /// `>`, of numbers.
    Greater,
    /// The column contains all of the value.
    Includes,
    /// The column contains none of the value.
    Excludes,
}

impl Function {
    /// As on the wire, such as `includes`.
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

/// Selects rows. All conditions of a list must be true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Name of the column, or `_uuid`.
    pub column: String,
    /// How the column is compared with the value.
    pub function: Function,
    /// What the column is compared with.
    pub value: Datum,
}

impl Condition {
    /// For functions without a constructor of their own.
    pub fn new(column: impl Into<String>, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), function, value: value.into() }
    }

    /// Matches the row with this uuid.
    pub fn uuid(uuid: Uuid) -> Self {
        Self::new("_uuid", Function::Equal, Atom::Uuid(uuid))
    }

    /// Matches rows whose column equals a string.
    pub fn equals(column: impl Into<String>, text: &str) -> Self {
        Self::new(column, Function::Equal, Atom::String(text.into()))
    }
}

/// Operator of a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutator {
    /// `+=`, on each number of the column.
    Add,
    /// `-=`, on each number of the column.
    Subtract,
    /// `*=`, on each number of the column.
    Multiply,
    /// `/=`, on each number of the column; by zero is an error.
    Divide,
    /// `%=`, on each integer of the column; by zero is an error.
    Modulo,
    /// Adds atoms to a set, or pairs to a map unless the key exists.
    Insert,
    /// Removes atoms from a set, or pairs (or keys) from a map.
    Delete,
}

impl Mutator {
    /// As on the wire, such as `insert`.
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

/// A change of one column relative to its current value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// As in the schema; never `_uuid`.
    pub column: String,
    /// How it changes.
    pub mutator: Mutator,
    /// Operand. To delete keys of a map, a set of keys.
    pub value: Datum,
}

impl Mutation {
    /// Not checked against the schema; the server does.
    pub fn new(column: impl Into<String>, mutator: Mutator, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), mutator, value: value.into() }
    }
}

/// One operation; a transaction executes all of its operations or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Inserts a row; named or with a chosen UUID, so that other operations can refer to it.
    Insert {
        /// Name of the table.
        table: String,
        /// Values; other columns get their defaults.
        row: RowValues,
        /// Uuid of the row; the server generates one if `None`.
        uuid: Option<Uuid>,
        /// Name for references within the transaction ([`Atom::Named`]).
        name: Option<String>,
    },
    /// Reads rows.
    Select {
        /// Name of the table.
        table: String,
        /// Rows that match all of these.
        conditions: Vec<Condition>,
        /// Columns to return; all if `None`.
        columns: Option<Vec<String>>,
    },
    /// Sets columns of rows.
    Update {
        /// Name of the table.
        table: String,
        /// Rows that match all of these.
        conditions: Vec<Condition>,
        /// New values of the named columns.
        row: RowValues,
    },
    /// Changes columns of rows relative to their values.
    Mutate {
        /// Name of the table.
        table: String,
        /// Rows that match all of these.
        conditions: Vec<Condition>,
        /// Applied in order.
        mutations: Vec<Mutation>,
    },
    /// Deletes the rows that match; it is not an error if none does.
    Delete {
        /// Name of the table.
        table: String,
        /// Rows that match all of these.
        conditions: Vec<Condition>,
    },
    /// Fails the transaction unless the rows are (or are not) as given.
    Wait {
        /// Name of the table.
        table: String,
        /// Rows that match all of these.
        conditions: Vec<Condition>,
        /// Columns to compare; all if `None`.
        columns: Option<Vec<String>>,
        /// True: must equal `rows`; false: must differ.
        equal: bool,
        /// Expected values of the compared columns, a row each.
        rows: Vec<RowValues>,
        /// Milliseconds that the server may wait; 0: not at all.
        timeout: Option<u64>,
    },
    /// Requests that the transaction is on disk before the reply.
    Commit {
        /// Whether the transaction must be on disk.
        durable: bool,
    },
    /// Fails the transaction.
    Abort,
    /// A comment for the server's log.
    Comment(
        /// Text of the comment.
        String,
    ),
    /// Fails the transaction unless this client holds the lock.
    Assert {
        /// As the client requested it.
        lock: String,
    },
}

impl Operation {
    /// As on the wire, such as `mutate`.
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

    /// Name of its table; some operations have none.
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

/// Parameters of a `transact` request: the database, then the operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransactParameters<'a> {
    pub(crate) database: &'a str,
    pub(crate) operations: &'a [Operation],
    /// Appends an `abort`.
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
    fn operations_serialize_to_the_json_of_rfc_7047() {
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
