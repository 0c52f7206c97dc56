//! Commits that happen once. OVSDB on raft is at-least-once: an answer may be lost, and nobody says whether the
//! transaction took effect. Here each transaction requires a sequence number in the database and raises it, so that
//! one look settles the matter, sending again is safe, and a writer who was replaced cannot write any more.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::error::CallError;
use crate::client::handle::Client;
use crate::datum::{Atom, Datum};
use crate::operation::{Condition, Function};
use crate::transaction::{Outcome, Refusal, Transaction};
use crate::uuid::Uuid;

/// Where the sequence number lives: one key of a map of strings in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceCell {
    /// The table.
    pub table: String,
    /// The row.
    pub uuid: Uuid,
    /// The column, a map of strings to strings.
    pub column: String,
    /// The key.
    pub key: String,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The results, unless the answer was lost and the commit was found to have happened.
    pub outcome: Option<Outcome>,
    /// How often it was sent.
    pub sent: u32,
}

/// A commit that did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The server refused it; nothing happened, and the next commit may go on.
    #[error("{0}")]
    Refused(Refusal),
    /// Another writer has taken over; nothing happened, and nothing of this writer will.
    #[error("another writer has taken over: the sequence is {found:?}, ours was {expected:?}")]
    Deposed {
        /// What stands in the cell.
        found: Option<String>,
        /// What we left there.
        expected: Option<String>,
    },
    /// It could not be settled in time. The next commit begins by settling it.
    #[error("it is not known yet whether it happened: {0}")]
    Unsettled(CallError),
    /// It was not sent; nothing happened.
    #[error("{0}")]
    Call(CallError),
}

/// The one writer. It commits one transaction at a time, which is also the fastest way: batch instead of pipelining.
#[derive(Debug)]
pub struct Committer {
    client: Client,
    cell: SequenceCell,
    writer: String,
    number: u64,
    /// What the cell held after our last commit.
    last: Option<String>,
    /// The number that we do not know the fate of.
    doubt: Option<u64>,
}

