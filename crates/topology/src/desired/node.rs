//! Node: the switch of its pods, its port on the cluster router, the host's management port, and the routes to both.

use std::net::IpAddr;

use netmodel::{Family, InterfaceAddress, Mac, Prefix};
use objects::{MANAGEMENT_MACS, NodeFacts};
use ovn_schema::Feature;
use ovn_schema::StringMap;
use ovn_schema::northbound::{
    Acl, GatewayChassis, LoadBalancerGroup, LogicalRouter, LogicalRouterPolicy, LogicalRouterPort, LogicalSwitch,
    LogicalSwitchPort, PortGroup,
};
use ovsdb::uuid::Uuid;

use super::cluster::{
    CLUSTER_GROUP, JOIN, MANAGEMENT_PORTS_KEY, ROUTER_KEY, ROUTER_PORTS_KEY, SERVICE_PORTS_KEY, SWITCH_GROUP, tier,
};
use super::{Inputs, gateway, ip_word, policing, template};
use crate::allocation::NodeAllocation;
use crate::contribution::{Contribution, Draft};
use crate::identity::{Owner, family_key};
use crate::refusal::Refusal;
use crate::store::Store;

/// Row key of a node's switch.
pub(crate) const SWITCH_KEY: &str = "switch";
/// In the switch's `external_ids`: the node ID, for a controller that starts before the annotation was written.
pub(crate) const NODE_ID_MARK: &str = "k8s.ovn.org/node-id";
/// In the switch's `other_config`: the subnets.
pub(crate) const SUBNET: &str = "subnet";
pub(crate) const SUBNET_V6: &str = "k8s.ovn.org/subnet-v6";

/// ACL priority of the host's traffic to its own pods, such as kubelet's probes: never denied.
const MANAGEMENT_PRIORITY: i64 = 1001;
/// Routing policy priority of pods' traffic to their own host, through the management port.
pub(super) const HOST_POLICY_PRIORITY: i64 = 1004;

/// The UUID of a node's switch, for rows of other owners.
pub(super) fn switch_of(draft: &Draft<'_>, node: &NodeFacts) -> Uuid {
    draft.foreign::<LogicalSwitch>("Node", &node.uid, SWITCH_KEY)
}

/// An error if a node cannot have a network.
pub(crate) fn check(node: &NodeFacts, store: &Store) -> Result<(), Refusal> {
    if &*node.name == JOIN {
        let message = format!(
            "a node cannot be named {JOIN}: this is the name of the join switch; register it under another name"
        );
        return Err(Refusal::new("NodeNameRefused", message));
    }
    if let Some(why) = node.broken() {
        return Err(Refusal::new("NodeAnnotationRefused", format!("{why}: correct the annotation, or remove it")));
    }
    if let (Some(other), Some(chassis)) = (holder_of_chassis(node, store), &node.chassis) {
        let message = format!(
            "annotation k8s.ovn.org/node-chassis-id: {chassis} is the chassis of node {}: give each host its own \
             system-id (a copied machine has that of its original)",
            other.name
        );
        return Err(Refusal::new("NodeAnnotationRefused", message));
    }
    if gateway::of(node).is_some() && node.chassis.is_none() {
        return Err(Refusal::new(
            "NodeAnnotationRefused",
            "annotation k8s.ovn.org/l3-gateway-config exists, but k8s.ovn.org/node-chassis-id does not: the gateway \
             router needs a chassis",
        ));
    }
    Ok(())
}

/// The other node that holds the chassis that a node claims.
pub(crate) fn holder_of_chassis<'a>(node: &NodeFacts, store: &'a Store) -> Option<&'a NodeFacts> {
    store.chassis_holder(node.chassis.as_ref()?).filter(|holder| holder.name != node.name)
}

