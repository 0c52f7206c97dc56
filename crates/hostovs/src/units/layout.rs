//! Which units Open vSwitch has on a host.

use std::fmt;

/// Units that are known to start Open vSwitch at boot, in order of preference: Debian's and Ubuntu's, and everyone else's.
pub const CANDIDATES: [&str; 2] = ["openvswitch-switch.service", "openvswitch.service"];

/// A daemon of Open vSwitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// The database server.
    OvsdbServer,
    /// The switch.
    Vswitchd,
}

impl Daemon {
    /// Both, in the order in which they start.
    pub const ALL: [Self; 2] = [Self::OvsdbServer, Self::Vswitchd];

    /// Name of the program, of its pidfile and of its log file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OvsdbServer => "ovsdb-server",
            Self::Vswitchd => "ovs-vswitchd",
        }
    }

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|daemon| daemon.name() == name)
    }
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The units of Open vSwitch on a host.
///
/// The umbrella starts at boot and pulls the daemons in. It runs `/bin/true`, so its own state says nothing about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    umbrella: String,
    daemons: [String; 2],
}

/// Why the units cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The host has none of the candidates.
    #[error("no unit of Open vSwitch found ({} looked for); install Open vSwitch on the host, or name its unit", CANDIDATES.join(", "))]
    NotInstalled,
    /// Not a name of a service.
    #[error("{0:?} is not the name of a service; expected a name such as openvswitch.service")]
    InvalidName(String),
}

impl Layout {
    /// With this umbrella, and the daemons' units as every distribution names them.
    pub fn with_umbrella(umbrella: &str) -> Result<Self, LayoutError> {
        let stem = umbrella.strip_suffix(".service").unwrap_or_default();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@\\".contains(c);
        if stem.is_empty() || umbrella.len() > 255 || !stem.chars().all(is_allowed) {
            return Err(LayoutError::InvalidName(umbrella.to_owned()));
        }
        let daemons = Daemon::ALL.map(|daemon| format!("{daemon}.service"));
        Ok(Self { umbrella: umbrella.to_owned(), daemons })
    }

    /// With the first candidate that the host has, also if it is masked.
    pub fn detect(is_present: impl Fn(&str) -> bool) -> Result<Self, LayoutError> {
        let found = CANDIDATES.into_iter().find(|unit| is_present(unit)).ok_or(LayoutError::NotInstalled)?;
        Self::with_umbrella(found)
    }

    /// All units, in the order in which they start.
    pub fn units(&self) -> impl Iterator<Item = &str> {
        let umbrella = (!self.daemons.contains(&self.umbrella)).then_some(self.umbrella.as_str());
        self.daemons.iter().map(String::as_str).chain(umbrella)
    }

    /// The unit of a daemon.
    #[must_use]
    pub fn unit(&self, daemon: Daemon) -> &str {
        match daemon {
            Daemon::OvsdbServer => &self.daemons[0],
            Daemon::Vswitchd => &self.daemons[1],
        }
    }

    /// The umbrella.
    #[must_use]
    pub fn umbrella(&self) -> &str {
        &self.umbrella
    }

    /// Whether a unit is that of a daemon.
    pub(super) fn is_daemon(&self, unit: &str) -> bool {
        self.daemons.iter().any(|daemon| daemon == unit)
    }

    /// Boot starts the umbrella, which starts the others.
    pub(super) fn is_enabled_for_boot(&self, unit: &str) -> bool {
        unit == self.umbrella
    }
}
