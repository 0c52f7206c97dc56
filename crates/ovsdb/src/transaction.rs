//! Builds transactions whose operations have owners, and parses their results.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::datum::{Atom, Datum};
use crate::operation::{Condition, Mutation, Mutator, Operation, RowValues};
use crate::uuid::Uuid;

/// Error name for a reply that cannot be parsed: the transaction is in doubt.
pub(crate) const MALFORMED: &str = "malformed reply";

/// Owner of an operation; reported if it fails, so that the rest can be retried without it.
pub type Owner = Arc<str>;

/// Operations that take effect together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    operations: Vec<Operation>,
    owners: Vec<Option<Owner>>,
    owner: Option<Owner>,
}

impl Transaction {
    /// A transaction without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Operations added from here on belong to this owner.
    pub fn owned_by(&mut self, owner: impl Into<Owner>) -> &mut Self {
        self.owner = Some(owner.into());
        self
    }

    /// Operations added from here on have no owner.
    pub fn without_owner(&mut self) -> &mut Self {
        self.owner = None;
        self
    }

    /// Adds an operation and returns its index.
    pub fn push(&mut self, operation: Operation) -> usize {
        self.operations.push(operation);
        self.owners.push(self.owner.clone());
        self.operations.len() - 1
    }

    /// Inserts a row; the server generates its uuid.
    pub fn insert(&mut self, table: &str, row: Row) -> usize {
        self.push(Operation::Insert { table: table.into(), row: row.0, uuid: None, name: None })
    }

    /// Inserts a row with this UUID, which no row of the table may have.
    pub fn insert_with_uuid(&mut self, table: &str, uuid: Uuid, row: Row) -> usize {
        self.push(Operation::Insert { table: table.into(), row: row.0, uuid: Some(uuid), name: None })
    }

    /// Inserts a row that other operations of this transaction refer to by name.
    pub fn insert_named(&mut self, table: &str, name: &str, row: Row) -> usize {
        self.push(Operation::Insert { table: table.into(), row: row.0, uuid: None, name: Some(name.into()) })
    }

    /// Sets columns of the rows that match all conditions.
    pub fn update(&mut self, table: &str, conditions: Vec<Condition>, row: Row) -> usize {
        self.push(Operation::Update { table: table.into(), conditions, row: row.0 })
    }

    /// Changes columns of the rows that match all conditions.
    pub fn mutate(&mut self, table: &str, conditions: Vec<Condition>, mutations: Vec<Mutation>) -> usize {
        self.push(Operation::Mutate { table: table.into(), conditions, mutations })
    }

    /// Sets a key of a map of strings in one row, replacing its value.
    pub fn set_key(&mut self, table: &str, uuid: Uuid, column: &str, key: &str, value: &str) -> usize {
        let key = Atom::String(key.into());
        let pair = Datum::map([(key.clone(), Atom::String(value.into()))]);
        let mutations =
            vec![Mutation::new(column, Mutator::Delete, Datum::One(key)), Mutation::new(column, Mutator::Insert, pair)];
        self.mutate(table, vec![Condition::uuid(uuid)], mutations)
    }

    /// Deletes the rows that match all conditions.
    pub fn delete(&mut self, table: &str, conditions: Vec<Condition>) -> usize {
        self.push(Operation::Delete { table: table.into(), conditions })
    }

    /// Reads the rows that match all conditions.
    pub fn select(&mut self, table: &str, conditions: Vec<Condition>, columns: &[&str]) -> usize {
        let columns = (!columns.is_empty()).then(|| columns.iter().map(ToString::to_string).collect());
        self.push(Operation::Select { table: table.into(), conditions, columns })
    }

    /// Fails the transaction at once unless the row matches all conditions.
    pub fn require(&mut self, table: &str, uuid: Uuid, conditions: Vec<Condition>) -> usize {
        self.require_within(table, uuid, conditions, Duration::ZERO)
    }

