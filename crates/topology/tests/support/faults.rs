//! Faults and how often they occurred.

use std::collections::BTreeMap;

use crate::support::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    ReplyLost,
    RequestLost,
    DuplicateCommit,
    LateCopy,
    StaleReplica,
    ApiFails,
    ApiReplyLost,
    SlowApi,
    DuplicateEvent,
    WatchExpired,
    TwoLeaders,
    Restart,
    StuckChassis,
    DatabaseEmptied,
    RowsChangedByHand,
    NodeConditionFails,
    ChassisRemovalFails,
}

impl Fault {
    pub(crate) const ALL: [Self; 17] = [
        Self::ReplyLost,
        Self::RequestLost,
        Self::DuplicateCommit,
        Self::LateCopy,
        Self::StaleReplica,
        Self::ApiFails,
        Self::ApiReplyLost,
        Self::SlowApi,
        Self::DuplicateEvent,
        Self::WatchExpired,
        Self::TwoLeaders,
        Self::Restart,
        Self::StuckChassis,
        Self::DatabaseEmptied,
        Self::RowsChangedByHand,
        Self::NodeConditionFails,
        Self::ChassisRemovalFails,
    ];

    /// Probability in percent where it can occur.
    fn chance(self) -> usize {
        match self {
            Self::ReplyLost | Self::RequestLost => 6,
            Self::DuplicateCommit => 5,
            Self::ApiFails | Self::ApiReplyLost => 8,
            Self::SlowApi => 20,
            Self::NodeConditionFails | Self::ChassisRemovalFails => 40,
            Self::DuplicateEvent => 4,
            _ => 100,
        }
    }
}

#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) count: BTreeMap<Fault, usize>,
    /// No faults any more.
    pub(crate) ended: bool,
    /// A fault that always occurs, even then.
    pub(crate) always: Option<Fault>,
}

impl Faults {
    pub(crate) fn inject(&mut self, fault: Fault, rng: &mut Rng) -> bool {
        let injected = self.always == Some(fault) || !self.ended && rng.percent(fault.chance());
        if injected {
            *self.count.entry(fault).or_default() += 1;
        }
        injected
    }
}
