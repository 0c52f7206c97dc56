//! Rows that all nodes share: the cluster router, the join switch, control-plane policing, groups.
//!
//! ```text
//!  ovn_cluster_router ── rtoj ── jtor ── join ── jtor-GR_<node> ── rtoj-GR_<node> ── GR_<node>
//!          └── rtos-<node> ── stor-<node> ── <node>
//! ```

use netmodel::{InterfaceAddress, Mac, Masquerade};
use ovn_schema::Feature;
use ovn_schema::northbound::{
    Acl, LoadBalancerGroup, LogicalRouter, LogicalRouterPort, LogicalSwitch, LogicalSwitchPort, Meter, MeterBand,
    PortGroup,
};

use super::{Inputs, blocked, ip_word, policing, retransmit};
use crate::contribution::{Contribution, Draft};
use crate::identity::{Owner, family_key};

/// The router that connects all node switches.
pub(crate) const ROUTER: &str = "ovn_cluster_router";
/// The switch between the cluster router and the gateway routers.
pub(crate) const JOIN: &str = "join";
/// Row keys that rows of other owners refer to.
pub(super) const ROUTER_KEY: &str = "router";
pub(super) const JOIN_KEY: &str = "join";
pub(super) const MANAGEMENT_PORTS_KEY: &str = "management-ports";
pub(super) const ALL_PODS_KEY: &str = "all-pods";
pub(super) const ROUTER_PORTS_KEY: &str = "router-ports";
pub(super) const SERVICE_PORTS_KEY: &str = "service-ports";
/// Load balancers of all node switches and gateway routers.
pub const CLUSTER_GROUP: &str = "clusterLBGroup";
/// Load balancers of all node switches.
pub const SWITCH_GROUP: &str = "clusterSwitchLBGroup";
/// Load balancers of all gateway routers.
pub const ROUTER_GROUP: &str = "clusterRouterLBGroup";
/// Their table has no column for a mark: rows of these names are ours.
pub(crate) const LOAD_BALANCER_GROUPS: [&str; 3] = [CLUSTER_GROUP, SWITCH_GROUP, ROUTER_GROUP];

/// With multicast enabled: all pods, where it is denied by default.
pub(super) const ALL_PODS_GROUP: &str = "clusterPodPortGroup";
pub(super) const ROUTER_PORTS_GROUP: &str = "clusterRtrPortGroup";

/// Name of the meter that limits the log lines of ACLs; there only while a namespace logs.
pub(crate) const LOGGING_METER: &str = "acl-logging";
const LOGGING_RATE: i64 = 20;
/// ACL priorities of multicast.
pub(super) const MULTICAST_ALLOW: i64 = 1012;
const MULTICAST_DENY: i64 = 1011;
/// ACL priority of rejecting unserved Service addresses: in the first tier, above every policy.
const UNSERVED: i64 = 32_000;
/// One port of every switch that receives packets of Services' clients.
const SERVICE_PORTS_GROUP: &str = "clusterServicePortGroup";

pub(super) fn desired(inputs: Inputs<'_>) -> Contribution {
    let owner = Owner::Cluster;
    let mut draft = Draft::new(&owner, "cluster", inputs.aliases);
    let copp = policing::add(&mut draft, inputs);
    let router = draft.row(
        ROUTER_KEY,
        &LogicalRouter {
            name: ROUTER.into(),
            copp,
            options: [
                Some(("always_learn_from_arp_request", "false")),
                inputs.settings.multicast.then_some(("mcast_relay", "true")),
            ]
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
            external_ids: draft.mark(&[("k8s-cluster-router", "yes")]),
            ..Default::default()
        },
    );
    let join = draft
        .row(JOIN_KEY, &LogicalSwitch { name: JOIN.into(), copp, external_ids: draft.mark(&[]), ..Default::default() });
    retransmit::unmark(&mut draft, join, inputs);
    let networks: Vec<InterfaceAddress> =
        inputs.settings.families().filter_map(|family| inputs.settings.join_of(family)?.nth_interface(1)).collect();
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
    if inputs.settings.features.has(Feature::LoadBalancerGroups) {
        for group in LOAD_BALANCER_GROUPS {
            draft.row(group, &LoadBalancerGroup { name: group.into(), ..Default::default() });
        }
    }
    hairpins(&mut draft, inputs);
    // ACLs of this group apply to all these switches.
    let name = SERVICE_PORTS_GROUP.to_owned();
    draft.row(SERVICE_PORTS_KEY, &PortGroup { name, external_ids: draft.mark(&[]), ..Default::default() });
    service_networks(&mut draft, inputs);
    if inputs.store.namespaces().any(|namespace| namespace.logs().is_some()) {
        logging(&mut draft, inputs);
    }
    if inputs.settings.multicast {
        closed_to_multicast(&mut draft, inputs);
    }
    draft.finish()
}