    /// Fails the transaction unless the row matches all conditions within a time; the server waits.
    pub fn require_within(
        &mut self,
        table: &str,
        uuid: Uuid,
        mut conditions: Vec<Condition>,
        limit: Duration,
    ) -> usize {
        conditions.push(Condition::uuid(uuid));
        self.push(Operation::Wait {
            table: table.into(),
            conditions,
            columns: Some(vec!["_uuid".into()]),
            equal: true,
            rows: vec![RowValues::from([("_uuid".to_owned(), Datum::One(Atom::Uuid(uuid)))])],
            timeout: Some(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        })
    }

    /// Writes a comment into the server's log.
    pub fn comment(&mut self, comment: &str) -> usize {
        self.push(Operation::Comment(comment.into()))
    }

    /// Fails the transaction unless this client holds the lock.
    pub fn assert_lock(&mut self, lock: &str) -> usize {
        self.push(Operation::Assert { lock: lock.into() })
    }

    /// Makes the server roll the transaction back.
    pub fn abort(&mut self) -> usize {
        self.push(Operation::Abort)
    }

    /// Adds all operations of another transaction, with their owners.
    pub fn append(&mut self, other: &Self) {
        self.operations.extend_from_slice(&other.operations);
        self.owners.extend_from_slice(&other.owners);
    }

    /// In the order of execution.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Owner of the operation at an index.
    pub fn owner_of(&self, position: usize) -> Option<&Owner> {
        self.owners.get(position)?.as_ref()
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// A copy without the operations of one owner.
    #[must_use]
    pub fn without(&self, owner: &str) -> Self {
        let kept = self.operations.iter().zip(&self.owners).filter(|(_, other)| other.as_deref() != Some(owner));
        let (operations, owners) = kept.map(|(operation, owner)| (operation.clone(), owner.clone())).unzip();
        Self { operations, owners, owner: None }
    }

    /// The refusal of an operation; of the whole transaction if there is none at this position.
    pub(crate) fn refusal(&self, position: usize, error: ServerError) -> Refusal {
        let at = (position < self.operations.len()).then_some(position);
        let operation = at.map(|at| describe(&self.operations[at]));
        Refusal { position: at, owner: at.and_then(|at| self.owner_of(at).cloned()), operation, error }
    }

    /// Parses the server's reply to this transaction; a reply that does not fit it is the error `malformed reply`.
    pub fn read_reply(&self, answer: Vec<Value>) -> Result<Outcome, Refusal> {
        let mut results = Vec::with_capacity(self.operations.len());
        for (position, result) in answer.into_iter().enumerate() {
            if let Some(error) = ServerError::read(&result) {
                return Err(self.refusal(position, error));
            }
            if let Some(operation) = self.operations.get(position) {
                results.push(OperationResult::read(operation, &result).map_err(|problem| Refusal {
                    position: Some(position),
                    owner: self.owner_of(position).cloned(),
                    operation: Some(describe(operation)),
                    error: ServerError { error: MALFORMED.into(), details: Some(problem) },
                })?);
            }
        }
        if results.len() < self.operations.len() {
            let details = format!("{} results for {} operations", results.len(), self.operations.len());
            let error = ServerError { error: MALFORMED.into(), details: Some(details) };
            return Err(Refusal { position: None, owner: None, operation: None, error });
        }
        Ok(Outcome { results })
    }
}

fn describe(operation: &Operation) -> String {
    operation.table().map_or_else(|| operation.name().to_owned(), |table| format!("{} {table}", operation.name()))
}

/// Values of a row that is inserted or updated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row(pub RowValues);

impl Row {
    /// No values: all columns have their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a column; the last value counts. The server checks name and type.
    #[must_use]
    pub fn set(mut self, column: &str, value: impl Into<Datum>) -> Self {
        self.0.insert(column.to_owned(), value.into());
        self
    }

    /// Sets a column to a string.
    #[must_use]
    pub fn text(self, column: &str, text: &str) -> Self {
        self.set(column, Atom::String(text.into()))
    }

    /// Sets a column to a map of strings.
    #[must_use]
    pub fn map<'a>(self, column: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let pairs = pairs.into_iter().map(|(key, value)| (Atom::String(key.into()), Atom::String(value.into())));
        self.set(column, Datum::map(pairs))
    }
}

/// Results of a committed transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// One for each operation, in the order of the transaction.
    pub results: Vec<OperationResult>,
}

impl Outcome {
    /// Uuid of the row that the insert at an index created.
    pub fn inserted(&self, position: usize) -> Option<Uuid> {
        match self.results.get(position)? {
            OperationResult::Inserted(uuid) => Some(*uuid),
            _ => None,
        }
    }

    /// Number of rows that the update, mutation or deletion at an index matched.
    pub fn count(&self, position: usize) -> Option<u64> {
        match self.results.get(position)? {
            OperationResult::Count(count) => Some(*count),
            _ => None,
        }
    }

    /// Rows of the select at an index.
    pub fn rows(&self, position: usize) -> Option<&[Value]> {
        match self.results.get(position)? {
            OperationResult::Rows(rows) => Some(rows),
            _ => None,
        }
    }
}

/// What the server returned for an operation, by its kind.
#[derive(Debug, Clone, PartialEq)]
pub enum OperationResult {
    /// UUID of the inserted row, generated by the server unless one was given.
    Inserted(Uuid),
    /// Number of matched rows.
    Count(u64),
    /// Selected rows, as JSON objects.
    Rows(Vec<Value>),
    /// The operation has no result, e.g. `wait`, `assert` or `comment`.
    Done,
}

