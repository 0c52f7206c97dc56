//! Follows a packet through the desired rows; tests compare the result with `ovn-trace`.
//!
//! ```text
//!  pod ── switch ──▶ pod of the same node
//!            └── ovn_cluster_router ──▶ switch ──▶ pod of another node
//!                       └── GR_<node>, translated ──▶ next hop      (or, with a local gateway: k8s-<node>, the host)
//! ```
//!
//! Switches, router ports, routes and NAT are followed; ACLs are not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netmodel::{Family, InterfaceAddress, Prefix};
use objects::PodKey;
use ovn_schema::TableRow;
use ovn_schema::northbound::{
    LogicalRouter, LogicalRouterPort, LogicalRouterStaticRoute, LogicalSwitch, LogicalSwitchPort, Nat,
};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::RowValues;
use ovsdb::uuid::Uuid;
use topology::desired::{Inputs, PORT_KEY, desired};
use topology::identity::{Owner, row_uuid};

/// How a packet reaches a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The logical switch port of the pod.
    pub port: String,
    /// Whether it passes `ovn_cluster_router`.
    pub routed: bool,
}

/// How a packet egress the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Through a gateway router.
    Gateway {
        /// `GR_<node>`.
        router: String,
        /// After SNAT.
        source: IpAddr,
        /// Several with ECMP routes.
        next_hops: Vec<IpAddr>,
    },
    /// Through the host's routing table.
    Host {
        /// Logical port of the host, `k8s-<node>`.
        port: String,
    },
}

/// The path of a packet between pods; None if it does not arrive.
pub fn reach(inputs: Inputs<'_>, from: &PodKey, to: &PodKey, family: Family) -> Option<Path> {
    Network::of(inputs).reach(inputs, from, to, family)
}

/// How a packet of a pod to an outside address egress the cluster; None if it does not.
pub fn egress(inputs: Inputs<'_>, from: &PodKey, outside: IpAddr) -> Option<Exit> {
    Network::of(inputs).egress(inputs, from, outside)
}

/// A routing decision: output port, and next hop unless the destination is on the link.
struct Route {
    port: String,
    hop: Option<IpAddr>,
}

