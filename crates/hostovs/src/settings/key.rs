//! One setting: its key, and which values are allowed.

use std::fmt;

use crate::units::Daemon;

/// What is set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// A key of `Open_vSwitch.other_config`.
    OtherConfig(&'static str),
    /// A log level.
    Log {
        /// Of this daemon.
        daemon: Daemon,
        /// Name of the module, as `vlog/list` has it; none for all that have no level of their own.
        module: Option<String>,
        /// Where the messages go.
        sink: Sink,
    },
}

/// Where log messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sink {
    /// The terminal; daemons have none.
    Console,
    /// The system's log.
    Syslog,
    /// The log file.
    File,
}

/// Levels, from no messages to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Open vSwitch's")]
pub enum Level {
    Off,
    Emer,
    Err,
    Warn,
    Info,
    Dbg,
}

impl Sink {
    /// In the order of `vlog/list`.
    pub const ALL: [Self; 3] = [Self::Console, Self::Syslog, Self::File];

    /// As in `vlog/set`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Syslog => "syslog",
            Self::File => "file",
        }
    }

    /// The level that `ovs-ctl` starts the daemons with.
    #[must_use]
    pub fn default_level(self) -> Level {
        match self {
            Self::Console => Level::Emer,
            Self::Syslog => Level::Err,
            Self::File => Level::Info,
        }
    }
}

impl Level {
    const ALL: [Self; 6] = [Self::Off, Self::Emer, Self::Err, Self::Warn, Self::Info, Self::Dbg];

    /// As in `vlog/set`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Emer => "emer",
            Self::Err => "err",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Dbg => "dbg",
        }
    }

    /// By its name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// Values of a key of `other_config`.
#[derive(Clone, Copy)]
enum Kind {
    Integer(u64, u64),
    Boolean,
    Mask,
    Word(&'static [&'static str]),
}

/// The keys of `other_config` that may be set.
const KEYS: [(&str, Kind); 12] = [
    ("flow-limit", Kind::Integer(1, 10_000_000)),
    ("max-idle", Kind::Integer(500, 3_600_000)),
    ("max-revalidator", Kind::Integer(100, 60_000)),
    ("min-revalidate-pps", Kind::Integer(0, 1_000_000)),
    ("n-handler-threads", Kind::Integer(1, 1024)),
    ("n-revalidator-threads", Kind::Integer(1, 1024)),
    ("bundle-idle-timeout", Kind::Integer(1, 65_535)),
    ("stats-update-interval", Kind::Integer(5_000, 3_600_000)),
    ("vlan-limit", Kind::Integer(0, 2)),
    ("hw-offload", Kind::Boolean),
    ("tc-policy", Kind::Word(&["none", "skip_sw", "skip_hw"])),
    ("pmd-cpu-mask", Kind::Mask),
];

const LOG_FORM: &str = "log.DAEMON.MODULE.SINK with a daemon ovs-vswitchd or ovsdb-server, a module of vlog/list or any, and a sink \
                        console, syslog or file";

impl Setting {
    /// By the key of the ConfigMap; the error is what is allowed.
    pub(super) fn parse(key: &str) -> Result<Self, String> {
        if let Some(name) = key.strip_prefix("other_config.") {
            let found = KEYS.iter().find(|(known, _)| *known == name);
            let known = || KEYS.map(|(name, _)| name).join(", ");
            return found
                .map(|(known, _)| Self::OtherConfig(known))
                .ok_or_else(|| format!("other_config. with {}", known()));
        }
        let Some(log) = key.strip_prefix("log.") else {
            return Err(format!("other_config.KEY, {LOG_FORM}, override.NAME"));
        };
        let parts: Vec<&str> = log.split('.').collect();
        let [daemon, module, sink] = parts.as_slice() else { return Err(LOG_FORM.to_owned()) };
        let daemon = Daemon::named(daemon).ok_or(LOG_FORM)?;
        let sink = Sink::ALL.into_iter().find(|known| known.name() == *sink).ok_or(LOG_FORM)?;
        let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        if module.is_empty() || module.len() > 64 || !module.chars().all(is_name) {
            return Err(LOG_FORM.to_owned());
        }
        let module = (*module != "any").then(|| (*module).to_owned());
        Ok(Self::Log { daemon, module, sink })
    }

    /// The value as it is written, or what is allowed.
    pub(super) fn check(&self, value: &str) -> Result<String, String> {
        let value = value.trim();
        let Self::OtherConfig(name) = self else {
            let level = Level::named(value).map(|level| level.name().to_owned());
            return level.ok_or_else(|| "off, emer, err, warn, info, dbg".to_owned());
        };
        let Some((_, kind)) = KEYS.iter().find(|(known, _)| known == name) else { return Err("nothing".to_owned()) };
        match kind {
            Kind::Integer(least, most) => {
                let number = value.parse().ok().filter(|number| (least..=most).contains(&number));
                number
                    .map(|number: u64| number.to_string())
                    .ok_or_else(|| format!("a whole number from {least} to {most}"))
            }
            Kind::Boolean => {
                let found = ["true", "false"].into_iter().find(|known| *known == value);
                found.map(str::to_owned).ok_or_else(|| "true, false".to_owned())
            }
            Kind::Word(words) => {
                let found = words.iter().find(|word| **word == value);
                found.map(|word| (*word).to_owned()).ok_or_else(|| words.join(", "))
            }
            Kind::Mask => {
                let digits = value.strip_prefix("0x").unwrap_or(value);
                let is_mask = (1..=256).contains(&digits.len()) && digits.chars().all(|sign| sign.is_ascii_hexdigit());
                is_mask.then(|| value.to_owned()).ok_or_else(|| "a mask of CPUs in hexadecimal, such as 0x6".to_owned())
            }
        }
    }
}

/// The key of the ConfigMap.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherConfig(name) => write!(f, "other_config.{name}"),
            Self::Log { daemon, module, sink } => {
                write!(f, "log.{daemon}.{}.{}", module.as_deref().unwrap_or("any"), sink.name())
            }
        }
    }
}
