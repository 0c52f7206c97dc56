//! The faults, with the goal of each.

use std::time::Duration;

/// What is killed, stopped or cut off while pods are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: how long a pod takes without a fault.
    None,
    /// SIGKILL of the northbound leader's ovsdb-server.
    NbLeader,
    /// SIGKILL of the southbound leader's ovsdb-server.
    SbLeader,
    /// SIGKILL of the leading controller.
    Controller,
    /// SIGSTOP of the northbound leader's ovsdb-server.
    NbLeaderHangs,
    /// SIGSTOP of the southbound leader's ovsdb-server.
    SbLeaderHangs,
    /// SIGSTOP of the leading controller.
    ControllerHangs,
    /// The control-plane node of the leading controller loses its power.
    Node,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::None,
        Self::NbLeader,
        Self::SbLeader,
        Self::Controller,
        Self::NbLeaderHangs,
        Self::SbLeaderHangs,
        Self::ControllerHangs,
        Self::Node,
    ];

    /// As `--only` takes it and figures name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NbLeader => "nb-leader",
            Self::SbLeader => "sb-leader",
            Self::Controller => "controller",
            Self::NbLeaderHangs => "nb-leader-hangs",
            Self::SbLeaderHangs => "sb-leader-hangs",
            Self::ControllerHangs => "controller-hangs",
            Self::Node => "node",
        }
    }

    /// For the names of figures.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::None => "no fault",
            Self::NbLeader => "NB leader killed",
            Self::SbLeader => "SB leader killed",
            Self::Controller => "leading controller killed",
            Self::NbLeaderHangs => "NB leader stopped",
            Self::SbLeaderHangs => "SB leader stopped",
            Self::ControllerHangs => "leading controller stopped",
            Self::Node => "control-plane node without power",
        }
    }

    /// The goal for 95 % of the pods, in seconds.
    pub(crate) fn goal(self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::NbLeader | Self::SbLeader => Some(4.0),
            Self::Controller => Some(5.0),
            Self::NbLeaderHangs | Self::SbLeaderHangs | Self::ControllerHangs | Self::Node => Some(8.0),
        }
    }
}

/// The value that this share of all is at or below, in seconds; NaN of nothing.
pub(crate) fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).map_or(f64::NAN, Duration::as_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ranks() {
        let times: Vec<Duration> = (1..=20).rev().map(Duration::from_secs).collect();
        assert_eq!((quantile(&times, 0.5), quantile(&times, 0.95), quantile(&times, 1.0)), (10.0, 19.0, 20.0));
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Fault::ALL.map(Fault::name).into();
        assert_eq!(names.len(), Fault::ALL.len());
    }
}
