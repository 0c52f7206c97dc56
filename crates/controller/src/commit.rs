//! One commit, carried until its fate is known.

use std::time::Duration;

use ovsdb::client::{Client, CommitError, Committer, Fate};
use ovsdb::transaction::Transaction;
use tokio::time::Instant;

use crate::databases;

/// How long one try may take.
const TRY: Duration = Duration::from_secs(3);
/// Who cannot commit for so long is no leader: somebody else may be able to.
pub(crate) const COMMIT_DEADLINE: Duration = Duration::from_secs(10);

/// What became of a commit.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is in the database.
    Happened,
    /// It is not, and never will be.
    DidNot,
    /// The server refused it, perhaps because of one owner.
    Refused { owner: Option<String>, why: String },
    /// Another leader has taken over.
    Deposed(String),
    /// Nobody knows, and we cannot find out.
    Unknown(String),
}

/// Commits, and settles what is in doubt.
pub(crate) async fn commit(mut committer: Committer, transaction: Transaction) -> (Committer, Verdict) {
    let deadline = Instant::now() + COMMIT_DEADLINE;
    let mut verdict = match committer.commit(&transaction, TRY).await {
        Ok(_) => Verdict::Happened,
        Err(CommitError::Call(error)) => {
            tracing::warn!(%error, "the northbound database cannot be reached");
            Verdict::DidNot
        }
        Err(error) => judge(error),
    };
    while let Verdict::Unknown(why) = &verdict {
        if Instant::now() >= deadline {
            break;
        }
        tracing::warn!(why, "settling a commit that is in doubt");
        verdict = match committer.settle(TRY).await {
            Ok(Some(Fate::Happened)) => Verdict::Happened,
            Ok(Some(Fate::DidNot) | None) => Verdict::DidNot,
            Err(error) => judge(error),
        };
    }
    (committer, verdict)
}

fn judge(error: CommitError) -> Verdict {
    match error {
        CommitError::Refused(refusal) => {
            Verdict::Refused { owner: refusal.owner.as_ref().map(ToString::to_string), why: refusal.to_string() }
        }
        CommitError::Deposed { .. } => Verdict::Deposed(error.to_string()),
        // The row of the sequence is gone: the database was emptied, and whoever leads next begins anew.
        CommitError::NoCell { .. } => Verdict::Deposed(error.to_string()),
        CommitError::Unsettled(_) | CommitError::InDoubt | CommitError::Call(_) => Verdict::Unknown(error.to_string()),
    }
}

/// Takes over: from here on no transaction of a former leader takes effect.
pub(crate) async fn take_over(client: Client, writer: String) -> Result<Committer, String> {
    let cell = match databases::cell(&client.snapshot()) {
        Some(cell) => cell,
        None => {
            databases::make_global(&client).await;
            databases::cell(&client.snapshot()).ok_or("the database has no NB_Global row, and none could be made")?
        }
    };
    Committer::take_over(client, cell, writer, COMMIT_DEADLINE).await.map_err(|error| error.to_string())
}