/// The meter of logged ACLs; only if a namespace enables logging.
fn logging(draft: &mut Draft<'_>, inputs: Inputs<'_>) {
    let meter = Meter {
        name: LOGGING_METER.into(),
        unit: "pktps".into(),
        fair: inputs.settings.features.has(Feature::FairMeters).then_some(true),
        external_ids: draft.mark(&[]),
        ..Default::default()
    };
    let uuid = draft.row("meter logging", &meter);
    let band =
        MeterBand { action: "drop".into(), rate: LOGGING_RATE, external_ids: draft.mark(&[]), ..Default::default() };
    draft.child(Meter::bands, uuid, "band logging", &band);
}

/// A pod that reaches itself through a Service has the hairpin address as source, which no policy may deny.
fn hairpins(draft: &mut Draft<'_>, inputs: Inputs<'_>) {
    let name = "clusterPortGroup".to_owned();
    let group =
        draft.row(MANAGEMENT_PORTS_KEY, &PortGroup { name, external_ids: draft.mark(&[]), ..Default::default() });
    blocked::pass_to_policies(draft, group, inputs);
    for family in inputs.settings.families() {
        let Some(hairpin) = inputs.settings.masquerade_address(Masquerade::Hairpin, family) else { continue };
        for direction in ["to-lport", "from-lport"] {
            let acl = Acl {
                direction: direction.into(),
                priority: 1001,
                matching: format!("{}.src == {hairpin}", ip_word(family)),
                action: "allow-related".into(),
                tier: tier(inputs),
                options: after_load_balancing(direction),
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &family_key(&format!("hairpin {direction}"), family), &acl);
        }
    }
}

/// Rejects packets to Service networks that no load balancer matched; they never leave the node.
///
/// Pods' packets are rejected on their node's switch, after its load balancers. Hosts' packets go through their gateway
/// router's load balancers; it routes the rest back to the external switch, where the ACL for packets from the router
/// rejects them. So two ACLs per family cover the cluster, regardless of the number of Services.
///
/// Pods' packets to masquerade addresses are dropped there, too: the gateway router would translate their source to the node's
/// address, and br-ex would take them for a Service's packets to an endpoint on this host. Replies to the host pass, as all replies do.
fn service_networks(draft: &mut Draft<'_>, inputs: Inputs<'_>) {
    for family in inputs.settings.families() {
        let networks = inputs.settings.services.iter().filter(|network| network.family() == family);
        let networks: Vec<String> = networks.map(ToString::to_string).collect();
        if networks.is_empty() {
            continue;
        }
        let to = format!("{}.dst == {{{}}}", ip_word(family), networks.join(", "));
        let from_router = format!("inport == @{SERVICE_PORTS_GROUP} && {to}");
        let masquerade = inputs.settings.masquerade_of(family);
        let to_masquerade = masquerade.map(|network| format!("{}.dst == {network}", ip_word(family)));
        let after = after_load_balancing("from-lport");
        let rules = [
            (MANAGEMENT_PORTS_KEY, "unserved pods", "reject", Some(to), after.clone()),
            (MANAGEMENT_PORTS_KEY, "masquerade", "drop", to_masquerade, after),
            (SERVICE_PORTS_KEY, "unserved hosts", "reject", Some(from_router), ovn_schema::StringMap::new()),
        ];
        for (group, key, action, matching, options) in rules {
            let Some(matching) = matching else { continue };
            let group = draft.of_cluster::<PortGroup>(group);
            let acl = Acl {
                direction: "from-lport".into(),
                priority: UNSERVED,
                matching,
                action: action.into(),
                options,
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &family_key(key, family), &acl);
        }
    }
}

/// ACLs of what ports send are evaluated after load balancing.
pub(super) fn after_load_balancing(direction: &str) -> ovn_schema::StringMap {
    let after = (direction == "from-lport").then(|| ("apply-after-lb".to_owned(), "true".to_owned()));
    after.into_iter().collect()
}

/// The tier of all ACLs but those of AdminNetworkPolicies.
pub(super) fn tier(inputs: Inputs<'_>) -> i64 {
    if inputs.settings.features.has(Feature::AclTiers) { 2 } else { 0 }
}

/// Denies multicast, except among routers and in namespaces that enable it.
fn closed_to_multicast(draft: &mut Draft<'_>, inputs: Inputs<'_>) {
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
                tier: tier(inputs),
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(PortGroup::acls, group, &format!("{key} multicast {direction}"), &acl);
        }
    }
}