/// The desired rows of the cluster, of all nodes, and of the pods in question.
#[derive(Default)]
pub(crate) struct Network {
    rows: BTreeMap<(&'static str, Uuid), RowValues>,
    sets: BTreeMap<(Uuid, &'static str), Vec<Uuid>>,
    pods: BTreeSet<PodKey>,
}

impl Network {
    pub(crate) fn of(inputs: Inputs<'_>) -> Self {
        let mut network = Self::default();
        let nodes = inputs.store.nodes().map(|node| Owner::Node(node.name.clone()));
        for owner in [Owner::Cluster].into_iter().chain(nodes) {
            network.add(&owner, inputs);
        }
        network
    }

    fn add(&mut self, owner: &Owner, inputs: Inputs<'_>) {
        let Ok(wanted) = desired(owner, inputs) else { return };
        self.rows.extend(wanted.rows.into_iter().map(|row| ((row.id.table, row.id.uuid), row.values)));
        for member in wanted.members {
            if let Atom::Uuid(uuid) = member.atom {
                self.sets.entry((member.column.row.uuid, member.column.column)).or_default().push(uuid);
            }
        }
    }

    fn add_pod(&mut self, key: &PodKey, inputs: Inputs<'_>) {
        if let Some(pod) = inputs.store.pod(key).filter(|_| self.pods.insert(key.clone())) {
            self.add(&Owner::Pod(pod.key.clone()), inputs);
        }
    }

    /// See [`reach`].
    pub(crate) fn reach(&mut self, inputs: Inputs<'_>, from: &PodKey, to: &PodKey, family: Family) -> Option<Path> {
        self.add_pod(from, inputs);
        self.add_pod(to, inputs);
        let (source, start) = self.pod(inputs, from, family)?;
        let (destination, end) = self.pod(inputs, to, family)?;
        if start == end {
            return Some(Path { port: to.port_name(), routed: false });
        }
        let routes = self.routes(self.router_behind(start)?, source, destination);
        let delivered = !routes.is_empty()
            && routes.iter().all(|route| route.hop.is_none() && self.switch_behind(&route.port) == Some(end));
        delivered.then(|| Path { port: to.port_name(), routed: true })
    }

    /// See [`egress`].
    pub(crate) fn egress(&mut self, inputs: Inputs<'_>, from: &PodKey, outside: IpAddr) -> Option<Exit> {
        self.add_pod(from, inputs);
        let (source, start) = self.pod(inputs, from, Family::of(outside))?;
        let hop = self.routes(self.router_behind(start)?, source, outside).first()?.hop?;
        let Some((gateway, name)) = self.router_with(hop) else {
            return self.port_with(hop).map(|port| Exit::Host { port });
        };
        let routes = self.routes(gateway, source, outside);
        let mut next_hops: Vec<IpAddr> = routes.iter().map(|route| route.hop.unwrap_or(outside)).collect();
        next_hops.sort_unstable();
        let source = self.translated(gateway, source);
        (!next_hops.is_empty()).then_some(Exit::Gateway { router: name, source, next_hops })
    }

    fn rows_of<R: TableRow>(&self) -> impl Iterator<Item = (Uuid, &RowValues)> {
        self.rows.iter().filter(|((table, _), _)| *table == R::TABLE).map(|((_, uuid), values)| (*uuid, values))
    }

    /// The rows that a column of another row refers to.
    fn members<R: TableRow>(&self, of: Uuid, column: &'static str) -> impl Iterator<Item = &RowValues> {
        let uuids = self.sets.get(&(of, column)).into_iter().flatten();
        uuids.filter_map(|uuid| self.rows.get(&(R::TABLE, *uuid)))
    }

    /// The networks that routers distinguish: of ports and of routes.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let ports = self.rows_of::<LogicalRouterPort>().flat_map(|(_, port)| networks(port));
        let routes = self.rows_of::<LogicalRouterStaticRoute>();
        ports.map(InterfaceAddress::network).chain(routes.filter_map(|(_, route)| prefix(&text(route, "ip_prefix"))))
    }

    /// A pod's address and switch; None without a port that has the address.
    fn pod(&self, inputs: Inputs<'_>, key: &PodKey, family: Family) -> Option<(IpAddr, Uuid)> {
        let own = inputs.allocator.pod(key)?;
        let address = own.addresses().find(|address| family.matches(*address))?;
        let port = inputs.aliases.resolve(row_uuid(LogicalSwitchPort::TABLE, "Pod", &own.uid, PORT_KEY));
        let values = self.rows.get(&(LogicalSwitchPort::TABLE, port))?;
        holds(values, address).then_some(())?;
        // Port groups have a column `ports` too.
        let on = |(set, members): (&(Uuid, &str), &Vec<Uuid>)| {
            let is_switch = self.rows.contains_key(&(LogicalSwitch::TABLE, set.0));
            (is_switch && set.1 == "ports" && members.contains(&port)).then_some(set.0)
        };
        self.sets.iter().find_map(on).map(|switch| (address, switch))
    }

    /// The router that a switch is connected to.
    fn router_behind(&self, switch: Uuid) -> Option<Uuid> {
        let mut ports = self.members::<LogicalSwitchPort>(switch, "ports");
        let peer = ports.find_map(|port| port.get("options")?.get_str("router-port"))?;
        let routers = self.rows_of::<LogicalRouter>().map(|(uuid, _)| uuid);
        routers
            .into_iter()
            .find(|router| self.members::<LogicalRouterPort>(*router, "ports").any(|port| text(port, "name") == peer))
    }

    /// The switch that a router port is connected to.
    fn switch_behind(&self, port: &str) -> Option<Uuid> {
        let faces = |values: &RowValues| values.get("options")?.get_str("router-port");
        self.rows_of::<LogicalSwitch>().map(|(uuid, _)| uuid).find(|switch| {
            self.members::<LogicalSwitchPort>(*switch, "ports").any(|peer| faces(peer).as_deref() == Some(port))
        })
    }

    /// The router with an address on a port, and its name.
    fn router_with(&self, address: IpAddr) -> Option<(Uuid, String)> {
        let has = |router: &Uuid| {
            let mut ports = self.members::<LogicalRouterPort>(*router, "ports");
            ports.any(|port| networks(port).any(|network| network.address() == address))
        };
        let (uuid, values) = self.rows_of::<LogicalRouter>().find(|(uuid, _)| has(uuid))?;
        Some((uuid, text(values, "name")))
    }

    /// The switch port with an address.
    fn port_with(&self, address: IpAddr) -> Option<String> {
        let mut ports = self.rows_of::<LogicalSwitchPort>();
        ports.find(|(_, values)| holds(values, address)).map(|(_, values)| text(values, "name"))
    }

    /// The best routes of a router, in OVN's order: the longest prefix; at equal length connected networks, then routes by
    /// destination, then routes by source.
    fn routes(&self, router: Uuid, source: IpAddr, destination: IpAddr) -> Vec<Route> {
        let mut routes: Vec<((u8, u8), Route)> = Vec::new();
        for port in self.members::<LogicalRouterPort>(router, "ports") {
            for network in networks(port).map(InterfaceAddress::network).filter(|network| network.contains(destination))
            {
                routes.push(((network.length(), 2), Route { port: text(port, "name"), hop: None }));
            }
        }
        for route in self.members::<LogicalRouterStaticRoute>(router, "static_routes") {
            let by_source = text(route, "policy") == "src-ip";
            let matched = if by_source { source } else { destination };
            if let (Some(network), Ok(hop)) = (prefix(&text(route, "ip_prefix")), text(route, "nexthop").parse())
                && network.contains(matched)
            {
                let route = Route { port: text(route, "output_port"), hop: Some(hop) };
                routes.push(((network.length(), u8::from(!by_source)), route));
            }
        }
        let best = routes.iter().map(|(rank, _)| *rank).max();
        routes.into_iter().filter(|(rank, _)| Some(*rank) == best).map(|(_, route)| route).collect()
    }

    /// The source address after SNAT by a router.
    fn translated(&self, router: Uuid, source: IpAddr) -> IpAddr {
        // Rules with a match do not apply to first packets.
        let always = |rule: &&RowValues| text(rule, "type") == "snat" && text(rule, "match").is_empty();
        let rules = self.members::<Nat>(router, "nat").filter(always);
        let rules = rules.filter_map(|rule| {
            let inside = prefix(&text(rule, "logical_ip")).filter(|inside| inside.contains(source))?;
            Some((inside.length(), text(rule, "external_ip").parse().ok()?))
        });
        rules.max().map_or(source, |(_, outside)| outside)
    }
}

fn text(values: &RowValues, column: &str) -> String {
    values.get(column).map(ToString::to_string).unwrap_or_default()
}

fn networks(port: &RowValues) -> impl Iterator<Item = InterfaceAddress> {
    let atoms = port.get("networks").into_iter().flat_map(Datum::atoms);
    atoms.filter_map(|atom| atom.to_string().parse().ok())
}

fn prefix(text: &str) -> Option<Prefix> {
    let single = || text.parse().ok().and_then(|address: IpAddr| Prefix::new(address, Family::of(address).bits()).ok());
    text.parse().ok().or_else(single)
}

/// Whether a switch port has the address.
fn holds(port: &RowValues, address: IpAddr) -> bool {
    let address = address.to_string();
    let mut lines = port.get("addresses").into_iter().flat_map(Datum::atoms);
    lines.any(|line| line.to_string().split(' ').any(|word| word == address))
}

#[cfg(test)]
mod tests {
    use objects::ObjectKind;
    use serde_json::{Value, json};
    use topology::ClusterSettings;

