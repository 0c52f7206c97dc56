//! What goes wrong, counted.

use std::collections::BTreeMap;

use crate::support::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    AnswerLost,
    RequestLost,
    DuplicateCommit,
    LateCopy,
    StaleReplica,
    ApiFails,
    ApiAnswerLost,
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
        Self::AnswerLost,
        Self::RequestLost,
        Self::DuplicateCommit,
        Self::LateCopy,
        Self::StaleReplica,
        Self::ApiFails,
        Self::ApiAnswerLost,
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

    /// How often it strikes where it can, in percent.
    fn chance(self) -> usize {
        match self {
            Self::AnswerLost | Self::RequestLost => 6,
            Self::DuplicateCommit => 5,
            Self::ApiFails | Self::ApiAnswerLost => 8,
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
    /// At the end nothing goes wrong any more.
    pub(crate) over: bool,
    /// What goes wrong every time, even then.
    pub(crate) always: Option<Fault>,
}

impl Faults {
    pub(crate) fn strike(&mut self, fault: Fault, rng: &mut Rng) -> bool {
        let strikes = self.always == Some(fault) || !self.over && rng.percent(fault.chance());
        if strikes {
            *self.count.entry(fault).or_default() += 1;
        }
        strikes
    }
}
