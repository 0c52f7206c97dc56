//! Settings of a cluster: those of its ConfigMap, unless given here, and notes on their origin.

use anyhow::anyhow;

use crate::config::cluster::ConfigMap;
use crate::config::{Config, Source};
use crate::settings::{self, Setting};

/// Addresses depend on these two, so their source is always noted.
const NETWORKS: [&Setting; 2] = [&settings::CLUSTER_SUBNETS, &settings::SERVICE_CIDRS];

/// Fills the configuration from the cluster's ConfigMap, or reports why there is none. Returns notes on the values
/// that are used, and on those that are assumed.
pub(super) fn fill(config: &mut Config, found: Result<ConfigMap, String>) -> anyhow::Result<Vec<String>> {
    let given = |config: &Config| {
        let known = |setting: &&&Setting| source(config, setting) != Some(&Source::Default);
        NETWORKS.iter().filter(known).count() == NETWORKS.len()
    };
    let mut notes = Vec::new();
    let why = match found {
        Ok(map) => match config.fill_from(&map) {
            Ok(()) => {
                notes.extend(used(config, &map));
                None
            }
            Err(problems) if given(config) => Some(problems.to_string().replace('\n', "; ")),
            Err(problems) => {
                let hint = "correct it, or give --cluster-subnets and --k8s-service-cidrs";
                return Err(anyhow!("cannot use the cluster's settings: {problems}; hint: {hint}"));
            }
        },
        Err(why) => Some(why),
    };
    let assumed: Vec<&Setting> =
        NETWORKS.into_iter().filter(|setting| source(config, setting) == Some(&Source::Default)).collect();
    if assumed.is_empty() {
        notes.extend(why.map(|why| format!("{why}: only the settings given here are used")));
        return Ok(notes);
    }
    let pairs: Vec<String> = assumed.iter().map(|setting| pair(config, setting)).collect();
    let flags: Vec<String> = assumed.iter().map(|setting| format!("--{}", setting.flag)).collect();
    let why = why.unwrap_or_else(|| "the cluster's ConfigMap does not set it".to_owned());
    let (pairs, flags) = (pairs.join(" "), flags.join(" and "));
    notes.push(format!("{why}: assuming the default {pairs}; give {flags} if the cluster has others"));
    Ok(notes)
}

/// Notes on settings from the ConfigMap, and on those given here instead.
fn used(config: &Config, map: &ConfigMap) -> Vec<String> {
    let mut notes = Vec::new();
    let from_map = |source: &Source| matches!(source, Source::ConfigMap { .. });
    let taken = config.effective.iter().filter(|effective| from_map(&effective.source));
    let taken: Vec<String> = taken.map(|effective| pair(config, effective.setting)).collect();
    if !taken.is_empty() {
        notes.push(format!("{} from the cluster's ConfigMap {}", taken.join(" "), map.name));
    }
    for setting in NETWORKS {
        let own = source(config, setting).filter(|source| !from_map(source) && **source != Source::Default);
        let key = map.value_of(setting).filter(|(_, value)| config.value(setting).ok() != Some(*value));
        if let (Some(own), Some((key, value))) = (own, key) {
            let pair = pair(config, setting);
            notes.push(format!("{pair} from {own}, although {key} of the cluster's ConfigMap {} is {value}", map.name));
        }
    }
    notes
}

fn pair(config: &Config, setting: &Setting) -> String {
    format!("{}={}", setting.key, config.value(setting).unwrap_or_default())
}

fn source<'a>(config: &'a Config, setting: &Setting) -> Option<&'a Source> {
    let found = config.effective.iter().find(|effective| effective.setting.flag == setting.flag);
    found.map(|effective| &effective.source)
}