    use super::*;
    use crate::preview::Preview;

    /// Nodes `n0`, `n1`, … with these gateway modes and subnets, and two pods `a`, `b` on each.
    struct World(Preview);

    impl World {
        fn new(cluster: &[&str], nodes: &[(&str, Option<&str>)]) -> Self {
            Self::with(&settings(cluster), nodes)
        }

        fn with(settings: &ClusterSettings, nodes: &[(&str, Option<&str>)]) -> Self {
            let mut preview = Preview::new(settings.clone()).unwrap();
            for (number, (mode, subnet)) in nodes.iter().enumerate() {
                preview.put(ObjectKind::Node, node(number, mode, *subnet)).unwrap();
                for name in ["a", "b"] {
                    let pod = json!({"metadata": {"name": format!("{name}{number}"), "namespace": "ns",
                        "uid": format!("{name}{number}")}, "spec": {"nodeName": format!("n{number}")}});
                    preview.put(ObjectKind::Pod, pod).unwrap();
                }
            }
            preview.settle().unwrap();
            Self(preview)
        }

        fn inputs(&self) -> Inputs<'_> {
            self.0.engine().inputs().unwrap()
        }

        fn reach(&self, from: &str, to: &str, family: Family) -> Option<Path> {
            reach(self.inputs(), &PodKey::new("ns", from), &PodKey::new("ns", to), family)
        }

