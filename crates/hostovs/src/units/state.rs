//! The state of a unit, in systemd's words.

/// Properties of a unit, as D-Bus has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitState {
    /// `LoadState`.
    pub load: Load,
    /// `ActiveState`.
    pub active: Active,
    /// `SubState`, such as `running`, `exited`, `auto-restart`; only for people.
    pub sub: String,
    /// `UnitFileState`.
    pub file: FileState,
    /// `Result` of a service: `success`, `exit-code`, `signal`, `start-limit-hit`, …; empty if unknown.
    pub result: String,
    /// `MainPID` of a service; 0 if it has none.
    pub main_process: u32,
}

/// Whether systemd could read the unit's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Load {
    /// It could.
    Loaded,
    /// The host has no such unit.
    NotFound,
    /// Linked to `/dev/null`: it cannot be started.
    Masked,
    /// `bad-setting`, `error`, …
    Other(String),
}

/// What the unit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Active {
    /// It runs.
    Active,
    /// It runs, and reads its configuration again.
    Reloading,
    /// It runs, and its mounts are updated.
    Refreshing,
    /// It does not run.
    Inactive,
    /// It does not run, after a failure.
    Failed,
    /// It is being started, or systemd will start it again.
    Activating,
    /// It is being stopped.
    Deactivating,
    /// Its directories are being cleaned.
    Maintenance,
    /// A state that this program does not know.
    Other,
}

/// Whether the unit starts at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// It does.
    Enabled,
    /// Only until the next boot.
    EnabledRuntime,
    /// It does not.
    Disabled,
    /// It has nothing to enable: another unit pulls it in.
    Other,
}

impl UnitState {
    /// From the values of the properties.
    #[must_use]
    pub fn new(load: &str, active: &str, sub: &str, file: &str, result: &str, main_process: u32) -> Self {
        Self {
            load: match load {
                "loaded" => Load::Loaded,
                "not-found" => Load::NotFound,
                "masked" => Load::Masked,
                other => Load::Other(other.to_owned()),
            },
            active: match active {
                "active" => Active::Active,
                "reloading" => Active::Reloading,
                "refreshing" => Active::Refreshing,
                "inactive" => Active::Inactive,
                "failed" => Active::Failed,
                "activating" => Active::Activating,
                "deactivating" => Active::Deactivating,
                "maintenance" => Active::Maintenance,
                _ => Active::Other,
            },
            sub: sub.to_owned(),
            file: match file {
                "enabled" => FileState::Enabled,
                "enabled-runtime" => FileState::EnabledRuntime,
                "disabled" => FileState::Disabled,
                _ => FileState::Other,
            },
            result: result.to_owned(),
            main_process,
        }
    }

    /// Of a unit that the host does not have.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new("not-found", "inactive", "dead", "", "", 0)
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.active, Active::Active | Active::Reloading | Active::Refreshing)
    }

    /// For people, such as `activating (auto-restart)`.
    pub(super) fn summary(&self) -> String {
        let active = match self.active {
            Active::Activating => "activating",
            Active::Deactivating => "deactivating",
            Active::Maintenance => "maintenance",
            _ => "in another state",
        };
        format!("{active} ({})", self.sub)
    }
}

impl Active {
    /// systemd is at it.
    pub(super) fn is_changing(self) -> bool {
        matches!(self, Self::Activating | Self::Deactivating)
    }
}

impl FileState {
    pub(super) fn needs_enabling(self) -> bool {
        matches!(self, Self::Disabled | Self::EnabledRuntime)
    }
}
