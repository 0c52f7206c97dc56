//! The effective configuration: each setting's value, and where it came from.
//!
//! A flag wins over the environment, the environment over the file, the file over the default. All layers
//! are read and every problem in them is told at once, so that nobody corrects a file line by line.

pub(crate) mod cluster;
mod file;
mod follow;
mod ini;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;
use telemetry::LogOptions;

use crate::settings::{self, SETTINGS, Setting};

pub(crate) use follow::Follower;

/// Read when no other file is named, if it is there.
pub(crate) const DEFAULT_FILE: &str = "/etc/openvswitch/ovn_k8s.conf";
/// Names the file when no flag does.
pub(crate) const FILE_VARIABLE: &str = "OVNKUBE_CONFIG";

/// What the command line said about the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    /// The file that was named, by a flag or an argument.
    pub(crate) file: Option<PathBuf>,
    /// Whether to leave the file alone, the default one too.
    pub(crate) no_file: bool,
    /// Values by flag, without its dashes.
    pub(crate) flags: BTreeMap<&'static str, String>,
}

impl Given {
    /// The file that is named, by the command line or else by the environment. An empty variable counts as unset.
    fn named_file(&self, environment: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let variable = || environment(FILE_VARIABLE).filter(|value| !value.is_empty());
        self.file.clone().or_else(|| variable().map(PathBuf::from))
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Source {
    Default,
    /// A key of a cluster's own ConfigMap.
    ConfigMap {
        name: String,
        key: String,
    },
    File {
        path: String,
        line: usize,
    },
    Environment {
        name: String,
    },
    Flag {
        name: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::ConfigMap { name, key } => write!(f, "{key} of ConfigMap {name}"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Environment { name } | Self::Flag { name } => f.write_str(name),
        }
    }
}

/// A setting with the value that is in force.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) setting: &'static Setting,
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// The configuration that is in force.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file that was read, if one was.
    pub(crate) file: Option<PathBuf>,
    /// Every setting, in the order of the table.
    pub(crate) effective: Vec<Effective>,
}

/// Everything that is wrong with the configuration, a line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(crate) struct Problems(pub(crate) Vec<String>);

impl Config {
    /// Reads all layers, with the environment of this process.
    pub(crate) fn load(given: &Given) -> Result<Self, Problems> {
        Self::load_from(given, &|name| std::env::var_os(name), Path::new(DEFAULT_FILE))
    }

    fn load_from(
        given: &Given,
        environment: &dyn Fn(&str) -> Option<OsString>,
        default_file: &Path,
    ) -> Result<Self, Problems> {
        // An empty variable counts as unset: that is how manifests leave one out.
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let mut problems = Vec::new();
        let named = given.named_file(environment);
        let (file, mut entries) = if given.no_file {
            (None, file::Entries::default())
        } else {
            file::read(named.as_deref(), default_file, &mut problems)
        };
        let effective = SETTINGS
            .into_iter()
            .map(|setting| {
                let (value, source) = choose(setting, given, &variable, entries.remove(setting), &mut problems);
                Effective { setting, value, source }
            })
            .collect();
        if problems.is_empty() { Ok(Self { file, effective }) } else { Err(Problems(problems)) }
    }

    /// What to log, and how.
    pub(crate) fn log_options(&self) -> anyhow::Result<LogOptions> {
        Ok(LogOptions {
            filter: self.value(&settings::LOG_LEVEL)?.to_owned(),
            format: self.value(&settings::LOG_FORMAT)?.parse()?,
        })
    }

    /// Takes the settings of a cluster's ConfigMap where neither a flag, the environment nor a file has one: the keys that
    /// `deploy/ovnkube` turns into environment variables, then its configuration file.
    pub(crate) fn fill_from(&mut self, map: &cluster::ConfigMap) -> Result<(), Problems> {
        let mut entries = map.entries()?;
        for effective in self.effective.iter_mut().filter(|effective| effective.source == Source::Default) {
            if let Some((value, source)) = entries.remove(effective.setting) {
                (effective.value, effective.source) = (value, source);
            }
        }
        Ok(())
    }