impl OperationResult {
    fn read(operation: &Operation, result: &Value) -> Result<Self, String> {
        let wrong = || format!("unexpected result of {}: {result}", operation.name());
        match operation {
            Operation::Insert { .. } => {
                let uuid =
                    result.get("uuid").and_then(|uuid| uuid.get(1)).and_then(Value::as_str).and_then(Uuid::parse);
                uuid.map(Self::Inserted).ok_or_else(wrong)
            }
            Operation::Update { .. } | Operation::Mutate { .. } | Operation::Delete { .. } => {
                result.get("count").and_then(Value::as_u64).map(Self::Count).ok_or_else(wrong)
            }
            Operation::Select { .. } => match result.get("rows").and_then(Value::as_array) {
                Some(rows) => Ok(Self::Rows(rows.clone())),
                None => Err(wrong()),
            },
            _ => Ok(Self::Done),
        }
    }
}

/// An error object of RFC 7047.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// Name of the error, such as `constraint violation` or `timed out`.
    pub error: String,
    /// The server's explanation, in words that differ between releases.
    pub details: Option<String>,
}

impl ServerError {
    /// Parses an error object; `None` if it is not one.
    pub fn read(result: &Value) -> Option<Self> {
        let error = match result.get("error")? {
            Value::Null => return None,
            Value::String(error) => error.clone(),
            other => other.to_string(),
        };
        Some(Self { error, details: result.get("details").and_then(Value::as_str).map(String::from) })
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.details {
            Some(details) => write!(f, "{}: {details}", self.error),
            None => f.write_str(&self.error),
        }
    }
}

/// A transaction that the server rejected: no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Index of the operation that failed; none if the commit failed.
    pub position: Option<usize>,
    /// Owner of the failed operation, so that the caller can retry without it; none if it has no owner, or the commit
    /// failed.
    pub owner: Option<Owner>,
    /// Operation and table, for the message.
    pub operation: Option<String>,
    /// As the server reported it.
    pub error: ServerError,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server rejected ")?;
        match (&self.operation, self.position) {
            (Some(operation), Some(position)) => write!(f, "operation {position} ({operation})")?,
            _ => f.write_str("the commit")?,
        }
        if let Some(owner) = &self.owner {
            write!(f, " of {owner}")?;
        }
        write!(f, ": {}", self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn two_owners() -> Transaction {
        let mut transaction = Transaction::new();
        transaction.owned_by("pod a/b").insert("Port", Row::new().text("name", "a"));
        transaction.owned_by("pod c/d").delete("Port", vec![Condition::equals("name", "x")]);
        transaction
    }

    #[test]
    fn results_are_returned_per_operation() {
        let uuid = Uuid::from_bytes([7; 16]);
        let outcome =
            two_owners().read_reply(vec![json!({"uuid": ["uuid", uuid.to_string()]}), json!({"count": 2})]).unwrap();
        assert_eq!((outcome.inserted(0), outcome.count(1), outcome.count(0)), (Some(uuid), Some(2), None));
    }

    #[test]
    fn a_refusal_names_its_owner_and_the_rest_can_be_retried() {
        let answer =
            vec![json!({"uuid": ["uuid", Uuid::ZERO.to_string()]}), json!({"error": "not allowed", "details": "no"})];
        let refusal = two_owners().read_reply(answer).unwrap_err();
        assert_eq!(refusal.owner.as_deref(), Some("pod c/d"));
        assert_eq!(refusal.to_string(), "the server rejected operation 1 (delete Port) of pod c/d: not allowed: no");
        let rest = two_owners().without("pod c/d");
        assert_eq!(rest.operations().len(), 1);
        assert_eq!(rest.owner_of(0).unwrap().as_ref(), "pod a/b");
    }

    #[test]
    fn an_error_at_commit_has_no_operation() {
        let answer = vec![
            json!({"uuid": ["uuid", Uuid::ZERO.to_string()]}),
            json!({"count": 1}),
            json!({"error": "referential integrity violation"}),
        ];
        let refusal = two_owners().read_reply(answer).unwrap_err();
        assert_eq!((refusal.position, refusal.owner), (None, None));
    }

    #[test]
    fn a_malformed_reply_is_an_error() {
        for answer in
            [vec![], vec![json!({})], vec![json!(null), json!(null)], vec![json!({"uuid": "x"}), json!({"count": 1})]]
        {
            assert!(two_owners().read_reply(answer.clone()).is_err(), "{answer:?}");
        }
    }
}
