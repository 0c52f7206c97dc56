//! The settings of one node: those of the ConfigMap, changed by the overrides that select it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::key::Setting;
use super::selector::Selector;

const OVERRIDE: &str = "override.";
/// In an override: not set on these nodes.
const DEFAULT: &str = "default";

/// What a node should have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// Values, as they are written.
    pub values: BTreeMap<Setting, String>,
    /// Settings with a refused value: what they are stays.
    pub held: BTreeSet<Setting>,
}

/// A setting that is not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Key of the ConfigMap, with the override that it is in.
    pub key: String,
    /// The value, shortened.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, allowed } = self;
        write!(f, "{key}: {value:?} is not applied; allowed: {allowed}")
    }
}

/// Computes the settings of a node with these labels.
#[must_use]
pub fn desired(data: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> (Desired, Vec<Refusal>) {
    let (mut desired, mut refusals) = (Desired::default(), Vec::new());
    for (key, value) in data.iter().filter(|(key, _)| !key.starts_with(OVERRIDE)) {
        desired.set("", key, value, false, &mut refusals);
    }
    for (name, text) in data.iter().filter(|(key, _)| key.starts_with(OVERRIDE)) {
        desired.override_by(name, text, labels, &mut refusals);
    }
    // Held by any line: a value of another line is no better known.
    desired.values.retain(|setting, _| !desired.held.contains(setting));
    (desired, refusals)
}

impl Desired {
    fn set(&mut self, place: &str, key: &str, value: &str, may_default: bool, refusals: &mut Vec<Refusal>) {
        let mut refuse = |allowed: String| {
            let value = value.chars().take(100).collect();
            refusals.push(Refusal { key: format!("{place}{key}"), value, allowed });
        };
        let setting = match Setting::parse(key) {
            Ok(setting) => setting,
            Err(allowed) => return refuse(allowed),
        };
        if may_default && value.trim() == DEFAULT {
            self.values.remove(&setting);
            return;
        }
        match setting.check(value) {
            Ok(value) => {
                self.values.insert(setting, value);
            }
            Err(allowed) => {
                refuse(if may_default { format!("{allowed}, default") } else { allowed });
                self.held.insert(setting);
            }
        }
    }

    fn override_by(&mut self, name: &str, text: &str, labels: &BTreeMap<String, String>, refusals: &mut Vec<Refusal>) {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (mut selector, mut settings) = (None, Vec::new());
        for line in lines {
            match line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) {
                Some(("nodes", value)) => selector = Some(value),
                Some(setting) => settings.push(setting),
                None => {
                    let value = line.chars().take(100).collect();
                    refusals.push(Refusal { key: name.to_owned(), value, allowed: "lines KEY: VALUE".to_owned() });
                }
            }
        }
        let parsed = Selector::parse(selector.unwrap_or_default());
        match parsed {
            Ok(selector) if !selector.matches(labels) => {}
            Ok(_) => {
                let place = format!("{name}/");
                settings.iter().for_each(|(key, value)| self.set(&place, key, value, true, refusals));
            }
            Err(error) => {
                let value = selector.unwrap_or_default().chars().take(100).collect();
                refusals.push(Refusal { key: format!("{name}/nodes"), value, allowed: error.to_string() });
                // It is not known whether these are for this node.
                self.held.extend(settings.iter().filter_map(|(key, _)| Setting::parse(key).ok()));
            }
        }
    }
}
