//! Decides what a member does with its data directory before its server starts. Pure.
//!
//! | file | record in the API | step |
//! |---|---|---|
//! | missing | none | create a cluster in a staging file, and record its ID; the first to record it wins |
//! | missing | ID of the staging file | install the staging file |
//! | missing | another ID | join that cluster |
//! | member of the recorded cluster | ID | start |
//! | member of a cluster | none | record its ID, then start |
//! | member of a cluster that an administrator replaced | ID | put the file aside, then join |
//! | standalone, damaged | ID of the staging file | put the file aside, then install the staging file |
//! | member of another cluster, standalone, damaged | any other | refuse: nothing is overwritten |
//!
//! The staging file never ran before its ID is recorded, so at most one cluster ever runs: a member that lost its volume, or
//! that is cut off from the others, finds the record and can only join.

use ovsdb::uuid::Uuid;

use crate::file::{FileState, Header};
use crate::kind::Kind;
use crate::record::Record;

/// What to do next. After each step but [`Step::Start`] and [`Step::Refuse`], everything is read and decided again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create a new cluster in the staging file.
    Stage,
    /// Record this cluster ID in the API, unless another one is recorded by then.
    Publish(Uuid),
    /// Move the staging file to the path of the database.
    Install,
    /// Remove the staging file: another member's cluster was recorded. It never ran.
    Discard,
    /// Create a file that joins this cluster.
    Join(Uuid),
    /// Put the file aside, and join as a new server.
    Rejoin(Header, RejoinReason),
    /// Put aside a file that is not a raft member: the staging file is the recorded cluster.
    SetAside,
    /// Start the server.
    Start,
    /// Nothing can be done without an administrator.
    Refuse(Problem),
}

/// Why a member joins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejoinReason {
    /// Its file has an address that it no longer has.
    AddressChanged,
    /// An administrator replaced the cluster (`ovnkube db rebuild`, `restore`).
    ClusterReplaced,
}

/// Why a member does not start, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is not a usable database.
    #[error(
        "{file} is damaged ({why}); the other members keep their copies: `ovnkube db replace-member` puts it aside and \
         joins again; without other members, `ovnkube db restore` or `ovnkube db rebuild`"
    )]
    Damaged {
        /// Path of the file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file is a standalone database.
    #[error(
        "{file} is a standalone database, not a raft member; `ovnkube db restore {database} {file} --force` creates a cluster \
         from it, or move it away to join the cluster"
    )]
    Standalone {
        /// Path of the file.
        file: String,
        /// Short name of the database.
        database: &'static str,
    },
    /// The file belongs to another database.
    #[error("{file} is database {found}, not {expected}; check which volume is mounted")]
    OtherDatabase {
        /// Path of the file.
        file: String,
        /// The name in the file.
        found: String,
        /// The name that belongs there.
        expected: &'static str,
    },
    /// The file is a member of another cluster.
    #[error(
        "{file} belongs to cluster {found}, but ConfigMap ovnkube-db says that this database is cluster {recorded}; check \
         which volume is mounted; if it is to be given up, `ovnkube db replace-member` puts it aside and joins again"
    )]
    ForeignCluster {
        /// Path of the file.
        file: String,
        /// The cluster in the file.
        found: Uuid,
        /// The cluster in the API.
        recorded: Uuid,
    },
}

/// What the decision depends on.
#[derive(Debug)]
pub struct Situation<'a> {
    /// The database.
    pub kind: Kind,
    /// The path of the file, for messages.
    pub path: &'a str,
    /// The file.
    pub file: &'a FileState,
    /// The staging file.
    pub staged: &'a FileState,
    /// The record in the API.
    pub record: Option<&'a Record>,
    /// The raft address that this member has now.
    pub address: &'a str,
    /// Whether a member with another address works, by which it could join again.
    pub has_peers: bool,
}

/// Decides the next step.
pub fn next(situation: &Situation<'_>) -> Step {
    let file = || situation.path.to_owned();
    match situation.file {
        FileState::Damaged(_) | FileState::Standalone(_) if is_recorded(situation.staged, situation.record) => {
            Step::SetAside
        }
        FileState::Damaged(why) => Step::Refuse(Problem::Damaged { file: file(), why: why.clone() }),
        FileState::Standalone(name) if name != situation.kind.schema() => other_database(situation, name),
        FileState::Standalone(_) => {
            Step::Refuse(Problem::Standalone { file: file(), database: situation.kind.short() })
        }
        FileState::Clustered(header) => member(situation, header),
        FileState::Missing => empty(situation),
    }
}

/// Whether a staging file is the cluster of the record.
fn is_recorded(staged: &FileState, record: Option<&Record>) -> bool {
    match (staged, record) {
        (FileState::Clustered(header), Some(record)) => header.cluster == Some(record.cluster()),
        _ => false,
    }
}

fn other_database(situation: &Situation<'_>, found: &str) -> Step {
    let expected = situation.kind.schema();
    Step::Refuse(Problem::OtherDatabase { file: situation.path.to_owned(), found: found.to_owned(), expected })
}

fn member(situation: &Situation<'_>, header: &Header) -> Step {
    if header.name != situation.kind.schema() {
        return other_database(situation, &header.name);
    }
    match (situation.record, header.cluster) {
        (Some(record), Some(found)) if record.has_replaced(found) => {
            Step::Rejoin(header.clone(), RejoinReason::ClusterReplaced)
        }
        (Some(record), Some(found)) if record.cluster() != found => {
            Step::Refuse(Problem::ForeignCluster { file: situation.path.to_owned(), found, recorded: record.cluster() })
        }
        (None, Some(found)) if header.joined => Step::Publish(found),
        _ if header.address != situation.address && situation.has_peers => {
            Step::Rejoin(header.clone(), RejoinReason::AddressChanged)
        }
        _ => Step::Start,
    }
}

fn empty(situation: &Situation<'_>) -> Step {
    let staged = match situation.staged {
        FileState::Clustered(header) if header.joined && header.address == situation.address => header.cluster,
        _ => None,
    };
    match (situation.record, staged) {
        (None, None) => Step::Stage,
        (None, Some(cluster)) => Step::Publish(cluster),
        (Some(_), _) if is_recorded(situation.staged, situation.record) => Step::Install,
        (Some(_), _) if *situation.staged != FileState::Missing => Step::Discard,
        (Some(record), _) => Step::Join(record.cluster()),
    }
}

#[cfg(test)]
mod tests;
