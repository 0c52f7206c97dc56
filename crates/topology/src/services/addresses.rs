//! Addresses that a Service cannot have, and those that only cause a warning.

use std::net::IpAddr;

use netmodel::Family;
use objects::ObjectKey;

use super::ServiceInputs;
use crate::refusal::Refusal;

/// Namespace and name of the Service whose endpoints are the API servers.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// Whether it is the Service of the API servers.
pub(crate) fn is_api_server(service: &ObjectKey) -> bool {
    (&*service.namespace, &*service.name) == API_SERVER
}

/// Refuses addresses of pods, routers, hosts and databases: packets to them would go to the
/// Service's endpoints instead.
pub(super) fn refused(field: &str, address: IpAddr, cluster_ip: bool, inputs: ServiceInputs<'_>) -> Option<Refusal> {
    let ServiceInputs { settings, store } = inputs;
    let family = Family::of(address);
    let refuse = |what: String| {
        let message = format!("{field}: {address} is {what}: use another address");
        Some(Refusal::new("AddressRefused", message))
    };
    let pods = settings.cluster_of(family).map(|network| (network, "the pods' network (cluster-subnets)"));
    let join = settings.join_of(family).map(|network| (network, "the routers' network (join-subnet)"));
    let masquerade = settings.masquerade_of(family).map(|network| (network, "the hosts' network (masquerade-subnet)"));
    // The API server allocates these: an external IP would take one from the Service that gets it next.
    let services = settings.services.iter().filter(|_| !cluster_ip);
    let services = services.map(|network| (*network, "the Services' network (service-cidrs)"));
    let ours = pods.chain(join).chain(masquerade).chain(services).find(|(network, _)| network.contains(address));
    if let Some((network, what)) = ours {
        return refuse(format!("in {network}, which is {what}"));
    }
    // The API server allocates cluster IPs; a node's report of its addresses must not take them away.
    if cluster_ip {
        return None;
    }
    if store.is_host(address) {
        return refuse("a node's own address".to_owned());
    }
    if settings.databases.contains(&address) {
        return refuse("the address of OVN's databases".to_owned());
    }
    let api_server = ObjectKey::new(API_SERVER.0, API_SERVER.1);
    let mut endpoints = store.slices_of(&api_server).flat_map(|slice| slice.spec.endpoints.iter());
    if endpoints.any(|endpoint| endpoint.address == address) {
        return refuse("the API server's own address".to_owned());
    }
    None
}

/// Warns of a cluster IP outside `service-cidrs`: pods with another default route have no route to it.
pub(super) fn unknown(field: &str, address: IpAddr, inputs: ServiceInputs<'_>) -> Option<Refusal> {
    let networks = inputs.settings.services.iter().filter(|network| network.family().matches(address));
    let networks: Vec<_> = networks.collect();
    if networks.is_empty() || networks.iter().any(|network| network.contains(address)) {
        return None;
    }
    let known: Vec<String> = networks.iter().map(ToString::to_string).collect();
    let message = format!(
        "{field}: {address} is in none of the Services' networks ({}): it works, but pods with another default route have no \
         route to it; add its network to the setting service-cidrs",
        known.join(", ")
    );
    Some(Refusal::new("AddressUnknown", message))
}