    /// The value of one setting.
    pub(crate) fn value(&self, setting: &Setting) -> anyhow::Result<&str> {
        self.effective
            .iter()
            .find(|effective| effective.setting.flag == setting.flag)
            .map(|effective| effective.value.as_str())
            .ok_or_else(|| anyhow!("[{}] {} is not in the settings table", setting.section, setting.key))
    }
}

/// The value of the strongest layer that has one. A bad value is a problem in every layer, even where a
/// stronger one hides it: it would show up later, when nobody thinks of it any more.
fn choose(
    setting: &'static Setting,
    given: &Given,
    variable: &dyn Fn(&str) -> Option<OsString>,
    from_file: Option<(String, Source)>,
    problems: &mut Vec<String>,
) -> (String, Source) {
    let mut chosen = from_file.unwrap_or_else(|| (setting.default.to_owned(), Source::Default));
    let mut layer = |name: String, value: String, source: Source| {
        if let Err(why) = (setting.check)(&value) {
            problems.push(format!("{name}: {value:?}: {why}; allowed: {}", setting.allowed));
        }
        chosen = (value, source);
    };
    let name = setting.variable();
    match variable(&name).map(OsString::into_string) {
        Some(Ok(value)) => layer(name.clone(), value, Source::Environment { name }),
        Some(Err(value)) => {
            let value = value.to_string_lossy().into_owned();
            layer(format!("{name} (not UTF-8)"), value, Source::Environment { name });
        }
        None => {}
    }
    if let Some(value) = given.flags.get(setting.flag) {
        let name = format!("--{}", setting.flag);
        layer(name.clone(), value.clone(), Source::Flag { name });
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{LOG_FORMAT, LOG_LEVEL, METRICS_ADDRESS};

    fn load(flags: &[(&'static str, &str)], environment: &[(&str, &str)]) -> Result<Config, Problems> {
        let given = Given {
            flags: flags.iter().map(|(flag, value)| (*flag, (*value).to_owned())).collect(),
            ..Given::default()
        };
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Config::load_from(&given, &variable, Path::new("/nonexistent/ovn_k8s.conf"))
    }

    #[test]
    fn without_anything_the_defaults_are_in_force() {
        let config = load(&[], &[]).unwrap();
        assert_eq!(config.file, None);
        assert!(config.effective.iter().all(|e| e.source == Source::Default));
        assert_eq!(config.value(&METRICS_ADDRESS).unwrap(), METRICS_ADDRESS.default);
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        let environment = [("OVNKUBE_LOGGING_LEVEL", "warn"), ("OVNKUBE_LOGGING_FORMAT", "json")];
        let config = load(&[("log-level", "debug")], &environment).unwrap();
        assert_eq!(config.value(&LOG_LEVEL).unwrap(), "debug");
        assert_eq!(config.value(&LOG_FORMAT).unwrap(), "json");
        let sources: Vec<_> = config.effective.iter().map(|e| e.source.to_string()).collect();
        assert_eq!(sources[..3], ["--log-level", "OVNKUBE_LOGGING_FORMAT", "default"]);
    }

    #[test]
    fn an_empty_variable_is_unset() {
        let config = load(&[], &[("OVNKUBE_LOGGING_LEVEL", ""), ("OVNKUBE_CONFIG", "")]).unwrap();
        assert_eq!(config.value(&LOG_LEVEL).unwrap(), "info");
    }

    #[test]
    fn every_bad_layer_is_named() {
        let environment = [("OVNKUBE_LOGGING_LEVEL", "loud"), ("OVNKUBE_METRICS_BIND_ADDRESS", "9102")];
        let Problems(problems) = load(&[("log-level", "LOUDER")], &environment).unwrap_err();
        assert_eq!(problems.len(), 3);
        assert!(problems[0].starts_with("OVNKUBE_LOGGING_LEVEL: \"loud\": not a log filter; allowed: off,"));
        assert!(problems[1].starts_with("--log-level: \"LOUDER\""), "{}", problems[1]);
        assert!(problems[2].starts_with("OVNKUBE_METRICS_BIND_ADDRESS: \"9102\""));
    }
}
