//! cluster: what all nodes share: the cluster's router, the join switch, control-plane policing, groups.
//!
//! ```text
//!  ovn_cluster_router ── rtoj ── jtor ── join ── jtor-GR_<node> ── rtoj-GR_<node> ── GR_<node>
//!          └── rtos-<node> ── stor-<node> ── <node>
//! ```

use netmodel::{InterfaceAddress, Mac};
use ovn_schema::Feature;
use ovn_schema::northbound::{
    Acl, Copp, LoadBalancerGroup, LogicalRouter, LogicalRouterPort, LogicalSwitch, LogicalSwitchPort, Meter, MeterBand,
    PortGroup,
};

use super::{Given, blocked, ip_word, retry};
use crate::contribution::{Contribution, Draft};
use crate::identity::Owner;
use crate::settings::Masquerade;

/// The router that all node switches hang on.
pub(crate) const ROUTER: &str = "ovn_cluster_router";
/// The switch between the cluster's router and the gateway routers.
pub(crate) const JOIN: &str = "join";
/// Keys of the cluster's rows that others refer to.
pub(super) const ROUTER_KEY: &str = "router";
pub(super) const JOIN_KEY: &str = "join";
pub(super) const COPP_KEY: &str = "copp";
pub(super) const MANAGEMENT_PORTS_KEY: &str = "management-ports";
pub(super) const ALL_PODS_KEY: &str = "all-pods";
pub(super) const ROUTER_PORTS_KEY: &str = "router-ports";
pub(super) const SERVICE_PORTS_KEY: &str = "service-ports";
/// Groups of load balancers: of switches and routers, of switches, of gateway routers.
pub(crate) const CLUSTER_GROUP: &str = "clusterLBGroup";
pub(crate) const SWITCH_GROUP: &str = "clusterSwitchLBGroup";
pub(crate) const ROUTER_GROUP: &str = "clusterRouterLBGroup";
/// All of them: their table has no room for a mark, so they are ours by these names.
pub(crate) const LOAD_BALANCER_GROUPS: [&str; 3] = [CLUSTER_GROUP, SWITCH_GROUP, ROUTER_GROUP];

/// Where multicast is possible at all: the group of all pods, whose ports are closed to it.
pub(super) const ALL_PODS_GROUP: &str = "clusterPodPortGroup";
pub(super) const ROUTER_PORTS_GROUP: &str = "clusterRtrPortGroup";

/// Packets that ovn-controller is asked about, each with a rate that one port cannot take from another.
const POLICED: [&str; 9] =
    ["arp", "arp-resolve", "bfd", "event-elb", "icmp4-error", "icmp6-error", "reject", "svc-monitor", "tcp-reset"];
const POLICED_RATE: i64 = 25;
/// What limits the log of policies' rules.
pub(crate) const LOGGING_METER: &str = "acl-logging";
const LOGGING_RATE: i64 = 20;
/// Priorities of multicast rules.
pub(super) const MULTICAST_ALLOW: i64 = 1012;
const MULTICAST_DENY: i64 = 1011;
/// Above every policy, in the first tier: no policy can open what no Service has.
const UNSERVED: i64 = 32_000;
/// One port of every switch that clients of Services come in by.
const SERVICE_PORTS_GROUP: &str = "clusterServicePortGroup";