impl Committer {
    /// Takes over: raises the sequence under this writer's name, which no writer may have had before. From then on
    /// every transaction of a former writer fails.
    pub async fn take_over(
        client: Client,
        cell: SequenceCell,
        writer: impl Into<String>,
        limit: Duration,
    ) -> Result<Self, CommitError> {
        let mut committer = Self { client, cell, writer: writer.into(), number: 0, last: None, doubt: None };
        let deadline = Instant::now() + limit;
        loop {
            committer.last = committer.look(deadline).await?;
            match committer.commit_until(&Transaction::new(), deadline).await {
                Ok(_) => return Ok(committer),
                // Somebody else raised it between look and commit: it is a race, and it goes on until one is last.
                Err(CommitError::Deposed { .. }) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits a transaction: once, or not at all, or [`CommitError::Unsettled`] until the next call.
    pub async fn commit(&mut self, transaction: &Transaction, limit: Duration) -> Result<Committed, CommitError> {
        let deadline = Instant::now() + limit;
        self.settle(deadline).await?;
        self.commit_until(transaction, deadline).await
    }

    /// What this writer's sequence stands at.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn value(&self, number: u64) -> String {
        format!("{}:{number}", self.writer)
    }

    /// Finds out what became of a commit whose answer was lost.
    async fn settle(&mut self, deadline: Instant) -> Result<(), CommitError> {
        let Some(number) = self.doubt else { return Ok(()) };
        let found = self.look(deadline).await?;
        let ours = self.value(number);
        if found.as_deref() == Some(&ours) {
            self.number = number;
            self.last = Some(ours);
        } else if found != self.last {
            return Err(CommitError::Deposed { found, expected: self.last.clone() });
        }
        // Even if it is still under way: the next one requires the same number, and only one of them can have it.
        self.doubt = None;
        Ok(())
    }

    async fn commit_until(&mut self, transaction: &Transaction, deadline: Instant) -> Result<Committed, CommitError> {
        let number = self.number + 1;
        let next = self.value(number);
        let guarded = self.guarded(transaction, &next);
        let mut sent = 0;
        loop {
            let limit = deadline.saturating_duration_since(Instant::now());
            sent += 1;
            match self.client.transact_within(&guarded, limit).await {
                Ok(mut outcome) => {
                    self.done(number, next);
                    outcome.results.drain(..1);
                    outcome.results.truncate(transaction.operations().len());
                    return Ok(Committed { outcome: Some(outcome), sent });
                }
                Err(CallError::Refused(refusal)) if refusal.place == Some(0) => {
                    let found = self.look(deadline).await.inspect_err(|_| self.doubt = Some(number))?;
                    if found.as_deref() == Some(&next) {
                        // An earlier sending had happened after all.
                        self.done(number, next);
                        return Ok(Committed { outcome: None, sent });
                    }
                    return Err(CommitError::Deposed { found, expected: self.last.clone() });
                }
                Err(CallError::Refused(mut refusal)) => {
                    self.doubt = None;
                    refusal.place = refusal.place.map(|place| place - 1);
                    return Err(CommitError::Refused(refusal));
                }
                Err(error) if error.is_unsettled() => {
                    self.doubt = Some(number);
                    if Instant::now() >= deadline {
                        return Err(CommitError::Unsettled(error));
                    }
                    if self.look(deadline).await?.as_deref() == Some(&next) {
                        self.done(number, next);
                        return Ok(Committed { outcome: None, sent });
                    }
                }
                Err(error) if self.doubt.is_some() => return Err(CommitError::Unsettled(error)),
                Err(error) => return Err(CommitError::Call(error)),
            }
        }
    }

    fn done(&mut self, number: u64, value: String) {
        self.number = number;
        self.last = Some(value);
        self.doubt = None;
    }

    /// The transaction between its guard and the raising of the sequence.
    fn guarded(&self, transaction: &Transaction, next: &str) -> Transaction {
        let SequenceCell { table, uuid, column, key } = &self.cell;
        let mut guarded = Transaction::new();
        let key_atom = Atom::String(key.as_str().into());
        // Where nobody has written yet there is nothing to require but the row: of two who begin at once, the later
        // has it, and the earlier is told at its next commit.
        let guard = self.last.as_ref().map(|last| {
            let pair = Datum::map([(key_atom, Atom::String(last.as_str().into()))]);
            Condition::new(column, Function::Includes, pair)
        });
        guarded.require(table, *uuid, guard.into_iter().collect());
        guarded.append(transaction);
        guarded.owned_by_nobody().set_key(table, *uuid, column, key, next);
        guarded
    }

    /// What stands in the cell now, as the server says.
    async fn look(&self, deadline: Instant) -> Result<Option<String>, CommitError> {
        let SequenceCell { table, uuid, column, key } = &self.cell;
        let mut select = Transaction::new();
        let place = select.select(table, vec![Condition::uuid(*uuid)], &[column]);
        loop {
            let limit = deadline.saturating_duration_since(Instant::now());
            match self.client.transact_within(&select, limit).await {
                Ok(outcome) => {
                    let row = outcome.rows(place).and_then(|rows| rows.first()).and_then(|row| row.get(column));
                    let pairs = row.and_then(|map| map.get(1)).and_then(serde_json::Value::as_array);
                    let pair = pairs
                        .into_iter()
                        .flatten()
                        .find(|pair| pair.get(0).and_then(serde_json::Value::as_str) == Some(key));
                    return Ok(pair.and_then(|pair| pair.get(1)).and_then(serde_json::Value::as_str).map(String::from));
                }
                // A look may be repeated freely.
                Err(error) if error.is_unsettled() && Instant::now() < deadline => {}
                Err(error) => return Err(CommitError::Unsettled(error)),
            }
        }
    }
}
