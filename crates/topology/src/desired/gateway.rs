//! Gateway of a node: its gateway router, the external switch, and the routes and NAT between them and the cluster router.

use std::net::IpAddr;

use netmodel::{Family, GatewayMode, InterfaceAddress, Mac, Masquerade};
use objects::{GatewayFacts, NodeFacts};
use ovn_schema::Feature;
use ovn_schema::northbound::{
    LoadBalancerGroup, LogicalRouter, LogicalRouterPolicy, LogicalRouterPort, LogicalRouterStaticRoute, LogicalSwitch,
    LogicalSwitchPort, Nat, PortGroup, StaticMacBinding,
};
use ovsdb::uuid::Uuid;

use super::cluster::{CLUSTER_GROUP, JOIN_KEY, ROUTER_GROUP, ROUTER_KEY, SERVICE_PORTS_KEY};
use super::node::{HOST_POLICY_PRIORITY, reroute_to};
use super::{Inputs, ip_word, policing, retransmit};
use crate::allocation::NodeAllocation;
use crate::contribution::Draft;
use crate::identity::family_key;

const GATEWAY_ROUTER_KEY: &str = "gateway router";
/// Source ports of SNAT. Host and router share an address: a pod that used the port of a host's server (10250) would receive
/// packets of that server's clients. This is Linux's ephemeral range: no servers listen in it, and node ports and host
/// ports are below it.
const SNAT_PORTS: &str = "32768-60999";

/// A node's gateway, if its annotation has a valid one.
pub(super) fn of(node: &NodeFacts) -> Option<&GatewayFacts> {
    node.gateway.valid()?.as_ref()
}

/// The port range of SNAT; empty if the server does not support it.
pub(super) fn snat_ports(inputs: Inputs<'_>) -> String {
    let known = inputs.settings.features.has(Feature::NatPortRanges);
    if known { SNAT_PORTS.to_owned() } else { String::new() }
}

/// The UUID of a node's gateway router, for rows of other owners.
pub(super) fn router_of(draft: &Draft<'_>, node: &NodeFacts) -> Uuid {
    draft.foreign::<LogicalRouter>("Node", &node.uid, GATEWAY_ROUTER_KEY)
}

pub(super) fn add(
    draft: &mut Draft<'_>,
    node: &NodeFacts,
    own: &NodeAllocation,
    gateway: &GatewayFacts,
    chassis: &str,
    inputs: Inputs<'_>,
) {
    let router = router(draft, node, gateway, chassis, inputs);
    retransmit::mark(draft, router, inputs);
    let joins = join_port(draft, node, own, router, inputs);
    external_switch(draft, node, gateway, router, inputs);
    for family in inputs.settings.families() {
        let Some(join) = joins.iter().copied().find(|join| family.matches(*join)) else { continue };
        routes(draft, node, own, gateway, router, join, inputs);
        translations(draft, gateway, router, join, inputs);
    }
}

