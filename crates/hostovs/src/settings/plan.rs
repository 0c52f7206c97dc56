//! The difference between what a node should have and what it has.
//!
//! A record on the host lists the settings that were set from the ConfigMap. Only those return to their default when they are removed;
//! keys and levels of others are left alone. Write the database before the levels: the record then names all that may be changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::Daemon;

use super::key::{Level, Setting, Sink};
use super::merge::{Desired, Refusal};

/// Key of `Open_vSwitch.external_ids` for the record.
pub const RECORD: &str = "k8s.ovn.org/ovs-settings";

/// Levels of each module: console, syslog, file.
pub type Levels = BTreeMap<String, [Level; 3]>;

/// What the host has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// `Open_vSwitch.other_config`.
    pub other_config: BTreeMap<String, String>,
    /// Value of [`RECORD`]; empty if there is none.
    pub record: String,
    /// Levels of the daemons that answer.
    pub levels: BTreeMap<Daemon, Levels>,
}

/// A level to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelChange {
    /// The daemon.
    pub daemon: Daemon,
    /// Its module.
    pub module: String,
    /// The sink.
    pub sink: Sink,
    /// The level.
    pub level: Level,
}

impl LevelChange {
    /// Argument of `vlog/set`.
    #[must_use]
    pub fn argument(&self) -> String {
        format!("{}:{}:{}", self.module, self.sink.name(), self.level.name())
    }
}

/// What to change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Keys of `other_config`.
    pub set: BTreeMap<&'static str, String>,
    /// Keys of `other_config` to remove.
    pub remove: BTreeSet<String>,
    /// The new record, if it changes; empty to remove it.
    pub record: Option<String>,
    /// After the database.
    pub levels: Vec<LevelChange>,
}

impl Plan {
    /// Whether the host has what it should have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The output of `vlog/list`: a module and three levels in each line.
#[must_use]
pub fn parse_levels(text: &str) -> Levels {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (module, levels) = (words.next()?, [words.next()?, words.next()?, words.next()?]);
        let [console, syslog, file] = levels.map(Level::named);
        words.next().is_none().then_some((module.to_owned(), [console?, syslog?, file?]))
    };
    text.lines().filter_map(line).collect()
}

/// Compares; refuses log modules that a daemon does not have.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed) -> (Plan, Vec<Refusal>) {
    let (mut plan, mut refusals) = (Plan::default(), Vec::new());
    let owned: BTreeSet<&str> = observed.record.split_whitespace().collect();
    let mut record: BTreeSet<String> = desired.values.keys().map(ToString::to_string).collect();
    record.extend(desired.held.iter().map(ToString::to_string).filter(|key| owned.contains(key.as_str())));

    for (setting, value) in &desired.values {
        if let Setting::OtherConfig(name) = setting
            && observed.other_config.get(*name) != Some(value)
        {
            plan.set.insert(name, value.clone());
        }
    }
    // Also names that only another version of this program knows.
    let released =
        owned.iter().filter(|key| !record.contains(**key)).filter_map(|key| key.strip_prefix("other_config."));
    plan.remove = released.filter(|name| observed.other_config.contains_key(*name)).map(str::to_owned).collect();

    let owned_logs: BTreeSet<Setting> = owned.iter().filter_map(|key| Setting::parse(key).ok()).collect();
    let is_released = |setting: &Setting| owned_logs.contains(setting) && !record.contains(&setting.to_string());
    let mut unfinished = BTreeSet::new();
    for daemon in Daemon::ALL {
        let Some(levels) = observed.levels.get(&daemon) else {
            let waits = owned_logs.iter().filter(|setting| is_released(setting) && is_log_of(setting, daemon));
            unfinished.extend(waits.map(ToString::to_string));
            continue;
        };
        refusals.extend(unknown_modules(desired, daemon, levels));
        for (module, present) in levels {
            for (sink, present) in Sink::ALL.into_iter().zip(present) {
                let own = Setting::Log { daemon, module: Some(module.clone()), sink };
                let any = Setting::Log { daemon, module: None, sink };
                let Some(level) = wanted(desired, &own, &any, is_released(&own) || is_released(&any), sink) else {
                    continue;
                };
                if level != *present {
                    plan.levels.push(LevelChange { daemon, module: module.clone(), sink, level });
                    unfinished.extend([&own, &any].into_iter().filter(|it| is_released(it)).map(ToString::to_string));
                }
            }
        }
    }
    record.extend(unfinished);
    let record = record.into_iter().collect::<Vec<_>>().join(" ");
    plan.record = (record != observed.record).then_some(record);
    (plan, refusals)
}

/// The level that a module should have; none if it is nothing of ours, or a refused value holds it.
fn wanted(desired: &Desired, own: &Setting, any: &Setting, is_released: bool, sink: Sink) -> Option<Level> {
    for setting in [own, any] {
        if let Some(value) = desired.values.get(setting) {
            return Level::named(value);
        }
        if desired.held.contains(setting) {
            return None;
        }
    }
    is_released.then(|| sink.default_level())
}

fn is_log_of(setting: &Setting, of: Daemon) -> bool {
    matches!(setting, Setting::Log { daemon, .. } if *daemon == of)
}

fn unknown_modules<'a>(desired: &'a Desired, of: Daemon, levels: &'a Levels) -> impl Iterator<Item = Refusal> + 'a {
    desired.values.iter().filter_map(move |(setting, value)| match setting {
        Setting::Log { daemon, module: Some(module), .. } if *daemon == of && !levels.contains_key(module) => {
            let known = levels.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let allowed = format!("any, and the modules {known}");
            Some(Refusal { key: setting.to_string(), value: value.clone(), allowed })
        }
        _ => None,
    })
}
