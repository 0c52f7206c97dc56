//! The effective configuration: the value and the source of each setting.
//!
//! A flag wins over the environment, the environment over the file, the file over the default. All layers
//! are read, and all their problems are reported at once.

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

use crate::settings::{self, DEPRECATED, SETTINGS, Setting};

pub(crate) use follow::Follower;

/// Read if it exists and no other file is set.
pub(crate) const DEFAULT_FILE: &str = "/etc/openvswitch/ovn_k8s.conf";
/// Environment variable with the path of the file; a flag wins.
pub(crate) const FILE_VARIABLE: &str = "OVNKUBE_CONFIG";

/// Arguments of the command line that select the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigArgs {
    /// Path of the file from a flag or an argument.
    pub(crate) file: Option<PathBuf>,
    /// Read no file, not even the default one.
    pub(crate) no_file: bool,
    /// Values by flag, without dashes.
    pub(crate) flags: BTreeMap<&'static str, String>,
}

impl ConfigArgs {
    /// The file set by the command line, else by the environment. An empty variable counts as unset.
    fn named_file(&self, environment: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let variable = || environment(FILE_VARIABLE).filter(|value| !value.is_empty());
        self.file.clone().or_else(|| variable().map(PathBuf::from))
    }
}

/// Where the effective value of a setting comes from, for `config show`.
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

/// A setting with its effective value.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) setting: &'static Setting,
    pub(crate) value: String,
    pub(crate) source: Source,
}

#[derive(Debug)]
pub(crate) struct Config {
    /// The file that was read, if any.
    pub(crate) file: Option<PathBuf>,
    /// Every setting, in the order of the table.
    pub(crate) effective: Vec<Effective>,
    /// One sentence per deprecated name in use.
    pub(crate) warnings: Vec<String>,
}

/// All problems of the configuration, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(crate) struct Problems(pub(crate) Vec<String>);

impl Config {
    /// Reads all layers, with the environment of this process.
    pub(crate) fn load(args: &ConfigArgs) -> Result<Self, Problems> {
        Self::load_from(args, &|name| std::env::var_os(name), Path::new(DEFAULT_FILE))
    }

    fn load_from(
        args: &ConfigArgs,
        environment: &dyn Fn(&str) -> Option<OsString>,
        default_file: &Path,
    ) -> Result<Self, Problems> {
        // An empty variable counts as unset, as manifests use it.
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let mut problems = Vec::new();
        let named = args.named_file(environment);
        let (file, mut entries) = if args.no_file {
            (None, file::Entries::default())
        } else {
            file::read(named.as_deref(), default_file, &mut problems)
        };
        let mut warnings = std::mem::take(&mut entries.warnings);
        let effective = SETTINGS
            .into_iter()
            .map(|setting| {
                let from_file = entries.remove(setting);
                let (value, source) = choose(setting, args, &variable, from_file, &mut problems, &mut warnings);
                Effective { setting, value, source }
            })
            .collect();
        if problems.is_empty() { Ok(Self { file, effective, warnings }) } else { Err(Problems(problems)) }
    }

    /// Filter and format of the logs.
    pub(crate) fn log_options(&self) -> anyhow::Result<LogOptions> {
        Ok(LogOptions {
            filter: self.value(&settings::LOG_LEVEL)?.to_owned(),
            format: self.value(&settings::LOG_FORMAT)?.parse()?,
        })
    }

    /// Fills settings that neither a flag, the environment nor a file sets from a cluster's ConfigMap: from the keys
    /// that `deploy/ovnkube` turns into environment variables, then from its configuration file.
    pub(crate) fn fill_from(&mut self, map: &cluster::ConfigMap) -> Result<(), Problems> {
        let mut entries = map.entries()?;
        for effective in self.effective.iter_mut().filter(|effective| effective.source == Source::Default) {
            if let Some((value, source)) = entries.remove(effective.setting) {
                (effective.value, effective.source) = (value, source);
            }
        }
        Ok(())
    }

    /// The effective value; an error only if the setting is not in the list of settings.
    pub(crate) fn value(&self, setting: &Setting) -> anyhow::Result<&str> {
        self.effective
            .iter()
            .find(|effective| effective.setting.flag == setting.flag)
            .map(|effective| effective.value.as_str())
            .ok_or_else(|| anyhow!("[{}] {} is not in the settings table", setting.section, setting.key))
    }
}

