//! Template variables of a chassis, for the `^variables` of load balancers: its node's addresses, and what Services add.

use std::net::IpAddr;

use netmodel::{Family, Masquerade};
use objects::NodeFacts;
use ovn_schema::Feature;
use ovn_schema::northbound::ChassisTemplateVar;
use ovsdb::uuid::Uuid;

use super::Inputs;
use crate::contribution::Draft;

/// The host's addresses of a family, those of its gateway included; sorted.
pub fn host_addresses(node: &NodeFacts, family: Family) -> Vec<IpAddr> {
    let said = node.host_addresses.valid().map(AsRef::as_ref).unwrap_or_default().iter().copied();
    let gateway = node.gateway.valid().and_then(Option::as_ref);
    let gateway = gateway.into_iter().flat_map(|gateway| gateway.addresses.iter().map(|own| own.address()));
    let mut addresses: Vec<IpAddr> = said.chain(gateway).filter(|address| family.matches(*address)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The variable of a node's n-th address of a family.
pub(super) fn address_variable(n: usize, family: Family) -> String {
    format!("NODEIP_{family}_{n}")
}

/// The variable of the address at which a host reaches its own endpoints.
pub(super) fn host_local_variable(family: Family) -> String {
    format!("HOSTLOCAL_{family}")
}

/// The row of a node's variables; none without a chassis.
pub(super) fn row_of(draft: &Draft<'_>, node: &NodeFacts) -> Option<Uuid> {
    let chassis = node.chassis.as_ref()?;
    Some(draft.foreign::<ChassisTemplateVar>("Node", chassis, ROW_KEY))
}

/// Row key of the row with a chassis' variables, which has no other.
pub const ROW_KEY: &str = "variables";

pub(super) fn add(draft: &mut Draft<'_>, node: &NodeFacts, inputs: Inputs<'_>) {
    let Some(chassis) = node.chassis.as_ref().filter(|_| inputs.settings.features.has(Feature::LoadBalancerTemplates))
    else {
        return;
    };
    let row = ChassisTemplateVar { chassis: chassis.to_string(), external_ids: draft.mark(&[]), ..Default::default() };
    // Identified by the chassis, not by the node: a recreated node keeps the row.
    let uuid = draft.row_as(chassis, ROW_KEY, &row);
    for family in inputs.settings.families() {
        let own = host_addresses(node, family);
        // As many as any node has: ovn-controller warns of variables without a value. No packet goes to the unspecified
        // address, which stands for those that this chassis lacks.
        for n in 0..inputs.store.max_addresses(family) {
            let address = own.get(n).copied().unwrap_or_else(|| family.unspecified());
            draft.pair(ChassisTemplateVar::variables, uuid, &address_variable(n, family), &address.to_string());
        }
        if let Some(host) = inputs.settings.masquerade_address(Masquerade::HostLocal, family) {
            draft.pair(ChassisTemplateVar::variables, uuid, &host_local_variable(family), &host.to_string());
        }
    }
}
