//! gateway: a node's way to the outside: its gateway router, the external switch, and the routes and translations
//! between them and the cluster's router.

use std::net::IpAddr;

use netmodel::{InterfaceAddress, Mac};
use ovn_schema::Feature;
use ovn_schema::northbound::{
    Copp, LoadBalancerGroup, LogicalRouter, LogicalRouterPolicy, LogicalRouterPort, LogicalRouterStaticRoute,
    LogicalSwitch, LogicalSwitchPort, Nat, PortGroup, StaticMacBinding,
};
use ovsdb::uuid::Uuid;

use super::cluster::{CLUSTER_GROUP, COPP_KEY, JOIN_KEY, ROUTER_GROUP, ROUTER_KEY, SERVICE_PORTS_KEY};
use super::node::{HOST_POLICY_PRIORITY, reroute_to};
use super::{Given, everything, ip_word, retry};
use crate::allocation::NodeAllocation;
use crate::contribution::Draft;
use crate::objects::{GatewayFacts, GatewayMode, NodeFacts};
use crate::settings::Masquerade;

const GATEWAY_ROUTER_KEY: &str = "gateway router";
/// The ports under which translated connections leave. Host and router share an address: a pod that chose the port of a
/// host's server (10250) would get what that server's clients send from the port that the pod talked to. Nobody listens
/// in this range, which is Linux's own for clients; node ports and host ports are below it.
const SNAT_PORTS: &str = "32768-60999";

/// A node's gateway, if it has one.
pub(super) fn of(node: &NodeFacts) -> Option<&GatewayFacts> {
    node.gateway.valid()?.as_ref()
}

/// The ports of a translation, if the server knows such ranges.
pub(super) fn snat_ports(given: Given<'_>) -> String {
    let known = given.settings.features.has(Feature::NatPortRanges);
    if known { SNAT_PORTS.to_owned() } else { String::new() }
}

/// A node's gateway router, as others refer to it.
pub(super) fn router_of(draft: &Draft<'_>, node: &NodeFacts) -> Uuid {
    draft.foreign::<LogicalRouter>("Node", &node.uid, GATEWAY_ROUTER_KEY)
}

pub(super) fn add(
    draft: &mut Draft<'_>,
    node: &NodeFacts,
    own: &NodeAllocation,
    gateway: &GatewayFacts,
    chassis: &str,
    given: Given<'_>,
) {
    let router = router(draft, node, gateway, chassis, given);
    retry::mark(draft, router, given);
    let joins = join_port(draft, node, own, router, given);
    external_switch(draft, node, gateway, router, given);
    for v6 in given.settings.families() {
        let Some(join) = joins.iter().copied().find(|join| join.is_ipv6() == v6) else { continue };
        routes(draft, node, own, gateway, router, join, given);
        translations(draft, gateway, router, join, given);
    }
}

