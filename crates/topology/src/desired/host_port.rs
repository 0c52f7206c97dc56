//! Host ports: a load balancer per protocol, on the node's gateway router and its switch. The pod is on that node, so it sees
//! its clients' addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use netmodel::Family;
use objects::{HostAddress, HostPort, NodeFacts, PodFacts, PodKey, Protocol};
use ovn_schema::northbound::{LoadBalancer, LogicalRouter, LogicalSwitch};

use super::balancer;
use super::template::host_addresses;
use super::{Inputs, gateway, node};
use crate::allocation::PodAllocation;
use crate::contribution::Draft;
use crate::refusal::{Conflict, Refusal, describe_conflict};
use crate::services::Claim;
use crate::store::HostPortKey;

/// The pod's socket for each socket of the node, by protocol.
type Forwarding = BTreeMap<Protocol, BTreeMap<SocketAddr, SocketAddr>>;

/// The pod's socket that a socket of its node is forwarded to.
pub fn target(key: &PodKey, own: SocketAddr, protocol: Protocol, inputs: Inputs<'_>) -> Option<SocketAddr> {
    let (pod, allocation) = (inputs.store.pod(key)?, inputs.allocator.pod(key)?);
    let node = inputs.store.node(pod.wants_port()?)?;
    forwarding(pod, allocation, node, inputs, |_| ()).get(&protocol)?.get(&own).copied()
}

fn forwarding(
    pod: &PodFacts,
    own: &PodAllocation,
    node: &NodeFacts,
    inputs: Inputs<'_>,
    mut refuse: impl FnMut(Refusal),
) -> Forwarding {
    let mut forwarded = Forwarding::new();
    for port in pod.host_ports() {
        let addresses = meant(port, node, inputs).unwrap_or_else(|refusal| {
            refuse(refusal);
            Vec::new()
        });
        for address in addresses {
            let Some(inside) = own.addresses().find(|inside| Family::of(*inside) == Family::of(address)) else {
                continue;
            };
            if let Some(holder) = holder(pod, port, address, node, inputs) {
                refuse(taken(port, address, holder));
                continue;
            }
            let forwarded = forwarded.entry(port.protocol).or_default();
            forwarded.insert(SocketAddr::new(address, port.host), SocketAddr::new(inside, port.container));
        }
    }
    forwarded
}

pub(super) fn add(draft: &mut Draft<'_>, pod: &PodFacts, own: &PodAllocation, node: &NodeFacts, inputs: Inputs<'_>) {
    for (protocol, forwarded) in forwarding(pod, own, node, inputs, |refusal| draft.refuse(refusal)) {
        let vips = forwarded.iter().map(|(own, target)| (own.to_string(), target.to_string())).collect();
        let row = LoadBalancer {
            name: format!("HostPort_{}_{}", pod.key, protocol.name()),
            vips,
            protocol: Some(protocol.ovn_name().into()),
            options: balancer::options(inputs.settings, protocol, true),
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
        let switch = node::switch_of(draft, node);
        let uuid = draft.child(LogicalSwitch::load_balancer, switch, &format!("host port {}", protocol.name()), &row);
        if gateway::of(node).is_some() && node.chassis.is_some() {
            let router = gateway::router_of(draft, node);
            draft.member(LogicalRouter::load_balancer, router, &uuid);
        }
    }
}

/// The node's addresses that a host port applies to.
fn meant(port: &HostPort, node: &NodeFacts, inputs: Inputs<'_>) -> Result<Vec<IpAddr>, Refusal> {
    let families = inputs.settings.families();
    let all: Vec<IpAddr> = families.flat_map(|family| host_addresses(node, family)).collect();
    let refused = |why: String| {
        let message = format!(
            "spec.containers.ports.hostIP: {why}: port {}/{} of the node is not forwarded; the pod works \
             otherwise",
            port.host,
            port.protocol.name()
        );
        Err(Refusal::new("HostPortRefused", message))
    };
    match port.listen_address() {
        Err(why) => refused(why),
        Ok(HostAddress::All) => Ok(all),
        Ok(HostAddress::Family(family)) => Ok(all.into_iter().filter(|own| family.matches(*own)).collect()),
        // For the host alone: forwarded by the node agent, not by OVN.
        Ok(HostAddress::One(address)) if address.is_loopback() => Ok(Vec::new()),
        // The node's addresses may not be known yet.
        Ok(HostAddress::One(address)) if all.contains(&address) || all.is_empty() => {
            Ok(all.into_iter().filter(|own| *own == address).collect())
        }
        Ok(HostAddress::One(address)) => {
            let known: Vec<String> = all.iter().map(ToString::to_string).collect();
            refused(format!("{address} is not an address of node {} ({})", node.name, known.join(", ")))
        }
    }
}

/// Another holder of an address and port: a Service with this node port, or an older pod.
fn holder(pod: &PodFacts, port: &HostPort, address: IpAddr, node: &NodeFacts, inputs: Inputs<'_>) -> Option<Conflict> {
    let HostPort { protocol, host, .. } = *port;
    // Only node ports conflict: no Service has an address of a node.
    let claim = Claim { address: None, port: host, protocol };
    if let Some(service) = inputs.store.claimants(claim).next() {
        return Some(describe_conflict("Service", &service.namespace, service, &pod.key.namespace));
    }
    let claim_key = HostPortKey { port: host, protocol, node: node.name.clone() };
    let mut older = inputs.store.host_port_claimants(&claim_key).take_while(|key| **key != pod.key);
    let claims_it = |port: &HostPort| {
        (port.protocol, port.host) == (protocol, host)
            && meant(port, node, inputs).is_ok_and(|addresses| addresses.contains(&address))
    };
    let holds = |other: &PodFacts| other.host_ports().iter().any(claims_it);
    let older = older.find(|key| inputs.store.pod(key).is_some_and(holds))?;
    let Conflict { shown, detail } = describe_conflict("Pod", &older.namespace, older, &pod.key.namespace);
    Some(Conflict { shown: format!("{shown}, which is older"), detail })
}

fn taken(port: &HostPort, address: IpAddr, holder: Conflict) -> Refusal {
    let message = format!(
        "spec.containers.ports.hostPort: {}/{} is taken by {}: use another port, or another node; the pod works \
         otherwise",
        SocketAddr::new(address, port.host),
        port.protocol.name(),
        holder.shown
    );
    Refusal::new("AddressTaken", message).with_detail(holder.detail)
}
