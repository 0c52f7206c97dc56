//! Exactly-once, fenced commits. OVSDB on raft is at-least-once: a reply may be lost, which leaves the commit in doubt.
//! Each transaction therefore requires the sequence value that the previous one left, and replaces it: one read
//! resolves the doubt, a retransmission is safe, and the transactions of a former writer fail.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::error::CallError;
use crate::client::handle::Client;
use crate::operation::Condition;
use crate::sequence::SequenceCell;
use crate::transaction::{Outcome, Refusal, Transaction};
use crate::uuid::Uuid;

/// A commit that took effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// None if the reply was lost and the sequence cell showed that the commit took effect.
    pub outcome: Option<Outcome>,
    /// How often it was sent, retransmissions included.
    pub sent: u32,
}

/// How a commit that was in doubt was resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It took effect.
    Committed,
    /// It did not, and is fenced: it never will.
    NotCommitted,
}

/// A commit that did not succeed, or is in doubt.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The server rejected it: no effect; the next commit may follow.
    #[error("{0}")]
    Refused(Refusal),
    /// Another writer has taken over; no later commit of this writer can succeed.
    #[error("{}", fenced(found.as_deref(), expected.as_deref()))]
    Fenced {
        /// The value in the sequence cell.
        found: Option<String>,
        /// The value of this writer's last commit.
        expected: Option<String>,
    },
    /// In doubt at the deadline: call [`Committer::resolve`] before the next commit.
    #[error("commit in doubt: {0}")]
    Unresolved(CallError),
    /// An earlier commit is in doubt: call [`Committer::resolve`] first.
    #[error("an earlier commit is in doubt; resolve it first")]
    InDoubt,
    /// The row of the sequence cell does not exist.
    #[error("no row {uuid} in {table} for the sequence cell")]
    NoCell {
        /// Table in which the row was expected.
        table: String,
        /// Row that was deleted, or never existed.
        uuid: Uuid,
    },
    /// It was not sent: no effect.
    #[error("{0}")]
    Call(CallError),
}

fn fenced(found: Option<&str>, expected: Option<&str>) -> String {
    let ours = expected.unwrap_or("none");
    match found {
        Some(found) => format!("another writer has taken over: the sequence value is {found}, ours was {ours}"),
        None => {
            format!(
                "the sequence value is missing, ours was {ours}: the database was emptied, or another client removed it"
            )
        }
    }
}

/// The only writer of a database. It commits one transaction at a time: batching is faster than pipelining.
#[derive(Debug)]
pub struct Committer {
    client: Client,
    cell: SequenceCell,
    writer: String,
    /// Counts sequence values. Never reused, so the cell identifies the last transaction.
    number: u64,
    /// Sequence value of the last commit.
    last: Option<String>,
    /// Sequence value of the commit in doubt. Set before it is sent, so that it survives a cancelled call.
    doubt: Option<String>,
    /// Sequence values of fences against that commit that are in doubt themselves.
    fences: Vec<String>,
}

