//! Decides what a member does with its data directory before its server starts. Pure.
//!
//! | file | record in the API | step |
//! |---|---|---|
//! | missing | none | create a cluster in a staging file, and record its ID; the first to record it wins |
//! | missing | ID of the staging file | install the staging file |
//! | missing | another ID | join that cluster |
//! | member of the recorded cluster | ID | start |
//! | member of a cluster | none | record its ID, then start |
//! | member of a cluster that an administrator replaced | ID | put the file aside, then join, if a member works; else wait |
//! | server that the leader removed from the recorded cluster | ID | put the file aside, then join, if a member works |
//! | not joined yet, by members of which none works any more | ID | put the file aside, then join by one that works |
//! | standalone, damaged | ID of the staging file | put the file aside, then install the staging file |
//! | member of another cluster, standalone, damaged | any other | refuse: nothing is overwritten |
//!
//! The staging file never ran before its ID is recorded, so at most one cluster ever runs: a member that lost its volume, or
//! that is cut off from the others, finds the record and can only join.

use ovsdb::uuid::Uuid;

use crate::file::{FileState, Header};
use crate::kind::Kind;
use crate::record::Record;
use crate::status::host_and_port;

/// What to do next. After each step but [`Step::Start`] and [`Step::Refuse`], everything is read and decided again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
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
    /// Start the server with the file as it is.
    Start,
    /// Nothing can be done without an administrator.
    Refuse(Problem),
}

/// Why a member joins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejoinReason {
    /// Its file has a host or port that it no longer has.
    AddressChanged,
    /// An administrator replaced the cluster (`ovnkube db rebuild`, `restore`).
    ClusterReplaced,
    /// The leader removed it while its node was away.
    Removed,
    /// It has not joined yet, and none of the members by which it tries to works.
    PeersChanged,
}

/// Why a member does not start, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The file is not a usable database.
    #[error(
        "{file} is damaged ({why}); the other members keep their copies: start a majority of them, then `ovnkube db \
         replace-member` puts it aside and joins again; if their volumes are lost, `ovnkube db restore` or `ovnkube db rebuild`"
    )]
    Damaged {
        /// Its path below the data directory, for the message.
        file: String,
        /// The first damage, in words of [`FileState::Damaged`].
        why: String,
    },
    /// The file is a standalone database.
    #[error(
        "{file} is a standalone database, not a raft member; `ovnkube db replace-member {database}` puts it aside and joins the \
         cluster again; if no cluster works and this file is to become the database: `ovnkube db restore {database} {file}`"
    )]
    Standalone {
        /// Its path below the data directory, for the message.
        file: String,
        /// `nb` or `sb`, for the command in the message.
        database: &'static str,
    },
    /// The file belongs to another database.
    #[error("{file} is database {found}, not {expected}; check which volume is mounted")]
    OtherDatabase {
        /// Its path below the data directory, for the message.
        file: String,
        /// Schema name in the file, e.g. `OVN_Southbound`.
        found: String,
        /// Schema name of this member's database.
        expected: &'static str,
    },
    /// The cluster of the file was replaced, and the new one does not work.
    #[error(
        "{file} belongs to cluster {found}, which cluster {recorded} replaced according to ConfigMap ovnkube-db, and no member of \
         that works; waiting for one; if it does not exist, correct the record, or `ovnkube db rebuild` on a member"
    )]
    Replaced {
        /// Its path below the data directory, for the message.
        file: String,
        /// Cluster ID in the file's header.
        found: Uuid,
        /// Cluster ID in ConfigMap `ovnkube-db`.
        recorded: Uuid,
    },
    /// The file is a member of another cluster.
    #[error(
        "{file} belongs to cluster {found}, but ConfigMap ovnkube-db says that this database is cluster {recorded}; check \
         which volume is mounted; if it is to be given up, `ovnkube db replace-member` puts it aside and joins again"
    )]
    ForeignCluster {
        /// Its path below the data directory, for the message.
        file: String,
        /// Cluster ID in the file's header.
        found: Uuid,
        /// Cluster ID in ConfigMap `ovnkube-db`.
        recorded: Uuid,
    },
}