pub(super) fn desired(name: &str, inputs: Inputs<'_>) -> Result<Contribution, Refusal> {
    let Some(node) = inputs.store.node(name) else { return Ok(Contribution::default()) };
    // Its rows stay; the cause was reported by the allocation.
    let Some(own) = inputs.allocator.node(name) else {
        return Err(Refusal::new("NodeWithoutNetwork", format!("node {name} has no subnet")));
    };
    check(node, inputs.store)?;
    if node.management_mac.valid() == Some(&mac_of(own)) {
        let message = format!(
            "annotation {MANAGEMENT_MACS}: {} is the MAC of the router port rtos-{name}, and the host would receive the \
             router's packets: correct the annotation, or remove it",
            mac_of(own)
        );
        return Err(Refusal::new("NodeAnnotationRefused", message));
    }
    let owner = Owner::Node(node.name.clone());
    let mut draft = Draft::new(&owner, &node.uid, inputs.aliases);
    let switch = switch(&mut draft, node, own, inputs);
    router_port(&mut draft, node, own, switch, inputs);
    management_port(&mut draft, node, own, switch, inputs);
    template::add(&mut draft, node, inputs);
    if let (Some(gateway), Some(chassis)) = (gateway::of(node), &node.chassis) {
        gateway::add(&mut draft, node, own, gateway, chassis, inputs);
    }
    Ok(draft.finish())
}

fn switch(draft: &mut Draft<'_>, node: &NodeFacts, own: &NodeAllocation, inputs: Inputs<'_>) -> Uuid {
    let mut config = StringMap::new();
    for subnet in own.subnets() {
        let key = match subnet.family() {
            Family::V4 => SUBNET,
            Family::V6 => SUBNET_V6,
        };
        config.insert(key.into(), subnet.to_string());
        if inputs.settings.multicast {
            let router = nth(subnet, 1).map(InterfaceAddress::address);
            config.insert("mcast_snoop".into(), "true".into());
            if let Some(router) = router {
                config.insert("mcast_querier".into(), "true".into());
                let key = if subnet.is_ipv6() { "mcast_ip6_src" } else { "mcast_ip4_src" };
                config.insert(key.into(), router.to_string());
                config.insert("mcast_eth_src".into(), mac_of(own).to_string());
            }
        }
    }
    let id = own.id.to_string();
    let uuid = draft.row(
        SWITCH_KEY,
        &LogicalSwitch {
            name: node.name.to_string(),
            copp: policing::of_cluster(draft, inputs),
            other_config: config,
            external_ids: draft.mark(&[(NODE_ID_MARK, &id)]),
            ..Default::default()
        },
    );
    if inputs.settings.features.has(Feature::LoadBalancerGroups) {
        for group in [CLUSTER_GROUP, SWITCH_GROUP] {
            let group = draft.of_cluster::<LoadBalancerGroup>(group);
            draft.member(LogicalSwitch::load_balancer_group, uuid, &group);
        }
    }
    uuid
}

fn nth(subnet: Prefix, n: u128) -> Option<InterfaceAddress> {
    subnet.nth_interface(n)
}

fn addresses_at(own: &NodeAllocation, n: u128) -> Vec<InterfaceAddress> {
    own.subnets().filter_map(|subnet| nth(subnet, n)).collect()
}

fn mac_for(addresses: &[InterfaceAddress]) -> Mac {
    let bare: Vec<IpAddr> = addresses.iter().map(|address| address.address()).collect();
    Mac::for_addresses(&bare).unwrap_or(Mac::new([0x0a, 0x58, 0, 0, 0, 1]))
}

fn mac_of(own: &NodeAllocation) -> Mac {
    mac_for(&addresses_at(own, 1))
}

