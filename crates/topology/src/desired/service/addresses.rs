//! Which addresses a Service cannot have, and which are only told of.

use std::net::IpAddr;

use crate::refusal::Refusal;
use crate::settings::ClusterSettings;

/// Why a Service cannot have an address: packets to pods, routers and hosts would go to its endpoints instead.
pub(super) fn refused(field: &str, address: IpAddr, settings: &ClusterSettings) -> Option<Refusal> {
    let v6 = address.is_ipv6();
    let pods = settings.cluster_of(v6).map(|network| (network, "the pods' network (cluster-subnets)"));
    let join = settings.join_of(v6).map(|network| (network, "the routers' network (join-subnet)"));
    let masquerade = settings.masquerade_of(v6).map(|network| (network, "the hosts' network (masquerade-subnet)"));
    let (network, whose) = pods.chain(join).chain(masquerade).find(|(network, _)| network.contains(address))?;
    let message = format!("{field}: {address} is in {network}, which is {whose}: use another address");
    Some(Refusal::new("AddressRefused", message))
}

/// An address inside the cluster that is in none of the networks that we were told of works, but pods are not told the way
/// to it.
pub(super) fn unknown(field: &str, address: IpAddr, settings: &ClusterSettings) -> Option<Refusal> {
    let networks = settings.services.iter().filter(|network| network.is_ipv6() == address.is_ipv6());
    let networks: Vec<_> = networks.collect();
    if networks.is_empty() || networks.iter().any(|network| network.contains(address)) {
        return None;
    }
    let known: Vec<String> = networks.iter().map(ToString::to_string).collect();
    let message = format!(
        "{field}: {address} is in none of the Services' networks ({}): it works, but pods with a default route of their own are \
         not told the way to it; add its network to the setting service-cidrs",
        known.join(", ")
    );
    Some(Refusal::new("AddressUnknown", message))
}