/// What the decision depends on.
#[derive(Debug)]
pub(crate) struct BootstrapInputs<'a> {
    /// Which database the member is of: its schema is compared with the file's.
    pub kind: Kind,
    /// For messages only; nothing is read.
    pub path: &'a str,
    /// State of the database file, damage found by its checksums included.
    pub file: &'a FileState,
    /// State of the staging file: a cluster of this member that never ran.
    pub staged: &'a FileState,
    /// The record as it was read just now; none if no cluster was ever recorded.
    pub record: Option<&'a Record>,
    /// The raft address that this member has now.
    pub address: &'a str,
    /// Raft addresses of other members of the recorded cluster that work, by which this one could join.
    pub working: &'a [String],
}

impl BootstrapInputs<'_> {
    fn can_join(&self) -> bool {
        !self.working.is_empty()
    }
}

/// Whether a member that has not joined yet should join by others: some work, and none of those by which it tries to.
pub(crate) fn joins_in_vain(header: &Header, working: &[String]) -> bool {
    let works = |address: &String| working.iter().any(|it| host_and_port(it) == host_and_port(address));
    !header.joined && !working.is_empty() && !header.joins_by.iter().any(works)
}

/// The next step. Only these inputs count, so a crash between two steps loses nothing.
pub(crate) fn next(inputs: &BootstrapInputs<'_>) -> Step {
    let file = || inputs.path.to_owned();
    match inputs.file {
        FileState::Damaged(_) | FileState::Standalone(_) if is_recorded(inputs.staged, inputs.record) => Step::SetAside,
        FileState::Damaged(why) => Step::Refuse(Problem::Damaged { file: file(), why: why.clone() }),
        FileState::Standalone(name) if name != inputs.kind.schema() => other_database(inputs, name),
        FileState::Standalone(_) => Step::Refuse(Problem::Standalone { file: file(), database: inputs.kind.short() }),
        FileState::Clustered(header) => member(inputs, header),
        FileState::Missing => empty(inputs),
    }
}

/// Whether a staging file is the cluster of the record.
fn is_recorded(staged: &FileState, record: Option<&Record>) -> bool {
    match (staged, record) {
        (FileState::Clustered(header), Some(record)) => header.cluster == Some(record.cluster()),
        _ => false,
    }
}

fn other_database(inputs: &BootstrapInputs<'_>, found: &str) -> Step {
    let expected = inputs.kind.schema();
    Step::Refuse(Problem::OtherDatabase { file: inputs.path.to_owned(), found: found.to_owned(), expected })
}

fn member(inputs: &BootstrapInputs<'_>, header: &Header) -> Step {
    if header.name != inputs.kind.schema() {
        return other_database(inputs, &header.name);
    }
    match (inputs.record, header.cluster) {
        (Some(record), Some(found)) if record.has_replaced(found) => {
            if inputs.can_join() || is_recorded(inputs.staged, inputs.record) {
                Step::Rejoin(header.clone(), RejoinReason::ClusterReplaced)
            } else {
                Step::Refuse(Problem::Replaced { file: inputs.path.to_owned(), found, recorded: record.cluster() })
            }
        }
        (Some(record), Some(found)) if record.cluster() != found => {
            Step::Refuse(Problem::ForeignCluster { file: inputs.path.to_owned(), found, recorded: record.cluster() })
        }
        (None, Some(found)) if header.joined => Step::Publish(found),
        // Without it the cluster has a quorum, and by its old file it would never be part of that again.
        (Some(record), Some(_)) if record.has_removed(header.server, &header.address) && inputs.can_join() => {
            Step::Rejoin(header.clone(), RejoinReason::Removed)
        }
        // Another scheme alone is not another address: peers that still use the old one could not be joined.
        _ if host_and_port(&header.address) != host_and_port(inputs.address) && inputs.can_join() => {
            Step::Rejoin(header.clone(), RejoinReason::AddressChanged)
        }
        _ if joins_in_vain(header, inputs.working) => Step::Rejoin(header.clone(), RejoinReason::PeersChanged),
        _ => Step::Start,
    }
}

fn empty(inputs: &BootstrapInputs<'_>) -> Step {
    let staged = match inputs.staged {
        FileState::Clustered(header) if header.joined && header.address == inputs.address => header.cluster,
        _ => None,
    };
    match (inputs.record, staged) {
        (None, None) => Step::Stage,
        (None, Some(cluster)) => Step::Publish(cluster),
        (Some(_), _) if is_recorded(inputs.staged, inputs.record) => Step::Install,
        (Some(_), _) if *inputs.staged != FileState::Missing => Step::Discard,
        (Some(record), _) => Step::Join(record.cluster()),
    }
}

#[cfg(test)]
mod tests;
