//! A commit, repeated until its outcome is known.

use std::time::Duration;

use ovsdb::client::{Client, CommitError, Committer, Resolution};
use ovsdb::transaction::Transaction;
use tokio::time::Instant;

use crate::databases;

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// A leader that cannot commit for this long releases the Lease.
pub(crate) const COMMIT_DEADLINE: Duration = Duration::from_secs(10);

/// What the control loop learns about a transaction that it sent.
#[derive(Debug)]
pub(crate) enum CommitOutcome {
    /// Known to have taken effect, from the reply or by resolving the doubt.
    Committed,
    /// It did not take effect, and never will.
    NotCommitted,
    /// The server refused it; the offending owner, if the server's error names an operation.
    Refused { owner: Option<String>, error: String },
    /// Another leader has taken over, or the sequence cell is gone.
    Fenced(String),
    /// In doubt, and could not be resolved in time.
    Unknown(String),
}

/// Commits, and resolves a commit in doubt until [`COMMIT_DEADLINE`].
pub(crate) async fn commit(mut committer: Committer, transaction: Transaction) -> (Committer, CommitOutcome) {
    let deadline = Instant::now() + COMMIT_DEADLINE;
    let mut outcome = match committer.commit(&transaction, ATTEMPT_TIMEOUT).await {
        Ok(_) => CommitOutcome::Committed,
        Err(CommitError::Call(error)) => {
            tracing::warn!(%error, "commit not sent: northbound database not connected; retrying");
            CommitOutcome::NotCommitted
        }
        Err(error) => outcome_of(error),
    };
    while let CommitOutcome::Unknown(error) = &outcome {
        if Instant::now() >= deadline {
            break;
        }
        tracing::warn!(error, "commit in doubt; resolving it from the sequence cell");
        outcome = match committer.resolve(ATTEMPT_TIMEOUT).await {
            Ok(Some(Resolution::Committed)) => CommitOutcome::Committed,
            Ok(Some(Resolution::NotCommitted) | None) => CommitOutcome::NotCommitted,
            Err(error) => outcome_of(error),
        };
    }
    (committer, outcome)
}

fn outcome_of(error: CommitError) -> CommitOutcome {
    match error {
        CommitError::Refused(refusal) => CommitOutcome::Refused {
            owner: refusal.owner.as_ref().map(ToString::to_string),
            error: refusal.to_string(),
        },
        CommitError::Fenced { .. } => CommitOutcome::Fenced(error.to_string()),
        // The sequence cell's row is gone: the database was emptied, and the next leader starts from scratch.
        CommitError::NoCell { .. } => CommitOutcome::Fenced(error.to_string()),
        CommitError::Unresolved(_) | CommitError::InDoubt | CommitError::Call(_) => {
            CommitOutcome::Unknown(error.to_string())
        }
    }
}

/// Takes over: from here on, transactions of former leaders are fenced.
pub(crate) async fn take_over(client: Client, writer: String) -> Result<Committer, String> {
    let cell = match databases::cell(&client.snapshot()) {
        Some(cell) => cell,
        None => {
            databases::create_global(&client).await;
            databases::cell(&client.snapshot())
                .ok_or("the northbound database has no NB_Global row, and none could be created")?
        }
    };
    Committer::take_over(client, cell, writer, COMMIT_DEADLINE).await.map_err(|error| error.to_string())
}
