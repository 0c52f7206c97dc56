//! Random CIDRs around relevant addresses.

use std::net::IpAddr;

use serde_json::Value;

use super::rng::Rng;
use super::vocabulary::STRANGERS;
use crate::address::Family;

/// Addresses of pods, nodes and the outside, in the pods' families.
pub(super) fn interesting(objects: &[Value]) -> Vec<IpAddr> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found: Vec<IpAddr> = Vec::new();
    for object in objects {
        let pod = list(&object["status"]["podIPs"]).into_iter().map(|entry| entry["ip"].clone());
        let node = list(&object["status"]["addresses"]).into_iter().map(|entry| entry["address"].clone());
        found.extend(pod.chain(node).filter_map(|text| text.as_str()?.parse::<IpAddr>().ok()));
    }
    let families: Vec<Family> = found.iter().map(|address| Family::of(*address)).collect();
    let strangers = STRANGERS.iter().filter_map(|text| text.parse().ok());
    found.extend(strangers.filter(|address| families.contains(&Family::of(*address))));
    found
}

/// A CIDR with a relevant address, and sometimes exceptions.
pub(super) fn block(rng: &mut Rng, interesting: &[IpAddr]) -> (String, Vec<String>) {
    let center = *rng.pick(interesting);
    let lengths: &[u32] = if center.is_ipv4() { &[32, 25, 24, 23, 14, 0] } else { &[128, 125, 64, 48, 0] };
    let length = *rng.pick(lengths);
    let network = masked(center, length);
    let inside: Vec<IpAddr> = interesting
        .iter()
        .copied()
        .filter(|address| Family::of(*address) == Family::of(center) && masked(*address, length) == network)
        .collect();
    let longer: Vec<u32> = lengths.iter().copied().filter(|other| *other > length).collect();
    let mut except = Vec::new();
    if !longer.is_empty() && rng.percent(45) {
        for _ in 0..rng.between(1, 2) {
            let length = *rng.pick(&longer);
            except.push(format!("{}/{length}", masked(*rng.pick(&inside), length)));
        }
    }
    (format!("{network}/{length}"), except)
}

/// The network address for a prefix length.
fn masked(address: IpAddr, length: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}
