//! The role of this instance, from standby to a commit in flight.

use std::future::{Future, pending};
use std::pin::Pin;

use ovsdb::client::Committer;
use tokio::time::Instant;

use crate::commit::{COMMIT_DEADLINE, CommitOutcome};

pub(crate) type TakeOver = Pin<Box<dyn Future<Output = Result<Committer, String>> + Send>>;
pub(crate) type Commit = Pin<Box<dyn Future<Output = (Committer, CommitOutcome)> + Send>>;

/// Whether this instance leads, and what it does if it does not.
pub(crate) enum Role {
    /// Without the Lease: observes, and writes nothing.
    Standby,
    /// With the Lease: writes its sequence value.
    TakingOver(TakeOver),
    /// The sequence value was written at this time; waits until the replica shows it.
    AwaitingTakeOver(Committer, Instant),
    /// Leader, without a commit in flight.
    Leading(Committer),
    /// A commit is in flight, since this time.
    Committing(Commit, Instant),
    /// The commit was resolved at this time (true: committed); waits until the replica shows its sequence value.
    AwaitingReplica(Committer, bool, Instant),
}

impl Role {
    /// Whether it has waited too long for the database.
    pub(crate) fn is_stalled(&self) -> bool {
        match self {
            Self::Standby | Self::TakingOver(_) | Self::Leading(_) => false,
            Self::Committing(_, since) => since.elapsed() > COMMIT_DEADLINE * 2,
            Self::AwaitingTakeOver(_, since) | Self::AwaitingReplica(_, _, since) => since.elapsed() > COMMIT_DEADLINE,
        }
    }
}

/// What a role was waiting for has happened.
pub(crate) enum Advance {
    TakenOver(Result<Committer, String>),
    CommitDone(Committer, CommitOutcome),
}

pub(crate) async fn advance(role: &mut Role) -> Advance {
    match role {
        Role::TakingOver(over) => Advance::TakenOver(over.as_mut().await),
        Role::Committing(commit, _) => {
            let (committer, outcome) = commit.as_mut().await;
            Advance::CommitDone(committer, outcome)
        }
        _ => pending().await,
    }
}
