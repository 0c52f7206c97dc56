//! host port: ports of a node that lead to a pod on it: a load balancer for each protocol, which the node's gateway router has
//! and its switch. The pod is on that very node, so it sees who its clients are.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ovn_schema::northbound::{LoadBalancer, LogicalRouter, LogicalSwitch};

use super::balancer;
use super::template::host_addresses;
use super::{Given, gateway, node};
use crate::allocation::PodAllocation;
use crate::contribution::Draft;
use crate::identity::PodKey;
use crate::objects::{HostAddress, HostPort, NodeFacts, PodFacts, Protocol};
use crate::refusal::{InTheWay, Refusal, in_the_way};
use crate::services::Claim;
use crate::store::Door;

/// Which sockets of the node lead to which of the pod.
type Doors = BTreeMap<Protocol, BTreeMap<SocketAddr, SocketAddr>>;

/// The socket of a pod that a socket of its node leads to, if it does.
pub(crate) fn target(key: &PodKey, own: SocketAddr, protocol: Protocol, given: Given<'_>) -> Option<SocketAddr> {
    let (pod, allocation) = (given.store.pod(key)?, given.allocator.pod(key)?);
    let node = given.store.node(pod.wants_port()?)?;
    doors(pod, allocation, node, given, |_| ()).get(&protocol)?.get(&own).copied()
}

fn doors(
    pod: &PodFacts,
    own: &PodAllocation,
    node: &NodeFacts,
    given: Given<'_>,
    mut refuse: impl FnMut(Refusal),
) -> Doors {
    let mut doors = Doors::new();
    for port in pod.host_ports() {
        let addresses = meant(port, node, given).unwrap_or_else(|refusal| {
            refuse(refusal);
            Vec::new()
        });
        for address in addresses {
            let Some(inside) = own.addresses().find(|inside| inside.is_ipv6() == address.is_ipv6()) else { continue };
            if let Some(holder) = holder(pod, port, address, node, given) {
                refuse(taken(port, address, holder));
                continue;
            }
            let doors = doors.entry(port.protocol).or_default();
            doors.insert(SocketAddr::new(address, port.host), SocketAddr::new(inside, port.container));
        }
    }
    doors
}

pub(super) fn add(draft: &mut Draft<'_>, pod: &PodFacts, own: &PodAllocation, node: &NodeFacts, given: Given<'_>) {
    for (protocol, doors) in doors(pod, own, node, given, |refusal| draft.refuse(refusal)) {
        let vips = doors.iter().map(|(own, target)| (own.to_string(), target.to_string())).collect();
        let row = LoadBalancer {
            name: format!("HostPort_{}_{}", pod.key, protocol.name()),
            vips,
            protocol: Some(protocol.word().into()),
            options: balancer::options(given.settings, protocol, true),
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

/// The addresses of the node that a port is opened on.
fn meant(port: &HostPort, node: &NodeFacts, given: Given<'_>) -> Result<Vec<IpAddr>, Refusal> {
    let families = given.settings.families();
    let all: Vec<IpAddr> = families.flat_map(|v6| host_addresses(node, v6)).collect();
    let refused = |why: String| {
        let message = format!(
            "spec.containers.ports.hostIP: {why}: port {}/{} of the node does not lead to the pod; everything else of it \
             works",
            port.host,
            port.protocol.name()
        );
        Err(Refusal::new("HostPortRefused", message))
    };
    match port.opened_on() {
        Err(why) => refused(why),
        Ok(HostAddress::All) => Ok(all),
        Ok(HostAddress::Family { v6 }) => Ok(all.into_iter().filter(|own| own.is_ipv6() == v6).collect()),
        // The node's agent opens it for the host alone, which OVN has no part in.
        Ok(HostAddress::One(address)) if address.is_loopback() => Ok(Vec::new()),
        // Nobody has told yet which addresses there are.
        Ok(HostAddress::One(address)) if all.contains(&address) || all.is_empty() => {
            Ok(all.into_iter().filter(|own| *own == address).collect())
        }
        Ok(HostAddress::One(address)) => {
            let known: Vec<String> = all.iter().map(ToString::to_string).collect();
            refused(format!("{address} is none of the addresses of node {} ({})", node.name, known.join(", ")))
        }
    }
}

/// Who else has an address and port: a Service, which every node serves, or an older pod.
fn holder(pod: &PodFacts, port: &HostPort, address: IpAddr, node: &NodeFacts, given: Given<'_>) -> Option<InTheWay> {
    let HostPort { protocol, host, .. } = *port;
    // By a node port alone: no Service has an address of a node.
    let claim = Claim { address: None, port: host, protocol };
    if let Some(service) = given.store.claimants(claim).next() {
        return Some(in_the_way("Service", &service.namespace, service, &pod.key.namespace));
    }
    let door = Door { port: host, protocol, node: node.name.clone() };
    let mut older = given.store.who_asks_for(&door).take_while(|key| **key != pod.key);
    let asks = |port: &HostPort| {
        (port.protocol, port.host) == (protocol, host)
            && meant(port, node, given).is_ok_and(|addresses| addresses.contains(&address))
    };
    let holds = |other: &PodFacts| other.host_ports().iter().any(asks);
    let older = older.find(|key| given.store.pod(key).is_some_and(holds))?;
    let InTheWay { shown, detail } = in_the_way("Pod", &older.namespace, older, &pod.key.namespace);
    Some(InTheWay { shown: format!("{shown}, which is older"), detail })
}

fn taken(port: &HostPort, address: IpAddr, holder: InTheWay) -> Refusal {
    let message = format!(
        "spec.containers.ports.hostPort: {}/{} is taken by {}: use another port, or another node; everything else of \
         the pod works",
        SocketAddr::new(address, port.host),
        port.protocol.name(),
        holder.shown
    );
    Refusal::new("AddressTaken", message).with_detail(holder.detail)
}
