//! Commits that happen once. OVSDB on raft is at-least-once: an answer may be lost, and nobody says whether the
//! transaction took effect. Here each transaction requires a sequence value in the database and replaces it by one of
//! its own, so that one look settles the matter, sending again is safe, and a writer who was replaced cannot write.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::error::CallError;
use crate::client::handle::Client;
use crate::operation::Condition;
use crate::sequence::SequenceCell;
use crate::transaction::{Outcome, Refusal, Transaction};
use crate::uuid::Uuid;

/// What became of a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The results, unless the answer was lost and the commit was found to have happened.
    pub outcome: Option<Outcome>,
    /// How often it was sent.
    pub sent: u32,
}

/// What became of a commit that was in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It took effect.
    Happened,
    /// It did not, and never will.
    DidNot,
}

/// A commit that did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The server refused it; nothing happened, and the next commit may go on.
    #[error("{0}")]
    Refused(Refusal),
    /// Another writer has taken over; nothing of this writer will happen any more.
    #[error("{}", deposed(found.as_deref(), expected.as_deref()))]
    Deposed {
        /// What stands in the cell.
        found: Option<String>,
        /// What we left there.
        expected: Option<String>,
    },
    /// It could not be settled in time: call [`Committer::settle`] before anything else is committed.
    #[error("it is not known yet whether it happened: {0}")]
    Unsettled(CallError),
    /// An earlier commit is in doubt: call [`Committer::settle`] first.
    #[error("an earlier commit is in doubt; settle it first")]
    InDoubt,
    /// The row that holds the sequence is not there.
    #[error("there is no row {uuid} in {table} to hold the sequence")]
    NoCell {
        /// The table.
        table: String,
        /// The row.
        uuid: Uuid,
    },
    /// It was not sent; nothing happened.
    #[error("{0}")]
    Call(CallError),
}

fn deposed(found: Option<&str>, expected: Option<&str>) -> String {
    let ours = expected.unwrap_or("none");
    match found {
        Some(found) => format!("another writer has taken over: the sequence value is {found}, ours was {ours}"),
        None => {
            format!("the sequence value is gone, ours was {ours}: the database was emptied, or somebody removed it")
        }
    }
}

/// The one writer. It commits one transaction at a time, which is also the fastest way: batch instead of pipelining.
#[derive(Debug)]
pub struct Committer {
    client: Client,
    cell: SequenceCell,
    writer: String,
    /// Never used twice, so that what stands in the cell tells which transaction was the last.
    number: u64,
    /// What the cell held after our last commit.
    last: Option<String>,
    /// The value of the commit that we do not know the fate of. Set before it is sent: a caller who gives up in the
    /// middle leaves it set.
    doubt: Option<String>,
    /// Values of fences against that commit whose own fate is open.
    fences: Vec<String>,
}

impl Committer {
    /// Takes over: puts a value under this writer's name into the cell, a name that no writer may have had before.
    /// From then on every transaction of a former writer fails.
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
            committer.last = committer.look(deadline).await?;
            match committer.commit_until(&Transaction::new(), deadline).await {
                Ok(_) => return Ok(committer),
                // Somebody else was quicker between look and commit: it is a race until one is last.
                Err(CommitError::Deposed { .. }) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits a transaction: once, or not at all, or [`CommitError::Unsettled`].
    pub async fn commit(&mut self, transaction: &Transaction, limit: Duration) -> Result<Committed, CommitError> {
        if self.doubt.is_some() {
            return Err(CommitError::InDoubt);
        }
        self.commit_until(transaction, Instant::now() + limit).await
    }

    /// The value that our last commit left: a replica that shows it has that commit and all before it.
    pub fn sequence(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Whether a commit is in doubt.
    pub fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Settles a commit that is in doubt, for good: if it has not happened, it is fenced off, so that a copy that is
    /// still under way comes too late. `None` if nothing is in doubt.
    pub async fn settle(&mut self, limit: Duration) -> Result<Option<Fate>, CommitError> {
        let Some(doubtful) = self.doubt.clone() else { return Ok(None) };
        let fenced = self.commit_until(&Transaction::new(), Instant::now() + limit).await;
        let fence = self.value();
        let fate = match fenced {
            Ok(_) => Fate::DidNot,
            Err(CommitError::Deposed { found: Some(found), .. }) if found == doubtful => {
                self.last = Some(found);
                Fate::Happened
            }
            // An earlier fence had taken effect after all.
            Err(CommitError::Deposed { found: Some(found), .. }) if self.fences.contains(&found) => {
                self.last = Some(found);
                Fate::DidNot
            }
            Err(error) => {
                self.fences.push(fence);
                self.doubt = Some(doubtful);
                return Err(error);
            }
        };
        self.doubt = None;
        self.fences.clear();
        Ok(Some(fate))
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
                Err(CallError::Refused(refusal)) if refusal.place == Some(guard) => {
                    let found = self.look(deadline).await?;
                    if found.as_deref() == Some(&next) {
                        // An earlier sending had happened after all.
                        self.done(next);
                        return Ok(Committed { outcome: None, sent });
                    }
                    self.doubt = None;
                    return Err(CommitError::Deposed { found, expected: self.last.clone() });
                }
                Err(CallError::Refused(mut refusal)) => {
                    self.doubt = None;
                    refusal.place = refusal.place.and_then(|place| place.checked_sub(usize::from(guard == 0)));
                    return Err(CommitError::Refused(refusal));
                }
                Err(error) if error.is_unsettled() => {
                    if Instant::now() >= deadline {
                        return Err(CommitError::Unsettled(error));
                    }
                    if self.look(deadline).await?.as_deref() == Some(&next) {
                        self.done(next);
                        return Ok(Committed { outcome: None, sent });
                    }
                    // Sending the same again is safe: both copies require the same value, and only one can find it.
                    unsure = Some(error);
                }
                Err(error) => {
                    return Err(match unsure {
                        Some(_) => CommitError::Unsettled(error),
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

    /// What stands in the cell now, as the server says.
    async fn look(&self, deadline: Instant) -> Result<Option<String>, CommitError> {
        let SequenceCell { table, uuid, column, key } = &self.cell;
        let mut select = Transaction::new();
        let place = select.select(table, vec![Condition::uuid(*uuid)], &[column]);
        loop {
            let limit = deadline.saturating_duration_since(Instant::now());
            match self.client.transact_within(&select, limit).await {
                Ok(outcome) => {
                    let row = outcome.rows(place).and_then(|rows| rows.first());
                    let row = row.ok_or_else(|| CommitError::NoCell { table: table.clone(), uuid: *uuid })?;
                    let text =
                        |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_str).map(String::from);
                    let pairs = row.get(column).and_then(|map| map.get(1)).and_then(serde_json::Value::as_array);
                    let pair = pairs.into_iter().flatten().find(|pair| text(pair.get(0)).as_ref() == Some(key));
                    return Ok(pair.and_then(|pair| text(pair.get(1))));
                }
                // A look may be repeated freely.
                Err(error) if error.is_unsettled() && Instant::now() < deadline => {}
                Err(error) => return Err(CommitError::Unsettled(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_deposed_reads_why() {
        let deposed = |found: Option<&str>| {
            let error = CommitError::Deposed { found: found.map(Into::into), expected: Some("me:3".into()) };
            error.to_string()
        };
        assert!(deposed(Some("you:1")).ends_with("the sequence value is you:1, ours was me:3"));
        assert!(deposed(None).starts_with("the sequence value is gone, ours was me:3: "));
    }
}
