//! Objects that the manifests need and do not contain: their Namespaces, and Nodes with `--sample-nodes`. Answers
//! without them would be wrong rather than incomplete, so they are assumed, and reported in a note.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netmodel::Family;
use objects::ObjectKind;
use serde_json::{Value, json};
use topology::ClusterSettings;

use super::admit::{self, Objects};
use super::load::Key;
use crate::cli::Plan;

/// Names listed in a note.
const NAMED: usize = 5;
/// Nodes in one sample network: the last address is the next hop.
const PER_NETWORK: u32 = 253;

/// Adds missing Namespaces of manifests, as an API server would create them: their only label is
/// `kubernetes.io/metadata.name`, which policies may select.
pub(super) fn namespaces<'k>(objects: &mut Objects, manifests: impl Iterator<Item = &'k Key>) -> Option<String> {
    let key = |name: &str| (ObjectKind::Namespace, String::new(), name.to_owned());
    let named: BTreeSet<&str> =
        manifests.filter(|(kind, ..)| kind.is_namespaced()).map(|(_, namespace, _)| namespace.as_str()).collect();
    let missing: Vec<&str> = named.into_iter().filter(|name| !objects.contains_key(&key(name))).collect();
    for name in &missing {
        insert(objects, key(name), json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }
    let label = "with no label but kubernetes.io/metadata.name";
    let names = list(&missing)?;
    Some(match missing.len() {
        1 => format!("Namespace {names} is not among the objects: assumed, {label}"),
        _ => format!("Namespaces {names} are not among the objects: assumed, {label}"),
    })
}

/// Result of [`nodes`].
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Nodes onto which pods without a node are scheduled, round-robin.
    pub(super) schedulable: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) hints: Vec<String>,
}

/// Adds sample Nodes if `--sample-nodes` is given: missing ones that pods of manifests or `--node` refer to, and, if
/// there is no Node at all, the given number for pods without one.
pub(super) fn nodes(
    plan: &Plan,
    objects: &mut Objects,
    is_manifest: impl Fn(&Key) -> bool,
    cluster: &ClusterSettings,
) -> Nodes {
    let key = |name: &str| (ObjectKind::Node, String::new(), name.to_owned());
    let mut assumed = Nodes { schedulable: plan.node.iter().cloned().collect(), ..Nodes::default() };
    let has_nodes = objects.keys().any(|(kind, ..)| *kind == ObjectKind::Node);
    let pods = || {
        let of_manifest = objects.iter().filter(|(key, _)| key.0 == ObjectKind::Pod && is_manifest(key));
        of_manifest.map(|(_, pod)| pod).filter(|pod| !admit::has_ended(pod))
    };
    let node_of = |pod: &Value| pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).map(str::to_owned);
    let named: BTreeSet<String> = pods().filter_map(node_of).chain(plan.node.clone()).collect();
    let missing: Vec<String> = named.into_iter().filter(|name| !objects.contains_key(&key(name))).collect();
    let names: Vec<&str> = missing.iter().map(String::as_str).collect();
    let Some(count) = plan.sample_nodes else {
        if let Some(names) = list(&names) {
            let (nodes, are, them) = if missing.len() == 1 { ("Node", "is", "it") } else { ("Nodes", "are", "them") };
            assumed.hints.push(format!(
                "{nodes} {names}, which pods or --node name, {are} not among the objects: give {them} as well, or assume \
                 {them} with --sample-nodes 1"
            ));
        }
        return assumed;
    };
    let unplaced = plan.node.is_none() && pods().any(|pod| node_of(pod).is_none());
    let samples = if !has_nodes && (unplaced || missing.is_empty()) { count } else { 0 };
    let samples: Vec<String> = (1..=samples).map(|number| format!("sample-{number}")).collect();
    if samples.is_empty() && missing.is_empty() {
        assumed.hints.push("there are nodes: --sample-nodes is not needed, and none is assumed".into());
    }
    if let Some(names) = list(&names) {
        let (nodes, are) = if missing.len() == 1 { ("Node", "is") } else { ("Nodes", "are") };
        assumed.notes.push(format!("{nodes} {names} {are} not among the objects: assumed, with sample addresses"));
    }
    let taken = addresses_of_nodes(objects);
    let families: Vec<Family> = cluster.families().collect();
    let mut numbers =
        (1u32..).filter(|number| families.iter().all(|family| !taken.contains(&Sample(*number).address(*family))));
    if assumed.schedulable.is_empty() {
        assumed.schedulable.clone_from(&samples);
    }
    for (name, number) in samples.into_iter().chain(missing).zip(&mut numbers) {
        insert(objects, key(&name), Sample(number).node(&name, &families));
    }
    assumed
}