pub(super) fn desired(given: Given<'_>) -> Contribution {
    let owner = Owner::Cluster;
    let mut draft = Draft::new(&owner, "cluster", given.aliases);
    let copp = policing(&mut draft, given);
    let router = draft.row(
        ROUTER_KEY,
        &LogicalRouter {
            name: ROUTER.into(),
            copp,
            options: [
                Some(("always_learn_from_arp_request", "false")),
                given.settings.multicast.then_some(("mcast_relay", "true")),
            ]
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
            external_ids: draft.mark(&[("k8s-cluster-router", "yes")]),
            ..Default::default()
        },
    );
    let join =
        draft.row(JOIN_KEY, &LogicalSwitch { name: JOIN.into(), external_ids: draft.mark(&[]), ..Default::default() });
    retry::unmark(&mut draft, join, given);
    let networks: Vec<InterfaceAddress> =
        given.settings.families().filter_map(|v6| given.settings.join_of(v6)?.nth_interface(1)).collect();
    let addresses: Vec<_> = networks.iter().map(|network| network.address()).collect();
    let port = format!("rtoj-{ROUTER}");
    draft.child(
        LogicalRouter::ports,
        router,
        "rtoj",
        &LogicalRouterPort {
            name: port.clone(),
            mac: Mac::for_addresses(&addresses).map(|mac| mac.to_string()).unwrap_or_default(),
            networks: networks.iter().map(ToString::to_string).collect(),
            external_ids: draft.mark(&[]),
            ..Default::default()
        },
    );
    draft.child(
        LogicalSwitch::ports,
        join,
        "jtor",
        &LogicalSwitchPort {
            name: format!("jtor-{ROUTER}"),
            kind: "router".into(),
            addresses: ["router".to_owned()].into(),
            options: [("router-port".to_owned(), port)].into(),
            external_ids: draft.mark(&[]),
            ..Default::default()
        },
    );
    if given.settings.features.has(Feature::LoadBalancerGroups) {
        for group in LOAD_BALANCER_GROUPS {
            draft.row(group, &LoadBalancerGroup { name: group.into(), ..Default::default() });
        }
    }
    hairpins(&mut draft, given);
    // One port of every switch that clients of Services come in by: what is attached to it is attached to them all.
    let name = SERVICE_PORTS_GROUP.to_owned();
    draft.row(SERVICE_PORTS_KEY, &PortGroup { name, external_ids: draft.mark(&[]), ..Default::default() });
    service_networks(&mut draft, given);
    if given.store.namespaces().any(|namespace| namespace.logs().is_some()) {
        logging(&mut draft, given);
    }
    if given.settings.multicast {
        closed_to_multicast(&mut draft, given);
    }
    draft.finish()
}

fn policing(draft: &mut Draft<'_>, given: Given<'_>) -> Option<ovsdb::uuid::Uuid> {
    let features = &given.settings.features;
    let meter = |name: &str, rate: i64, draft: &mut Draft<'_>| {
        let band = MeterBand { action: "drop".into(), rate, external_ids: draft.mark(&[]), ..Default::default() };
        let key = format!("meter {name}");
        let meter = Meter {
            name: name.to_owned(),
            unit: "pktps".into(),
            fair: features.has(Feature::FairMeters).then_some(true),
            external_ids: draft.mark(&[]),
            ..Default::default()
        };
        let uuid = draft.row(&key, &meter);
        draft.child(Meter::bands, uuid, &format!("band {name}"), &band);
    };
    if !features.has(Feature::ControlPlanePolicing) {
        return None;
    }
    let mut meters = ovn_schema::StringMap::new();
    for protocol in POLICED {
        let name = format!("{protocol}-rate-limiter");
        meter(&name, POLICED_RATE, draft);
        meters.insert(protocol.to_owned(), name);
    }
    let copp = Copp { name: "ovnkube-default".into(), meters, external_ids: draft.mark(&[]) };
    Some(draft.row(COPP_KEY, &copp))
}

