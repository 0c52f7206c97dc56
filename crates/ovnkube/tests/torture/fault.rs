//! The faults that can be injected. Pure.

use std::fmt;

/// Which member a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Leader,
    /// One of the two followers: 0 or 1.
    Follower(usize),
}

/// Which packets of the target a one-way partition drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the target to the others.
    Outgoing,
    /// From the others to the target.
    Incoming,
}

/// A point of `cluster/failure-test`, by which the server itself fails at an exact place of the raft protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    CrashBeforeAppendRequest,
    CrashAfterAppendRequest,
    CrashBeforeExecuteReply,
    CrashAfterExecuteReply,
    CrashBeforeExecuteRequest,
    CrashAfterExecuteRequest,
    CrashAfterAppendUpdate,
    CrashBeforeSnapshotReply,
    DelayElection,
    DontSendVoteRequest,
    StopRaftRpc,
    TransferLeadership,
    TransferAfterAppendRequest,
    TransferAfterStartingToAdd,
}

impl Point {
    /// All points that some server has.
    pub(crate) const ALL: [Self; 14] = [
        Self::CrashBeforeAppendRequest,
        Self::CrashAfterAppendRequest,
        Self::CrashBeforeExecuteReply,
        Self::CrashAfterExecuteReply,
        Self::CrashBeforeExecuteRequest,
        Self::CrashAfterExecuteRequest,
        Self::CrashAfterAppendUpdate,
        Self::CrashBeforeSnapshotReply,
        Self::DelayElection,
        Self::DontSendVoteRequest,
        Self::StopRaftRpc,
        Self::TransferLeadership,
        Self::TransferAfterAppendRequest,
        Self::TransferAfterStartingToAdd,
    ];

    /// The argument of `cluster/failure-test`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CrashBeforeAppendRequest => "crash-before-sending-append-request",
            Self::CrashAfterAppendRequest => "crash-after-sending-append-request",
            Self::CrashBeforeExecuteReply => "crash-before-sending-execute-command-reply",
            Self::CrashAfterExecuteReply => "crash-after-sending-execute-command-reply",
            Self::CrashBeforeExecuteRequest => "crash-before-sending-execute-command-request",
            Self::CrashAfterExecuteRequest => "crash-after-sending-execute-command-request",
            Self::CrashAfterAppendUpdate => "crash-after-receiving-append-request-update",
            Self::CrashBeforeSnapshotReply => "crash-before-sending-install-snapshot-reply",
            Self::DelayElection => "delay-election",
            Self::DontSendVoteRequest => "dont-send-vote-request",
            Self::StopRaftRpc => "stop-raft-rpc",
            Self::TransferLeadership => "transfer-leadership",
            Self::TransferAfterAppendRequest => "transfer-leadership-after-sending-append-request",
            Self::TransferAfterStartingToAdd => "transfer-leadership-after-starting-to-add",
        }
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// ovsdb-server gets SIGKILL; its manager restarts it.
    KillServer(Target),
    /// Manager and server get SIGKILL at once, as when their container or node dies.
    KillMember(Target),
    /// ovsdb-server gets SIGSTOP, and SIGCONT when the others work without it.
    StopServer(Target),
    /// ovsdb-server gets SIGSTOP and stays so: its manager must notice.
    HangServer(Target),
    /// No packets between the member and the others.
    CutOff(Target),
    /// No packets in one direction.
    CutOffOneWay(Target, Direction),
    /// The manager gets SIGTERM, as in a rollout, and is started again.
    Restart(Target),
    /// The server compacts its file under load.
    Compact(Target),
    /// The member dies with its volume, and starts with an empty one.
    LoseVolume(Target),
    /// The member comes back with another address.
    Readdress(Target),
    /// All members stop, and their volumes come back under other names.
    Rename,
    /// The server fails at a point of the protocol.
    FailurePoint(Point),
}

impl Fault {
    /// The kind, for counts: without its target.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::KillServer(_) => "server killed",
            Self::KillMember(_) => "member killed",
            Self::StopServer(_) => "server stopped",
            Self::HangServer(_) => "server hangs",
            Self::CutOff(_) => "member cut off",
            Self::CutOffOneWay(..) => "member cut off in one direction",
            Self::Restart(_) => "member restarted",
            Self::Compact(_) => "file compacted",
            Self::LoseVolume(_) => "volume lost",
            Self::Readdress(_) => "address changed",
            Self::Rename => "all members renamed",
            Self::FailurePoint(point) => point.name(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = match self {
            Self::KillServer(target)
            | Self::KillMember(target)
            | Self::StopServer(target)
            | Self::HangServer(target)
            | Self::CutOff(target)
            | Self::CutOffOneWay(target, _)
            | Self::Restart(target)
            | Self::Compact(target)
            | Self::LoseVolume(target)
            | Self::Readdress(target) => target,
            Self::Rename | Self::FailurePoint(_) => return f.write_str(self.kind()),
        };
        write!(f, "{}: ", self.kind())?;
        match target {
            Target::Leader => f.write_str("leader"),
            Target::Follower(_) => f.write_str("follower"),
        }?;
        match self {
            Self::CutOffOneWay(_, Direction::Outgoing) => f.write_str(", outgoing"),
            Self::CutOffOneWay(_, Direction::Incoming) => f.write_str(", incoming"),
            _ => Ok(()),
        }
    }
}
