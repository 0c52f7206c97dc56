//! How this instance stands, from waiting for the Lease to a commit in flight.

use std::future::{Future, pending};
use std::pin::Pin;

use ovsdb::client::Committer;
use tokio::time::Instant;

use crate::commit::{COMMIT_DEADLINE, Verdict};

pub(crate) type TakeOver = Pin<Box<dyn Future<Output = Result<Committer, String>> + Send>>;
pub(crate) type Commit = Pin<Box<dyn Future<Output = (Committer, Verdict)> + Send>>;

/// How we stand.
pub(crate) enum Role {
    /// Warm, and waiting.
    Standby,
    /// The Lease is ours; the database is told.
    TakingOver(TakeOver),
    /// The database was told, when; the replica has to show it.
    Arriving(Committer, Instant),
    /// Ready for the next transaction.
    Leading(Committer),
    /// A transaction is under way, since when.
    Committing(Commit, Instant),
    /// It happened, or was fenced off, when; the replica has to show it.
    Settling(Committer, bool, Instant),
}

impl Role {
    /// Whether it has waited in vain for the database: a leader that cannot commit is none.
    pub(crate) fn hangs(&self) -> bool {
        match self {
            Self::Standby | Self::TakingOver(_) | Self::Leading(_) => false,
            Self::Committing(_, since) => since.elapsed() > COMMIT_DEADLINE * 2,
            Self::Arriving(_, since) | Self::Settling(_, _, since) => since.elapsed() > COMMIT_DEADLINE,
        }
    }
}

/// What a role was waiting for.
pub(crate) enum Advance {
    TakenOver(Result<Committer, String>),
    Judged(Committer, Verdict),
}

pub(crate) async fn advance(role: &mut Role) -> Advance {
    match role {
        Role::TakingOver(over) => Advance::TakenOver(over.as_mut().await),
        Role::Committing(commit, _) => {
            let (committer, verdict) = commit.as_mut().await;
            Advance::Judged(committer, verdict)
        }
        _ => pending().await,
    }
}