fn router_port(draft: &mut Draft<'_>, node: &NodeFacts, own: &NodeAllocation, switch: Uuid, inputs: Inputs<'_>) {
    let router = draft.of_cluster::<LogicalRouter>(ROUTER_KEY);
    let name = format!("rtos-{}", node.name);
    let networks = addresses_at(own, 1);
    let uuid = draft.child(
        LogicalRouter::ports,
        router,
        "rtos",
        &LogicalRouterPort {
            name: name.clone(),
            mac: mac_for(&networks).to_string(),
            networks: networks.iter().map(ToString::to_string).collect(),
            options: [("gateway_mtu".to_owned(), inputs.settings.gateway_mtu.to_string())].into(),
            external_ids: draft.mark(&[]),
            ..Default::default()
        },
    );
    if let Some(chassis) = &node.chassis {
        let row = GatewayChassis {
            name: format!("{name}-{chassis}"),
            chassis_name: chassis.to_string(),
            priority: 1,
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
        draft.child(LogicalRouterPort::gateway_chassis, uuid, &format!("gateway chassis {chassis}"), &row);
    }
    let port = draft.child(
        LogicalSwitch::ports,
        switch,
        "stor",
        &LogicalSwitchPort {
            name: format!("stor-{}", node.name),
            kind: "router".into(),
            addresses: ["router".to_owned()].into(),
            options: [("router-port".to_owned(), name)].into(),
            external_ids: draft.mark(&[]),
            ..Default::default()
        },
    );
    let services = draft.of_cluster::<PortGroup>(SERVICE_PORTS_KEY);
    draft.member(PortGroup::ports, services, &port);
    if inputs.settings.multicast {
        let group = draft.of_cluster::<PortGroup>(ROUTER_PORTS_KEY);
        draft.member(PortGroup::ports, group, &port);
    }
}

fn management_port(draft: &mut Draft<'_>, node: &NodeFacts, own: &NodeAllocation, switch: Uuid, inputs: Inputs<'_>) {
    let addresses = addresses_at(own, 2);
    let mac = node.management_mac.valid().copied().unwrap_or_else(|| mac_for(&addresses));
    let words: Vec<String> = addresses.iter().map(|address| address.address().to_string()).collect();
    let port = draft.child(
        LogicalSwitch::ports,
        switch,
        "management",
        &LogicalSwitchPort {
            name: format!("k8s-{}", node.name),
            addresses: [format!("{mac} {}", words.join(" "))].into(),
            external_ids: draft.mark(&[]),
            ..Default::default()
        },
    );
    let group = draft.of_cluster::<PortGroup>(MANAGEMENT_PORTS_KEY);
    draft.member(PortGroup::ports, group, &port);
    for address in &addresses {
        let address = address.address();
        let family = Family::of(address);
        let acl = Acl {
            direction: "to-lport".into(),
            priority: MANAGEMENT_PRIORITY,
            matching: format!("{}.src == {address}", ip_word(family)),
            action: "allow-related".into(),
            tier: tier(inputs),
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
        draft.child(LogicalSwitch::acls, switch, &family_key("management acl", family), &acl);
    }
    // Pods reach their own host over the management port, not through the gateway and back.
    let router = draft.of_cluster::<LogicalRouter>(ROUTER_KEY);
    let hosts = node.host_addresses.valid().map(AsRef::as_ref).unwrap_or_default();
    for host in hosts {
        let hop = addresses.iter().map(|address| address.address()).find(|hop| Family::of(*hop) == Family::of(*host));
        let Some(hop) = hop else { continue };
        let ip = ip_word(Family::of(*host));
        let policy = LogicalRouterPolicy {
            priority: HOST_POLICY_PRIORITY,
            matching: format!("inport == \"rtos-{}\" && {ip}.dst == {host} /* {} */", node.name, node.name),
            action: "reroute".into(),
            external_ids: draft.mark(&[]),
            ..reroute_to(hop, inputs)
        };
        draft.child(LogicalRouter::policies, router, &format!("to host {host}"), &policy);
    }
}

/// A routing policy's next hop, in the column that the server supports.
pub(super) fn reroute_to(hop: IpAddr, inputs: Inputs<'_>) -> LogicalRouterPolicy {
    if inputs.settings.features.has(Feature::EcmpReroute) {
        return LogicalRouterPolicy { nexthops: [hop.to_string()].into(), ..Default::default() };
    }
    LogicalRouterPolicy { nexthop: Some(hop.to_string()), ..Default::default() }
}
