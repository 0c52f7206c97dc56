//! Kernel settings of the external bridge and the management port. The bridge's previous values are saved in its
//! `external_ids`, and restored at cleanup.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gateway::{Device, Facts};
use netmodel::Family;
use ovsdb::client::Client;
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::Transaction;

use super::error::GatewayError;
use super::reconciler::commit;
use super::view::BridgeView;
use crate::switch::rows::keys;

/// Key of the bridge's `external_ids`: previous values, as `PATH=VALUE` separated by spaces.
pub(super) const SAVED_SYSCTLS: &str = "ovnkube-before";
const ROOT: &str = "/proc/sys/net";

fn conf(family: Family, device: &str, name: &str) -> PathBuf {
    let family = family.to_string().to_lowercase();
    Path::new(ROOT).join(family).join("conf").join(device).join(name)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn write(path: &Path, value: &str) -> Result<(), GatewayError> {
    let failed = |error| GatewayError::Sysctl { path: path.to_owned(), value: value.to_owned(), error };
    std::fs::write(path, value).map_err(failed)
}

/// Writes the settings that differ, after it has saved the previous values of the bridge.
pub(super) async fn apply(client: &Client, bridge: &BridgeView, facts: &Facts) -> Result<(), GatewayError> {
    let mut before: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut desired: Vec<(PathBuf, &str)> = Vec::new();
    for setting in gateway::host(facts).sysctls {
        let device = match setting.device {
            Device::Bridge => &facts.bridge.name,
            Device::Management => &facts.network.management,
        };
        let mut path = conf(setting.family, device, setting.name);
        if setting.family.is_ipv6() && setting.name == "forwarding" {
            // Newer kernels can forward on one device only, and stay a host on all others.
            let one_device = conf(Family::V6, device, "force_forwarding");
            if one_device.exists() {
                path = one_device;
            } else {
                forward_ipv6(&mut desired, device);
            }
        }
        desired.push((path, setting.value));
    }
    desired.retain(|(path, value)| read(path).is_some_and(|now| now != *value));
    for (path, _) in
        desired.iter().filter(|(path, _)| path.iter().all(|part| part != facts.network.management.as_str()))
    {
        before.extend(read(path).map(|now| (path.clone(), now)));
    }
    save(client, bridge, before).await?;
    for (path, value) in desired {
        write(&path, value)?;
    }
    Ok(())
}

/// Older kernels forward IPv6 on all devices or on none. Forwarding disables router advertisements unless `accept_ra` is 2.
fn forward_ipv6(desired: &mut Vec<(PathBuf, &'static str)>, device: &str) {
    desired.push((conf(Family::V6, "all", "forwarding"), "1"));
    let accept_ra = conf(Family::V6, device, "accept_ra");
    if read(&accept_ra).as_deref() == Some("1") {
        desired.push((accept_ra, "2"));
    }
}

/// Adds values to those that are saved; what is saved already is older and stays.
async fn save(client: &Client, bridge: &BridgeView, before: BTreeMap<PathBuf, String>) -> Result<(), GatewayError> {
    let mut all = saved(bridge);
    let known = all.len();
    for (path, value) in before {
        all.entry(path).or_insert(value);
    }
    if all.len() == known {
        return Ok(());
    }
    let words: Vec<String> = all.iter().map(|(path, value)| format!("{}={value}", path.display())).collect();
    let mut transaction = Transaction::new();
    transaction.set_key("Bridge", bridge.uuid, "external_ids", SAVED_SYSCTLS, &words.join(" "));
    commit(client, &transaction).await
}

fn saved(bridge: &BridgeView) -> BTreeMap<PathBuf, String> {
    let text = bridge.external_ids.get(SAVED_SYSCTLS).map(String::as_str).unwrap_or_default();
    let pairs = text.split(' ').filter_map(|word| word.split_once('='));
    pairs.map(|(path, value)| (PathBuf::from(path), value.to_owned())).collect()
}

/// Restores the previous values, and removes these keys from the bridge's `external_ids`.
pub(super) async fn restore(client: &Client, bridge: &BridgeView, own_keys: &[&str]) -> Result<(), GatewayError> {
    for (path, value) in saved(bridge) {
        if path.starts_with(ROOT) && read(&path).is_some_and(|now| now != value) {
            write(&path, &value)?;
        }
    }
    let present: Vec<&str> = own_keys.iter().copied().filter(|key| bridge.external_ids.contains_key(*key)).collect();
    if present.is_empty() {
        return Ok(());
    }
    let mut transaction = Transaction::new();
    let mutations = vec![Mutation::new("external_ids", Mutator::Delete, keys(&present))];
    transaction.mutate("Bridge", vec![Condition::uuid(bridge.uuid)], mutations);
    commit(client, &transaction).await
}
