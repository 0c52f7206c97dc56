//! Template variables of a chassis, for the `^variables` of load balancers: its node's addresses, and what Services add.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netmodel::Masquerade;
use objects::NodeFacts;
use ovn_schema::Feature;
use ovn_schema::northbound::ChassisTemplateVar;
use ovsdb::uuid::Uuid;

use super::Inputs;
use crate::contribution::Draft;

/// The host's addresses of a family, those of its gateway included; sorted.
pub fn host_addresses(node: &NodeFacts, v6: bool) -> Vec<IpAddr> {
    let said = node.host_addresses.valid().map(AsRef::as_ref).unwrap_or_default().iter().copied();
    let gateway = node.gateway.valid().and_then(Option::as_ref);
    let gateway = gateway.into_iter().flat_map(|gateway| gateway.addresses.iter().map(|own| own.address()));
    let mut addresses: Vec<IpAddr> = said.chain(gateway).filter(|address| address.is_ipv6() == v6).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The variable of a node's n-th address of a family.
pub(super) fn address_variable(n: usize, v6: bool) -> String {
    format!("NODEIP_{}_{n}", family(v6))
}

/// The variable of the address at which a host reaches its own endpoints.
pub(super) fn host_local_variable(v6: bool) -> String {
    format!("HOSTLOCAL_{}", family(v6))
}

pub(super) fn family(v6: bool) -> &'static str {
    if v6 { "IPv6" } else { "IPv4" }
}

/// The value of variables for addresses that a chassis lacks: no packet has this destination.
pub(super) fn unused(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The row of a node's variables; none without a chassis.
pub(super) fn row_of(draft: &Draft<'_>, node: &NodeFacts) -> Option<Uuid> {
    let chassis = node.chassis.as_ref()?;
    Some(draft.foreign::<ChassisTemplateVar>("Node", chassis, ROW_KEY))
}

/// Row key of a chassis' variables.
pub const ROW_KEY: &str = "variables";

pub(super) fn add(draft: &mut Draft<'_>, node: &NodeFacts, inputs: Inputs<'_>) {
    let Some(chassis) = node.chassis.as_ref().filter(|_| inputs.settings.features.has(Feature::LoadBalancerTemplates))
    else {
        return;
    };
    let row = ChassisTemplateVar { chassis: chassis.to_string(), external_ids: draft.mark(&[]), ..Default::default() };
    // Identified by the chassis, not by the node: a recreated node keeps the row.
    let uuid = draft.row_as(chassis, ROW_KEY, &row);
    for v6 in inputs.settings.families() {
        let own = host_addresses(node, v6);
        // As many as any node has: ovn-controller warns of variables without a value.
        for n in 0..inputs.store.max_addresses(v6) {
            let address = own.get(n).copied().unwrap_or_else(|| unused(v6));
            draft.pair(ChassisTemplateVar::variables, uuid, &address_variable(n, v6), &address.to_string());
        }
        if let Some(host) = inputs.settings.masquerade_address(Masquerade::HostLocal, v6) {
            draft.pair(ChassisTemplateVar::variables, uuid, &host_local_variable(v6), &host.to_string());
        }
    }
}