fn insert(objects: &mut Objects, key: Key, mut object: Value) {
    admit::admit(&key, &mut object);
    objects.insert(key, object);
}

/// The first few names; `None` if there are none.
fn list(names: &[&str]) -> Option<String> {
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => Some(shown).filter(|shown| !shown.is_empty()),
        more => Some(format!("{shown} and {more} more")),
    }
}

/// Addresses of existing Nodes.
fn addresses_of_nodes(objects: &Objects) -> BTreeSet<IpAddr> {
    let mut found = BTreeSet::new();
    for (_, node) in objects.iter().filter(|((kind, ..), _)| *kind == ObjectKind::Node) {
        let listed = node["status"]["addresses"].as_array().into_iter().flatten();
        found.extend(listed.filter_map(|entry| entry["address"].as_str()?.parse::<IpAddr>().ok()));
        let cidrs = node["metadata"]["annotations"]["k8s.ovn.org/host-cidrs"].as_str().unwrap_or_default();
        let cidrs: Vec<String> = serde_json::from_str(cidrs).unwrap_or_default();
        found.extend(cidrs.iter().filter_map(|cidr| cidr.split('/').next()?.parse::<IpAddr>().ok()));
    }
    found
}

/// A Node as its agent would annotate it, with reserved addresses: those for documentation, and if they do not
/// suffice, those for benchmarks.
#[derive(Clone, Copy)]
struct Sample(u32);

impl Sample {
    /// Index of the network, and host part.
    fn parts(self) -> (u32, u32) {
        ((self.0 - 1) / PER_NETWORK, (self.0 - 1) % PER_NETWORK + 1)
    }

    fn octets(self) -> [u8; 3] {
        match self.parts().0 {
            0 => [192, 0, 2],
            more => {
                let [.., high, low] = (more - 1).to_be_bytes();
                [198, 18 + high % 2, low]
            }
        }
    }

    fn address(self, family: Family) -> IpAddr {
        let [a, b, c] = self.octets();
        // A host part is at most 253.
        let host = u8::try_from(self.parts().1).unwrap_or_default();
        match family {
            Family::V4 => IpAddr::from([a, b, c, host]),
            Family::V6 => IpAddr::from(((0x2001_0db8_u128 << 96) | u128::from(self.0)).to_be_bytes()),
        }
    }

    fn node(self, name: &str, families: &[Family]) -> Value {
        let [a, b, c] = self.octets();
        let own = |family: &Family| {
            let (length, hop) = match family {
                Family::V4 => (24, format!("{a}.{b}.{c}.254")),
                Family::V6 => (64, "2001:db8::ffff:ffff".to_owned()),
            };
            (format!("{}/{length}", self.address(*family)), hop)
        };
        let (addresses, hops): (Vec<String>, Vec<String>) = families.iter().map(own).unzip();
        let mac = format!("0a:58:{a:02x}:{b:02x}:{c:02x}:{:02x}", self.parts().1);
        let gateway = json!({"default": {"mode": "shared", "interface-id": format!("br-ex_{name}"),
            "mac-address": mac, "next-hops": hops, "ip-addresses": addresses}});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {
            "k8s.ovn.org/node-chassis-id": name,
            "k8s.ovn.org/host-cidrs": json!(addresses).to_string(),
            "k8s.ovn.org/l3-gateway-config": gateway.to_string()}}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_nodes_have_different_addresses() {
        let all: BTreeSet<IpAddr> =
            (1..=1000).flat_map(|number| Family::BOTH.map(|family| Sample(number).address(family))).collect();
        assert_eq!(all.len(), 2000);
        assert_eq!(Sample(1).address(Family::V4).to_string(), "192.0.2.1");
        assert_eq!(Sample(254).address(Family::V4).to_string(), "198.18.0.1");
        assert_eq!(Sample(17).address(Family::V6).to_string(), "2001:db8::11");
    }
}