/// What limits the log of policies' rules; only where something is logged.
fn logging(draft: &mut Draft<'_>, given: Given<'_>) {
    let meter = Meter {
        name: LOGGING_METER.into(),
        unit: "pktps".into(),
        fair: given.settings.features.has(Feature::FairMeters).then_some(true),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    let uuid = draft.row("meter logging", &meter);
    let band =
        MeterBand { action: "drop".into(), rate: LOGGING_RATE, external_ids: draft.mark(&[]), ..Default::default() };
    draft.child(Meter::bands, uuid, "band logging", &band);
}

/// A pod that reaches itself through a Service comes from an address of its own, which no policy shall stop.
fn hairpins(draft: &mut Draft<'_>, given: Given<'_>) {
    let name = "clusterPortGroup".to_owned();
    let group =
        draft.row(MANAGEMENT_PORTS_KEY, &PortGroup { name, external_ids: draft.mark(&[]), ..Default::default() });
    blocked::pass_to_policies(draft, group, given);
    for v6 in given.settings.families() {
        let Some(hairpin) = given.settings.masquerade_address(Masquerade::Hairpin, v6) else { continue };
        for direction in ["to-lport", "from-lport"] {
            let acl = Acl {
                direction: direction.into(),
                priority: 1001,
                matching: format!("{}.src == {hairpin}", ip_word(v6)),
                action: "allow-related".into(),
                tier: tier(given),
                options: after_load_balancing(direction),
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &format!("hairpin {direction} {v6}"), &acl);
        }
    }
}

/// Packets to Services' networks that no load balancer took are rejected, and never leave the node.
///
/// Pods' packets are looked at on their node's switch, behind its load balancers. Hosts' packets come to their gateway
/// router, whose load balancers take what is a Service's; it routes the rest back to the external switch, which has the
/// rule for what comes from a router. So two rules of each family do for the whole cluster, whatever Services there are.
fn service_networks(draft: &mut Draft<'_>, given: Given<'_>) {
    for v6 in given.settings.families() {
        let networks = given.settings.services.iter().filter(|network| network.is_ipv6() == v6);
        let networks: Vec<String> = networks.map(ToString::to_string).collect();
        if networks.is_empty() {
            continue;
        }
        let to = format!("{}.dst == {{{}}}", ip_word(v6), networks.join(", "));
        let from_router = format!("inport == @{SERVICE_PORTS_GROUP} && {to}");
        for (group, key, matching, options) in [
            (MANAGEMENT_PORTS_KEY, "pods", to, after_load_balancing("from-lport")),
            (SERVICE_PORTS_KEY, "hosts", from_router, ovn_schema::StringMap::new()),
        ] {
            let group = draft.of_cluster::<PortGroup>(group);
            let acl = Acl {
                direction: "from-lport".into(),
                priority: UNSERVED,
                matching,
                action: "reject".into(),
                options,
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &format!("unserved {key} {v6}"), &acl);
        }
    }
}

/// What is sent by a port is looked at when the load balancer has chosen where it goes.
pub(super) fn after_load_balancing(direction: &str) -> ovn_schema::StringMap {
    let after = (direction == "from-lport").then(|| ("apply-after-lb".to_owned(), "true".to_owned()));
    after.into_iter().collect()
}

/// The tier of everything that is no AdminNetworkPolicy.
pub(super) fn tier(given: Given<'_>) -> i64 {
    if given.settings.features.has(Feature::AclTiers) { 2 } else { 0 }
}

/// Nobody sends or gets multicast, but routers among each other and the namespaces that say so.
fn closed_to_multicast(draft: &mut Draft<'_>, given: Given<'_>) {
    for (key, name, priority, action) in [
        (ALL_PODS_KEY, ALL_PODS_GROUP, MULTICAST_DENY, "drop"),
        (ROUTER_PORTS_KEY, ROUTER_PORTS_GROUP, MULTICAST_ALLOW, "allow"),
    ] {
        let row = PortGroup { name: name.into(), external_ids: draft.mark(&[]), ..Default::default() };
        let group = draft.row(key, &row);
        for (direction, port) in [("from-lport", "inport"), ("to-lport", "outport")] {
            let acl = Acl {
                direction: direction.into(),
                priority,
                matching: format!(
                    "{port} == @{name} && (ip4.mcast || mldv1 || mldv2 || (ip6.dst[120..127] == 0xff && ip6.dst[116] == 1))"
                ),
                action: action.into(),
                tier: tier(given),
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &format!("{key} multicast {direction}"), &acl);
        }
    }
}