        fn egress(&self, from: &str, outside: &str) -> Option<Exit> {
            egress(self.inputs(), &PodKey::new("ns", from), outside.parse().unwrap())
        }
    }

    fn settings(cluster: &[&str]) -> ClusterSettings {
        ClusterSettings::new(cluster.iter().map(|text| text.parse().unwrap()).collect(), Vec::new())
    }

    fn node(number: usize, mode: &str, subnet: Option<&str>) -> Value {
        let gateway = json!({"default": {"mode": mode, "interface-id": "br-ex", "mac-address": "52:54:00:00:00:01",
            "ip-addresses": [format!("192.0.2.{}/24", 10 + number), format!("2001:db8::{number}/64")],
            "next-hops": ["192.0.2.1", "2001:db8::ffff"]}});
        let mut object = json!({"metadata": {"name": format!("n{number}"), "uid": format!("n{number}"), "annotations": {
            "k8s.ovn.org/node-chassis-id": format!("chassis-{number}"),
            "k8s.ovn.org/l3-gateway-config": gateway.to_string()}}});
        if let Some(subnet) = subnet {
            let subnets = json!({"default": subnet}).to_string();
            object["metadata"]["annotations"]["k8s.ovn.org/node-subnets"] = json!(subnets);
        }
        object
    }

    const DUAL: [&str; 2] = ["10.128.0.0/14/23", "fd01::/48/64"];

    #[test]
    fn pods_of_one_node_share_a_switch_and_others_are_routed() {
        let world = World::new(&DUAL, &[("shared", None), ("local", None)]);
        for family in Family::BOTH {
            let path = |port: &str, routed| Some(Path { port: port.into(), routed });
            assert_eq!(world.reach("a0", "b0", family), path("ns_b0", false));
            assert_eq!(world.reach("a0", "a1", family), path("ns_a1", true));
            assert_eq!(world.reach("b1", "b0", family), path("ns_b0", true));
        }
        assert_eq!(world.reach("a0", "absent", Family::V4), None);
        assert_eq!(
            World::new(&DUAL[..1], &[("shared", None)]).reach("a0", "b0", Family::V6),
            None,
            "the cluster has no IPv6"
        );
    }

    #[test]
    fn egress_uses_the_gateway_of_the_pods_node() {
        let world = World::new(&DUAL, &[("shared", None), ("local", None), ("disabled", None)]);
        let gateway = |source: &str, hop: &str| {
            let (source, next_hops) = (source.parse().unwrap(), vec![hop.parse().unwrap()]);
            Some(Exit::Gateway { router: "GR_n0".into(), source, next_hops })
        };
        assert_eq!(world.egress("a0", "198.51.100.7"), gateway("192.0.2.10", "192.0.2.1"));
        assert_eq!(world.egress("a0", "192.0.2.200"), gateway("192.0.2.10", "192.0.2.200"), "on the link itself");
        assert_eq!(world.egress("b0", "2001:db8:1::7"), gateway("2001:db8::", "2001:db8::ffff"));
        assert_eq!(world.egress("a1", "198.51.100.7"), Some(Exit::Host { port: "k8s-n1".into() }));
        assert_eq!(world.egress("a2", "198.51.100.7"), None, "a node without a gateway");
    }

    #[test]
    fn snat_per_pod_gives_the_same_source() {
        let world = World::with(&ClusterSettings { snat_per_pod: true, ..settings(&DUAL) }, &[("shared", None)]);
        let Some(Exit::Gateway { source, .. }) = world.egress("a0", "198.51.100.7") else {
            panic!("it does not leave")
        };
        assert_eq!(source.to_string(), "192.0.2.10");
    }

    /// OVN prefers the longest prefix, of source or destination routes alike: with node subnets of two lengths, the route by
    /// source of the smaller subnet outranks the route to the larger one.
    #[test]
    fn node_subnets_of_two_lengths_make_the_larger_unreachable_from_the_smaller() {
        let cluster = ["10.128.0.0/16/23", "10.200.0.0/16/24"];
        let world = World::new(&cluster, &[("shared", Some("10.128.0.0/23")), ("shared", Some("10.200.0.0/24"))]);
        assert!(world.reach("a0", "a1", Family::V4).is_some());
        assert_eq!(world.reach("a1", "a0", Family::V4), None);
    }
}
