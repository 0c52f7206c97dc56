//! Settings of the kernel for our two devices. What the bridge had before is kept beside it, for the day when we leave.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gateway::{Device, Facts};
use ovsdb::client::Client;
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::Transaction;

use super::carried::commit;
use super::view::BridgeView;
use crate::switch::rows::keys;

/// On the bridge: what its settings were before us.
pub(super) const BEFORE: &str = "ovnkube-before";
const ROOT: &str = "/proc/sys/net";

fn conf(v6: bool, device: &str, name: &str) -> PathBuf {
    let family = if v6 { "ipv6" } else { "ipv4" };
    Path::new(ROOT).join(family).join("conf").join(device).join(name)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn write(path: &Path, value: &str) -> Result<(), String> {
    std::fs::write(path, value).map_err(|error| format!("{} cannot be set to {value}: {error}", path.display()))
}

/// Makes the settings what they shall be; what they are already is not touched.
pub(super) async fn carry(client: &Client, bridge: &BridgeView, facts: &Facts) -> Result<(), String> {
    let mut before: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut wanted: Vec<(PathBuf, &str)> = Vec::new();
    for setting in gateway::host(facts).sysctls {
        let device = match setting.device {
            Device::Bridge => &facts.bridge.name,
            Device::Management => &facts.network.management,
        };
        let mut path = conf(setting.v6, device, setting.name);
        if setting.v6 && setting.name == "forwarding" {
            // Where the kernel can forward on one device alone, it stays an ordinary host on all others.
            let alone = conf(true, device, "force_forwarding");
            if alone.exists() {
                path = alone;
            } else {
                forward_ipv6(&mut wanted, device);
            }
        }
        wanted.push((path, setting.value));
    }
    wanted.retain(|(path, value)| read(path).is_some_and(|now| now != *value));
    for (path, _) in wanted.iter().filter(|(path, _)| path.iter().all(|part| part != facts.network.management.as_str()))
    {
        before.extend(read(path).map(|now| (path.clone(), now)));
    }
    remember(client, bridge, before).await?;
    for (path, value) in wanted {
        write(&path, value)?;
    }
    Ok(())
}

/// Older kernels forward IPv6 on all devices or on none. One that learns its routes from routers goes on to do so.
fn forward_ipv6(wanted: &mut Vec<(PathBuf, &'static str)>, device: &str) {
    wanted.push((conf(true, "all", "forwarding"), "1"));
    let learns = conf(true, device, "accept_ra");
    if read(&learns).as_deref() == Some("1") {
        wanted.push((learns, "2"));
    }
}

async fn remember(client: &Client, bridge: &BridgeView, before: BTreeMap<PathBuf, String>) -> Result<(), String> {
    let mut all = remembered(bridge);
    let known = all.len();
    for (path, value) in before {
        all.entry(path).or_insert(value);
    }
    if all.len() == known {
        return Ok(());
    }
    let words: Vec<String> = all.iter().map(|(path, value)| format!("{}={value}", path.display())).collect();
    let mut transaction = Transaction::new();
    transaction.set_key("Bridge", bridge.uuid, "external_ids", BEFORE, &words.join(" "));
    commit(client, &transaction).await
}

fn remembered(bridge: &BridgeView) -> BTreeMap<PathBuf, String> {
    let text = bridge.external_ids.get(BEFORE).map(String::as_str).unwrap_or_default();
    let pairs = text.split(' ').filter_map(|word| word.split_once('='));
    pairs.map(|(path, value)| (PathBuf::from(path), value.to_owned())).collect()
}

/// Gives the settings back what they were, and takes our notes off the bridge.
pub(super) async fn give_back(client: &Client, bridge: &BridgeView, notes: &[&str]) -> Result<(), String> {
    for (path, value) in remembered(bridge) {
        if path.starts_with(ROOT) && read(&path).is_some_and(|now| now != value) {
            write(&path, &value)?;
        }
    }
    let ours: Vec<&str> = notes.iter().copied().filter(|note| bridge.external_ids.contains_key(*note)).collect();
    if ours.is_empty() {
        return Ok(());
    }
    let mut transaction = Transaction::new();
    let mutations = vec![Mutation::new("external_ids", Mutator::Delete, keys(&ours))];
    transaction.mutate("Bridge", vec![Condition::uuid(bridge.uuid)], mutations);
    commit(client, &transaction).await
}