/// The value of the strongest layer that has one. An invalid value is a problem in every layer, even if a stronger
/// layer hides it now.
fn choose(
    setting: &'static Setting,
    args: &ConfigArgs,
    variable: &dyn Fn(&str) -> Option<OsString>,
    from_file: Option<(String, Source)>,
    problems: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> (String, Source) {
    let mut chosen = from_file.unwrap_or_else(|| (setting.default.to_owned(), Source::Default));
    let mut layer = |name: String, value: String, source: Source| {
        if let Err(why) = (setting.check)(&value) {
            problems.push(format!("{name}: {value:?}: {why}; allowed: {}", setting.allowed));
        }
        chosen = (value, source);
    };
    let former = || DEPRECATED.iter().filter(|former| former.setting.flag == setting.flag);
    let variables = former().map(|former| (former.variable(), true)).chain([(setting.variable(), false)]);
    for (name, is_deprecated) in variables {
        let Some(value) = variable(&name).map(OsString::into_string) else { continue };
        if is_deprecated {
            warnings.push(deprecated(&name, &setting.variable()));
        }
        match value {
            Ok(value) => layer(name.clone(), value, Source::Environment { name }),
            Err(value) => {
                let value = value.to_string_lossy().into_owned();
                layer(format!("{name} (not UTF-8)"), value, Source::Environment { name });
            }
        }
    }
    let flags = former().map(|former| (former.flag, true)).chain([(setting.flag, false)]);
    for (flag, is_deprecated) in flags {
        let Some(value) = args.flags.get(flag) else { continue };
        let name = format!("--{flag}");
        if is_deprecated {
            warnings.push(deprecated(&name, &format!("--{}", setting.flag)));
        }
        layer(name.clone(), value.clone(), Source::Flag { name });
    }
    chosen
}

fn deprecated(name: &str, replacement: &str) -> String {
    format!("{name} is deprecated: use {replacement}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{LOG_FORMAT, LOG_LEVEL, METRICS_ADDRESS};

    fn load(flags: &[(&'static str, &str)], environment: &[(&str, &str)]) -> Result<Config, Problems> {
        let args = ConfigArgs {
            flags: flags.iter().map(|(flag, value)| (*flag, (*value).to_owned())).collect(),
            ..ConfigArgs::default()
        };
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Config::load_from(&args, &variable, Path::new("/nonexistent/ovn_k8s.conf"))
    }

    #[test]
    fn defaults_apply_if_nothing_is_set() {
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
    fn a_deprecated_name_works_in_every_layer_with_a_warning() {
        use crate::settings::node::CNI_ADD_TIMEOUT;
        let found = |config: &Config| config.value(&CNI_ADD_TIMEOUT).unwrap().to_owned();
        let config = load(&[], &[("OVNKUBE_CNI_PATIENCE", "20")]).unwrap();
        assert_eq!(found(&config), "20");
        assert_eq!(config.warnings, ["OVNKUBE_CNI_PATIENCE is deprecated: use OVNKUBE_CNI_ADD_TIMEOUT"]);
        let config = load(&[("cni-patience", "10")], &[("OVNKUBE_CNI_ADD_TIMEOUT", "20")]).unwrap();
        assert_eq!(found(&config), "10");
        assert_eq!(config.warnings, ["--cni-patience is deprecated: use --cni-add-timeout"]);
        // Within a layer the new name wins.
        let config = load(&[("cni-patience", "10"), ("cni-add-timeout", "30")], &[]).unwrap();
        assert_eq!((found(&config).as_str(), config.warnings.len()), ("30", 1));
        let config = load(&[], &[("OVNKUBE_CNI_PATIENCE", "20"), ("OVNKUBE_CNI_ADD_TIMEOUT", "30")]).unwrap();
        assert_eq!((found(&config).as_str(), config.warnings.len()), ("30", 1));
        let Problems(problems) = load(&[], &[("OVNKUBE_CNI_PATIENCE", "soon")]).unwrap_err();
        assert!(problems[0].starts_with("OVNKUBE_CNI_PATIENCE: \"soon\": "), "{problems:?}");
    }

    #[test]
    fn an_empty_variable_is_unset() {
        let config = load(&[], &[("OVNKUBE_LOGGING_LEVEL", ""), ("OVNKUBE_CONFIG", "")]).unwrap();
        assert_eq!(config.value(&LOG_LEVEL).unwrap(), "info");
    }

    #[test]
    fn every_invalid_layer_is_reported() {
        let environment = [("OVNKUBE_LOGGING_LEVEL", "loud"), ("OVNKUBE_METRICS_BIND_ADDRESS", "9102")];
        let Problems(problems) = load(&[("log-level", "LOUDER")], &environment).unwrap_err();
        assert_eq!(problems.len(), 3);
        assert!(problems[0].starts_with("OVNKUBE_LOGGING_LEVEL: \"loud\": not a log filter; allowed: off,"));
        assert!(problems[1].starts_with("--log-level: \"LOUDER\""), "{}", problems[1]);
        assert!(problems[2].starts_with("OVNKUBE_METRICS_BIND_ADDRESS: \"9102\""));
    }
}