fn router(draft: &mut Draft<'_>, node: &NodeFacts, gateway: &GatewayFacts, chassis: &str, inputs: Inputs<'_>) -> Uuid {
    let features = &inputs.settings.features;
    let mut options: ovn_schema::StringMap = [
        ("lb_force_snat_ip", "router_ip"),
        ("snat-ct-zone", "0"),
        ("always_learn_from_arp_request", "false"),
        ("dynamic_neigh_routers", "true"),
        ("chassis", chassis),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    if features.has(Feature::MacBindingAging) {
        options.insert("mac_binding_age_threshold".into(), "300".into());
    }
    let physical: Vec<String> = gateway.addresses.iter().map(|address| address.address().to_string()).collect();
    let row = LogicalRouter {
        name: format!("GR_{}", node.name),
        options,
        copp: policing::of_cluster(draft, inputs),
        external_ids: draft.mark(&[("physical_ip", &physical[0]), ("physical_ips", &physical.join(","))]),
        ..Default::default()
    };
    let uuid = draft.row(GATEWAY_ROUTER_KEY, &row);
    if features.has(Feature::LoadBalancerGroups) {
        for group in [CLUSTER_GROUP, ROUTER_GROUP] {
            let group = draft.of_cluster::<LoadBalancerGroup>(group);
            draft.member(LogicalRouter::load_balancer_group, uuid, &group);
        }
    }
    uuid
}

/// The router's port on the join switch; returns its addresses, IPv4 first.
fn join_port(
    draft: &mut Draft<'_>,
    node: &NodeFacts,
    own: &NodeAllocation,
    router: Uuid,
    inputs: Inputs<'_>,
) -> Vec<IpAddr> {
    let networks: Vec<InterfaceAddress> = inputs
        .settings
        .families()
        .filter_map(|family| inputs.settings.join_of(family)?.nth_interface(u128::from(own.id)))
        .collect();
    let addresses: Vec<IpAddr> = networks.iter().map(|network| network.address()).collect();
    let name = format!("rtoj-GR_{}", node.name);
    let port = LogicalRouterPort {
        name: name.clone(),
        mac: Mac::for_addresses(&addresses).map(|mac| mac.to_string()).unwrap_or_default(),
        networks: networks.iter().map(ToString::to_string).collect(),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(LogicalRouter::ports, router, "rtoj", &port);
    let join = draft.of_cluster::<LogicalSwitch>(JOIN_KEY);
    let peer = LogicalSwitchPort {
        name: format!("jtor-GR_{}", node.name),
        kind: "router".into(),
        addresses: ["router".to_owned()].into(),
        options: [("router-port".to_owned(), name)].into(),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(LogicalSwitch::ports, join, "jtor", &peer);
    addresses
}

fn external_switch(draft: &mut Draft<'_>, node: &NodeFacts, gateway: &GatewayFacts, router: Uuid, inputs: Inputs<'_>) {
    let name = format!("rtoe-GR_{}", node.name);
    let port = LogicalRouterPort {
        name: name.clone(),
        mac: gateway.mac.to_string(),
        networks: gateway.addresses.iter().map(ToString::to_string).collect(),
        external_ids: draft.mark(&[("gateway-physical-ip", "yes")]),
        ..Default::default()
    };
    draft.child(LogicalRouter::ports, router, "rtoe", &port);
    let switch = draft.row(
        "external switch",
        &LogicalSwitch {
            name: format!("ext_{}", node.name),
            copp: policing::of_cluster(draft, inputs),
            external_ids: draft.mark(&[]),
            ..Default::default()
        },
    );
    let options = [("router-port", name.as_str()), ("nat-addresses", "router"), ("exclude-lb-vips-from-garp", "true")];
    let peer = LogicalSwitchPort {
        name: format!("etor-GR_{}", node.name),
        kind: "router".into(),
        addresses: ["router".to_owned()].into(),
        options: options.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    let port = draft.child(LogicalSwitch::ports, switch, "etor", &peer);
    let services = draft.of_cluster::<PortGroup>(SERVICE_PORTS_KEY);
    draft.member(PortGroup::ports, services, &port);
    let localnet = LogicalSwitchPort {
        name: gateway.interface_id.to_string(),
        kind: "localnet".into(),
        addresses: ["unknown".to_owned()].into(),
        options: [("network_name".to_owned(), "physnet".to_owned())].into(),
        tag_request: gateway.vlan.map(i64::from),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    draft.child(LogicalSwitch::ports, switch, "localnet", &localnet);
    if inputs.settings.features.has(Feature::StaticMacBindings) {
        for family in inputs.settings.families() {
            let Some(hop) = inputs.settings.masquerade_address(Masquerade::NextHop, family) else { continue };
            let binding = StaticMacBinding {
                logical_port: name.clone(),
                ip: hop.to_string(),
                mac: Mac::for_address(hop).to_string(),
                override_dynamic_mac: true,
            };
            draft.row(&family_key("masquerade next hop", family), &binding);
        }
    }
}

fn routes(
    draft: &mut Draft<'_>,
    node: &NodeFacts,
    own: &NodeAllocation,
    gateway: &GatewayFacts,
    router: Uuid,
    join: IpAddr,
    inputs: Inputs<'_>,
) {
    let (family, settings) = (Family::of(join), inputs.settings);
    let outside = Some(format!("rtoe-GR_{}", node.name));
    let route =
        |prefix: String, hop: IpAddr, port: Option<String>, source: bool, draft: &Draft<'_>| LogicalRouterStaticRoute {
            ip_prefix: prefix,
            nexthop: hop.to_string(),
            policy: source.then(|| "src-ip".to_owned()),
            output_port: port,
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
    if let Some(hop) = settings.router_join_address(family) {
        for cluster in settings.cluster_of(family) {
            let row = route(cluster.to_string(), hop, None, false, draft);
            draft.child(LogicalRouter::static_routes, router, &format!("cluster {cluster}"), &row);
        }
    }
    if let (Some(network), Some(hop)) =
        (settings.masquerade_of(family), settings.masquerade_address(Masquerade::NextHop, family))
    {
        let row = route(network.to_string(), hop, outside.clone(), false, draft);
        draft.child(LogicalRouter::static_routes, router, &family_key("masquerade", family), &row);
        // What its load balancers left is for no Service: it goes to the external switch, whose ACL rejects it, without ARP
        // for a next hop.
        for services in settings.services.iter().filter(|services| services.family() == family) {
            let row = route(services.to_string(), hop, outside.clone(), false, draft);
            draft.child(LogicalRouter::static_routes, router, &format!("services {services}"), &row);
        }
    }
    for hop in gateway.next_hops.iter().copied().filter(|hop| family.matches(*hop)) {
        let row = route(family.everything().to_string(), hop, outside.clone(), false, draft);
        draft.child(LogicalRouter::static_routes, router, &format!("default {hop}"), &row);
    }
    let cluster_router = draft.of_cluster::<LogicalRouter>(ROUTER_KEY);
    // Replies to connections that a load balancer translated to this address return to this gateway.
    let row = route(join.to_string(), join, None, false, draft);
    draft.child(LogicalRouter::static_routes, cluster_router, &family_key("join", family), &row);
    for subnet in own.subnets().filter(|subnet| subnet.family() == family) {
        let hop = match gateway.mode {
            GatewayMode::Shared => Some(join),
            GatewayMode::Local => subnet.nth(2),
        };
        let Some(hop) = hop else { continue };
        let row = route(subnet.to_string(), hop, None, true, draft);
        draft.child(LogicalRouter::static_routes, cluster_router, &family_key("pods out", family), &row);
        if gateway.mode == GatewayMode::Local {
            replies_by_host(draft, node, hop, inputs);
        }
    }
}

/// Connections that keep their client's address enter the node's switch from the host, with a masquerade address as
/// destination. The switch restores that address as source of replies before they are routed: it belongs to no pod, so a policy
/// routes them back to the host.
fn replies_by_host(draft: &mut Draft<'_>, node: &NodeFacts, hop: IpAddr, inputs: Inputs<'_>) {
    let Some(own) = inputs.settings.masquerade_address(Masquerade::HostLocal, Family::of(hop)) else { return };
    let ip = ip_word(Family::of(hop));
    let policy = LogicalRouterPolicy {
        priority: HOST_POLICY_PRIORITY,
        matching: format!("inport == \"rtos-{}\" && {ip}.src == {own} /* {} */", node.name, node.name),
        action: "reroute".into(),
        external_ids: draft.mark(&[]),
        ..reroute_to(hop, inputs)
    };
    let router = draft.of_cluster::<LogicalRouter>(ROUTER_KEY);
    draft.child(LogicalRouter::policies, router, &format!("replies of {own}"), &policy);
}

fn translations(draft: &mut Draft<'_>, gateway: &GatewayFacts, router: Uuid, join: IpAddr, inputs: Inputs<'_>) {
    let family = Family::of(join);
    let Some(outside) = gateway.addresses.iter().map(|own| own.address()).find(|own| family.matches(*own)) else {
        return;
    };
    let mut inside = vec![join.to_string()];
    if !inputs.settings.snat_per_pod {
        inside.extend(inputs.settings.cluster_of(family).map(|cluster| cluster.to_string()));
    }
    for logical in inside {
        let nat = Nat {
            kind: "snat".into(),
            external_ip: outside.to_string(),
            logical_ip: logical.clone(),
            external_port_range: snat_ports(inputs),
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
        draft.child(LogicalRouter::nat, router, &format!("snat {logical}"), &nat);
    }
    retransmit::translate(draft, router, outside, inputs);
}