fn router(draft: &mut Draft<'_>, node: &NodeFacts, gateway: &GatewayFacts, chassis: &str, given: Given<'_>) -> Uuid {
    let features = &given.settings.features;
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
        copp: features.has(Feature::ControlPlanePolicing).then(|| draft.of_cluster::<Copp>(COPP_KEY)),
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

/// The port that faces the join switch; returns its addresses.
fn join_port(
    draft: &mut Draft<'_>,
    node: &NodeFacts,
    own: &NodeAllocation,
    router: Uuid,
    given: Given<'_>,
) -> Vec<IpAddr> {
    let networks: Vec<InterfaceAddress> = given
        .settings
        .families()
        .filter_map(|v6| given.settings.join_of(v6)?.nth_interface(u128::from(own.id)))
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

fn external_switch(draft: &mut Draft<'_>, node: &NodeFacts, gateway: &GatewayFacts, router: Uuid, given: Given<'_>) {
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
        &LogicalSwitch { name: format!("ext_{}", node.name), external_ids: draft.mark(&[]), ..Default::default() },
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
    if given.settings.features.has(Feature::StaticMacBindings) {
        for v6 in given.settings.families() {
            let Some(hop) = given.settings.masquerade_address(Masquerade::NextHop, v6) else { continue };
            let binding = StaticMacBinding {
                logical_port: name.clone(),
                ip: hop.to_string(),
                mac: Mac::for_address(hop).to_string(),
                override_dynamic_mac: true,
            };
            draft.row(&format!("masquerade next hop {v6}"), &binding);
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
    given: Given<'_>,
) {
    let (v6, settings) = (join.is_ipv6(), given.settings);
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
    if let Some(hop) = settings.router_join_address(v6) {
        for cluster in settings.cluster_of(v6) {
            let row = route(cluster.to_string(), hop, None, false, draft);
            draft.child(LogicalRouter::static_routes, router, &format!("cluster {cluster}"), &row);
        }
    }
    if let (Some(network), Some(hop)) =
        (settings.masquerade_of(v6), settings.masquerade_address(Masquerade::NextHop, v6))
    {
        let row = route(network.to_string(), hop, outside.clone(), false, draft);
        draft.child(LogicalRouter::static_routes, router, &format!("masquerade {v6}"), &row);
        // Behind its load balancers nothing is left that is a Service's: the external switch rejects the rest, without
        // asking for a next hop outside first.
        for services in settings.services.iter().filter(|services| services.is_ipv6() == v6) {
            let row = route(services.to_string(), hop, outside.clone(), false, draft);
            draft.child(LogicalRouter::static_routes, router, &format!("services {services}"), &row);
        }
    }
    for hop in gateway.next_hops.iter().copied().filter(|hop| hop.is_ipv6() == v6) {
        let row = route(everything(v6).to_owned(), hop, outside.clone(), false, draft);
        draft.child(LogicalRouter::static_routes, router, &format!("default {hop}"), &row);
    }
    let cluster_router = draft.of_cluster::<LogicalRouter>(ROUTER_KEY);
    // Replies to what a load balancer sent on under this address find back to this gateway.
    let row = route(join.to_string(), join, None, false, draft);
    draft.child(LogicalRouter::static_routes, cluster_router, &format!("join {v6}"), &row);
    for subnet in own.subnets().filter(|subnet| subnet.is_ipv6() == v6) {
        let hop = match gateway.mode {
            GatewayMode::Shared => Some(join),
            GatewayMode::Local => subnet.nth(2),
        };
        let Some(hop) = hop else { continue };
        let row = route(subnet.to_string(), hop, None, true, draft);
        draft.child(LogicalRouter::static_routes, cluster_router, &format!("pods out {v6}"), &row);
        if gateway.mode == GatewayMode::Local {
            replies_by_host(draft, node, hop, given);
        }
    }
}

/// What a host hands to endpoints of its own, with the client's address kept, goes through its switch under an address of the
/// host's own. The switch has turned replies back to that address before they are routed: they are no pod's any more,
/// and have to find back to the very host.
fn replies_by_host(draft: &mut Draft<'_>, node: &NodeFacts, hop: IpAddr, given: Given<'_>) {
    let Some(own) = given.settings.masquerade_address(Masquerade::HostLocal, hop.is_ipv6()) else { return };
    let ip = ip_word(hop.is_ipv6());
    let policy = LogicalRouterPolicy {
        priority: HOST_POLICY_PRIORITY,
        matching: format!("inport == \"rtos-{}\" && {ip}.src == {own} /* {} */", node.name, node.name),
        action: "reroute".into(),
        external_ids: draft.mark(&[]),
        ..reroute_to(hop, given)
    };
    let router = draft.of_cluster::<LogicalRouter>(ROUTER_KEY);
    draft.child(LogicalRouter::policies, router, &format!("replies of {own}"), &policy);
}

fn translations(draft: &mut Draft<'_>, gateway: &GatewayFacts, router: Uuid, join: IpAddr, given: Given<'_>) {
    let v6 = join.is_ipv6();
    let Some(outside) = gateway.addresses.iter().map(|own| own.address()).find(|own| own.is_ipv6() == v6) else {
        return;
    };
    let mut inside = vec![join.to_string()];
    if !given.settings.snat_per_pod {
        inside.extend(given.settings.cluster_of(v6).map(|cluster| cluster.to_string()));
    }
    for logical in inside {
        let nat = Nat {
            kind: "snat".into(),
            external_ip: outside.to_string(),
            logical_ip: logical.clone(),
            external_port_range: snat_ports(given),
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
        draft.child(LogicalRouter::nat, router, &format!("snat {logical}"), &nat);
    }
    retry::translate(draft, router, outside, given);
}
