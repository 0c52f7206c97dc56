//! Which subnets of the node are in effect. The agent believes its Node's annotation, unless that contradicts what this host
//! itself knows: the pods that it connected got their addresses from the controller.
//!
//! ```text
//!  annotation, inside cluster-subnets ──┬─ contains the subnets in effect ─────────────▶ obeyed
//!                                       ├─ no pod has an address of those that it drops ─▶ obeyed
//!                                       ├─ a pod has an address of those that it adds ───▶ obeyed: the controller uses them
//!                                       └─ else ────────────────────────────────────────▶ ignored and reported
//! ```

use std::net::IpAddr;

use netmodel::{ClusterCidr, Prefix};
use objects::NODE_SUBNETS;
use ovsdb::replica::Snapshot;

use crate::switch::rows;

/// The subnets in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) subnets: Vec<Prefix>,
    /// Why the annotation is ignored, if it is.
    pub(super) ignored: Option<String>,
}

/// Decides between the subnets in effect and those of the annotation; `pods` are the addresses of the connected pods.
pub(super) fn decide(in_effect: &[Prefix], annotated: &[Prefix], pods: &[IpAddr], cluster: &[ClusterCidr]) -> Decision {
    let keep = |why: String| Decision { subnets: in_effect.to_vec(), ignored: Some(why) };
    let allowed = |subnet: &&Prefix| cluster.iter().any(|cidr| cidr.cidr.contains_prefix(**subnet));
    if let Some(foreign) = annotated.iter().find(|subnet| !allowed(subnet)) {
        return keep(format!("annotation {NODE_SUBNETS}: {foreign} is not in cluster-subnets"));
    }
    let only_in = |these: &[Prefix], those: &[Prefix]| -> Vec<Prefix> {
        these.iter().copied().filter(|subnet| !those.contains(subnet)).collect()
    };
    let (dropped, added) = (only_in(in_effect, annotated), only_in(annotated, in_effect));
    let users =
        |subnets: &[Prefix]| pods.iter().filter(|pod| subnets.iter().any(|subnet| subnet.contains(**pod))).count();
    let using = users(&dropped);
    if using > 0 && users(&added) == 0 {
        return keep(format!(
            "annotation {NODE_SUBNETS} was changed to {}, but {using} pods of this node have addresses of {}",
            list(annotated),
            list(&dropped)
        ));
    }
    Decision { subnets: annotated.to_vec(), ignored: None }
}

/// Addresses of the pods that are connected on this host.
pub(super) fn pod_addresses(snapshot: &Snapshot) -> Vec<IpAddr> {
    let interfaces = snapshot.table("Interface").into_iter().flat_map(ovsdb::replica::Table::iter);
    let texts = interfaces.filter_map(|row| rows::external_id(&row, rows::ADDRESSES));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for text in texts {
        addresses.extend(text.split(',').filter_map(|part| part.split('/').next()?.trim().parse::<IpAddr>().ok()));
    }
    addresses.sort_unstable();
    addresses
}

/// Separated by commas.
pub(super) fn list(subnets: &[Prefix]) -> String {
    subnets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnets(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn check(in_effect: &[&str], annotated: &[&str], pods: &[&str]) -> Decision {
        let cluster: Vec<ClusterCidr> =
            ["10.128.0.0/14/23", "fd01::/48/64"].iter().map(|text| text.parse().unwrap()).collect();
        let pods: Vec<IpAddr> = pods.iter().map(|text| text.parse().unwrap()).collect();
        decide(&subnets(in_effect), &subnets(annotated), &pods, &cluster)
    }

    #[test]
    fn a_change_that_contradicts_the_pods_is_ignored() {
        let found = check(&["10.128.0.0/23"], &["10.130.0.0/23"], &["10.128.0.5", "10.128.0.6"]);
        assert_eq!(found.subnets, subnets(&["10.128.0.0/23"]));
        let why = found.ignored.unwrap();
        assert!(why.contains("changed to 10.130.0.0/23, but 2 pods") && why.ends_with("of 10.128.0.0/23"), "{why}");
        // One family of two.
        let found = check(&["10.128.0.0/23", "fd01::/64"], &["10.128.0.0/23"], &["10.128.0.5", "fd01::5"]);
        assert!(found.ignored.is_some() && found.subnets.len() == 2, "{found:?}");
    }

    #[test]
    fn changes_of_the_controller_are_obeyed() {
        let obeyed = |found: Decision, annotated: &[&str]| {
            assert_eq!(found, Decision { subnets: subnets(annotated), ignored: None });
        };
        let (one, other, both) = (["10.128.0.0/23"], ["10.130.0.0/23"], ["10.128.0.0/23", "fd01::/64"]);
        obeyed(check(&[], &one, &[]), &one);
        obeyed(check(&one, &one, &["10.128.0.5"]), &one);
        // The cluster became dual-stack.
        obeyed(check(&one, &both, &["10.128.0.5"]), &both);
        // The node was drained; pods of other networks do not count.
        obeyed(check(&one, &other, &["192.0.2.1"]), &other);
        // The controller gave a pod an address of the new subnet.
        obeyed(check(&one, &other, &["10.128.0.5", "10.130.0.3"]), &other);
    }

    #[test]
    fn subnets_outside_the_cluster_are_ignored() {
        for pods in [&[][..], &["10.128.0.5"]] {
            let found = check(&["10.128.0.0/23"], &["192.168.0.0/24"], pods);
            assert_eq!(found.subnets, subnets(&["10.128.0.0/23"]));
            assert!(found.ignored.unwrap().contains("192.168.0.0/24 is not in cluster-subnets"));
        }
        assert_eq!(check(&[], &["192.168.0.0/24"], &[]).subnets, []);
    }
}
