//! What is wrong with a unit, and the remedy.

use std::fmt;
use std::time::Duration;

use super::state::Load;

/// A problem of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The unit; empty if it concerns the whole host.
    pub unit: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// An administrator has forbidden to start it.
    Masked,
    /// It is not installed.
    NotFound,
    /// Its file cannot be used; the load state.
    Unreadable(String),
    /// It was stopped, and is started.
    Stopped {
        /// Until the next attempt.
        retry: Duration,
    },
    /// It failed.
    Failed {
        /// `Result` of the service.
        result: String,
        /// Until the next attempt.
        retry: Duration,
    },
    /// It failed so often that systemd no longer starts it.
    StartLimit {
        /// Until the next attempt.
        retry: Duration,
    },
    /// It does not run, and is started after the others.
    Waits {
        /// `Result` of the service.
        result: String,
    },
    /// systemd is at it.
    Busy {
        /// State of the unit.
        state: String,
    },
    /// The host is shutting down.
    Shutdown,
}

impl Problem {
    pub(super) fn of_load(load: &Load) -> Option<Self> {
        match load {
            Load::Loaded => None,
            Load::Masked => Some(Self::Masked),
            Load::NotFound => Some(Self::NotFound),
            Load::Other(state) => Some(Self::Unreadable(state.clone())),
        }
    }

    /// Reason of Events and conditions.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Masked => "UnitMasked",
            Self::NotFound => "UnitNotFound",
            Self::Unreadable(_) => "UnitUnreadable",
            Self::Stopped { .. } => "UnitStopped",
            Self::Failed { .. } => "UnitFailed",
            Self::StartLimit { .. } => "UnitStartLimit",
            Self::Waits { .. } => "UnitWaits",
            Self::Busy { .. } => "UnitBusy",
            Self::Shutdown => "HostShutdown",
        }
    }

    /// Whether it goes away without a person.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Stopped { .. } | Self::Waits { .. } | Self::Busy { .. } | Self::Shutdown)
    }
}

impl Finding {
    pub(super) fn new(unit: &str, problem: Problem) -> Self {
        Self { unit: unit.to_owned(), problem }
    }
}

/// Such as `starting it now`.
struct Next(Duration);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            f.write_str("starting it now")
        } else {
            write!(f, "starting it in {}s", self.0.as_secs() + 1)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = &self.unit;
        match &self.problem {
            Problem::Masked => {
                write!(f, "{unit} is masked, so it cannot be started; on the host: systemctl unmask {unit}")
            }
            Problem::NotFound => {
                write!(f, "the host has no {unit}; install Open vSwitch on the host, or name its unit with --unit")
            }
            Problem::Unreadable(state) => {
                write!(f, "systemd cannot use the file of {unit} ({state}); on the host: systemctl status {unit}")
            }
            Problem::Stopped { retry } => write!(f, "{unit} is stopped; {}", Next(*retry)),
            Problem::Failed { result, retry } => {
                write!(f, "{unit} failed ({result}); {}; its log: journalctl -u {unit}", Next(*retry))
            }
            Problem::StartLimit { retry } => write!(
                f,
                "{unit} failed so often that systemd has stopped starting it (start limit); {}; its log: journalctl -u {unit}",
                Next(*retry)
            ),
            Problem::Waits { result } if result.is_empty() || result == "success" => {
                write!(f, "{unit} is stopped; starting it after the others")
            }
            Problem::Waits { result } => {
                write!(f, "{unit} failed ({result}); starting it after the others; its log: journalctl -u {unit}")
            }
            Problem::Busy { state } => write!(f, "{unit} is {state}; waiting for systemd"),
            Problem::Shutdown => f.write_str("the host is shutting down; nothing is started"),
        }
    }
}