impl Committer {
    /// Takes over: writes a sequence value with this writer's name, which no earlier writer may have used.
    /// From then on, all transactions of former writers fail.
    pub async fn take_over(
        client: Client,
        cell: SequenceCell,
        writer: impl Into<String>,
        limit: Duration,
    ) -> Result<Self, CommitError> {
        let mut committer =
            Self { client, cell, writer: writer.into(), number: 0, last: None, doubt: None, fences: Vec::new() };
        let deadline = Instant::now() + limit;
        loop {
            committer.last = committer.read_cell(deadline).await?;
            match committer.commit_until(&Transaction::new(), deadline).await {
                Ok(_) => return Ok(committer),
                // Another writer committed between read and commit; retry.
                Err(CommitError::Fenced { .. }) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits a transaction exactly once or not at all; [`CommitError::Unresolved`] if neither is certain within
    /// `limit`.
    pub async fn commit(&mut self, transaction: &Transaction, limit: Duration) -> Result<Committed, CommitError> {
        if self.doubt.is_some() {
            return Err(CommitError::InDoubt);
        }
        self.commit_until(transaction, Instant::now() + limit).await
    }

    /// Sequence value of the last commit: a replica that has this value has all commits up to it.
    pub fn sequence(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Whether [`Committer::resolve`] must be called before the next commit.
    pub fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Resolves a commit that is in doubt: if it has not taken effect, it is fenced, so that a copy in flight cannot
    /// take effect later. `None` if nothing is in doubt.
    pub async fn resolve(&mut self, limit: Duration) -> Result<Option<Resolution>, CommitError> {
        let Some(doubtful) = self.doubt.clone() else { return Ok(None) };
        let fenced = self.commit_until(&Transaction::new(), Instant::now() + limit).await;
        let fence = self.value();
        let resolution = match fenced {
            Ok(_) => Resolution::NotCommitted,
            Err(CommitError::Fenced { found: Some(found), .. }) if found == doubtful => {
                self.last = Some(found);
                Resolution::Committed
            }
            // An earlier fence had taken effect.
            Err(CommitError::Fenced { found: Some(found), .. }) if self.fences.contains(&found) => {
                self.last = Some(found);
                Resolution::NotCommitted
            }
            Err(error) => {
                self.fences.push(fence);
                self.doubt = Some(doubtful);
                return Err(error);
            }
        };
        self.doubt = None;
        self.fences.clear();
        Ok(Some(resolution))
    }

    async fn commit_until(&mut self, transaction: &Transaction, deadline: Instant) -> Result<Committed, CommitError> {
        self.number += 1;
        let next = self.value();
        let (guarded, guard) = self.cell.guarded(transaction, self.last.as_deref(), &next);
        let mut sent = 0;
        let mut unsure = None;
        self.doubt = Some(next.clone());
        loop {
            let limit = deadline.saturating_duration_since(Instant::now());
            sent += 1;
            match self.client.transact_within(&guarded, limit).await {
                Ok(mut outcome) => {
                    self.done(next);
                    let first = usize::from(guard == 0);
                    outcome.results.drain(..first);
                    outcome.results.truncate(transaction.operations().len());
                    return Ok(Committed { outcome: Some(outcome), sent });
                }
                Err(CallError::Refused(refusal)) if refusal.position == Some(guard) => {
                    let found = self.read_cell(deadline).await?;
                    if found.as_deref() == Some(&next) {
                        // An earlier copy had taken effect.
                        self.done(next);
                        return Ok(Committed { outcome: None, sent });
                    }
                    self.doubt = None;
                    return Err(CommitError::Fenced { found, expected: self.last.clone() });
                }
                Err(CallError::Refused(mut refusal)) => {
                    self.doubt = None;
                    refusal.position =
                        refusal.position.and_then(|position| position.checked_sub(usize::from(guard == 0)));
                    return Err(CommitError::Refused(refusal));
                }
                Err(error) if error.is_in_doubt() => {
                    if Instant::now() >= deadline {
                        return Err(CommitError::Unresolved(error));
                    }
                    if self.read_cell(deadline).await?.as_deref() == Some(&next) {
                        self.done(next);
                        return Ok(Committed { outcome: None, sent });
                    }
                    // Retransmission is safe: both copies require the same value, so only one can succeed.
                    unsure = Some(error);
                }
                Err(error) => {
                    return Err(match unsure {
                        Some(_) => CommitError::Unresolved(error),
                        None => {
                            self.doubt = None;
                            CommitError::Call(error)
                        }
                    });
                }
            }
        }
    }

    fn value(&self) -> String {
        format!("{}:{}", self.writer, self.number)
    }

    fn done(&mut self, value: String) {
        self.last = Some(value);
        self.doubt = None;
    }

    /// Reads the sequence cell from the server.
    async fn read_cell(&self, deadline: Instant) -> Result<Option<String>, CommitError> {
        let SequenceCell { table, uuid, column, key } = &self.cell;
        let mut select = Transaction::new();
        let position = select.select(table, vec![Condition::uuid(*uuid)], &[column]);
        loop {
            let limit = deadline.saturating_duration_since(Instant::now());
            match self.client.transact_within(&select, limit).await {
                Ok(outcome) => {
                    let row = outcome.rows(position).and_then(|rows| rows.first());
                    let row = row.ok_or_else(|| CommitError::NoCell { table: table.clone(), uuid: *uuid })?;
                    let text =
                        |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_str).map(String::from);
                    let pairs = row.get(column).and_then(|map| map.get(1)).and_then(serde_json::Value::as_array);
                    let pair = pairs.into_iter().flatten().find(|pair| text(pair.get(0)).as_ref() == Some(key));
                    return Ok(pair.and_then(|pair| text(pair.get(1))));
                }
                // A read can be repeated.
                Err(error) if error.is_in_doubt() && Instant::now() < deadline => {}
                Err(error) => return Err(CommitError::Unresolved(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fenced_commit_reports_both_sequence_values() {
        let fenced = |found: Option<&str>| {
            let error = CommitError::Fenced { found: found.map(Into::into), expected: Some("me:3".into()) };
            error.to_string()
        };
        assert!(fenced(Some("you:1")).ends_with("the sequence value is you:1, ours was me:3"));
        assert!(fenced(None).starts_with("the sequence value is missing, ours was me:3: "));
    }
}
