//! reach: where a packet ends, read off the rows that the objects ask for. What `ovn-trace` says of the database can be
//! compared with it.
//!
//! ```text
//!  pod ── switch ──▶ pod of the same node
//!            └── ovn_cluster_router ──▶ switch ──▶ pod of another node
//!                       └── GR_<node>, translated ──▶ next hop      (or, with a local gateway: k8s-<node>, the host)
//! ```
//!
//! Switches, routers' ports, routes and translations are looked at; policies and access lists are not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netmodel::{InterfaceAddress, Prefix};
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

/// How a packet comes to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The port that it is delivered to.
    pub port: String,
    /// Whether it passes the cluster's router.
    pub routed: bool,
}

/// How a packet leaves the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Through a gateway router.
    Gateway {
        /// The router.
        router: String,
        /// The address that it comes from, as the outside sees it.
        source: IpAddr,
        /// Who it is handed to; more than one if they share the load.
        next_hops: Vec<IpAddr>,
    },
    /// Through the host's own routing, by this port.
    Host {
        /// The management port.
        port: String,
    },
}

/// Whether a packet of a pod to another pod's address of a family is delivered, and how.
pub fn reach(given: Inputs<'_>, from: &PodKey, to: &PodKey, v6: bool) -> Option<Path> {
    Network::of(given).reach(given, from, to, v6)
}

/// How a packet of a pod to an address that is nobody's here leaves the cluster, if it does.
pub fn leaves(given: Inputs<'_>, from: &PodKey, outside: IpAddr) -> Option<Exit> {
    Network::of(given).leaves(given, from, outside)
}

/// Where a router sends a packet: by a port to whom it is meant for, or to the next hop.
struct Way {
    port: String,
    hop: Option<IpAddr>,
}

/// The rows of all nodes, and of those pods that were asked for, as they shall be.
#[derive(Default)]
pub(crate) struct Network {
    rows: BTreeMap<(&'static str, Uuid), RowValues>,
    sets: BTreeMap<(Uuid, &'static str), Vec<Uuid>>,
    pods: BTreeSet<PodKey>,
}

impl Network {
    pub(crate) fn of(given: Inputs<'_>) -> Self {
        let mut network = Self::default();
        let nodes = given.store.nodes().map(|node| Owner::Node(node.name.clone()));
        for owner in [Owner::Cluster].into_iter().chain(nodes) {
            network.add(&owner, given);
        }
        network
    }

    fn add(&mut self, owner: &Owner, given: Inputs<'_>) {
        let Ok(wanted) = desired(owner, given) else { return };
        self.rows.extend(wanted.rows.into_iter().map(|row| ((row.id.table, row.id.uuid), row.values)));
        for member in wanted.members {
            if let Atom::Uuid(uuid) = member.atom {
                self.sets.entry((member.column.row.uuid, member.column.column)).or_default().push(uuid);
            }
        }
    }

    fn add_pod(&mut self, key: &PodKey, given: Inputs<'_>) {
        if let Some(pod) = given.store.pod(key).filter(|_| self.pods.insert(key.clone())) {
            self.add(&Owner::Pod(pod.key.clone()), given);
        }
    }

    /// As [`reach`] says it.
    pub(crate) fn reach(&mut self, given: Inputs<'_>, from: &PodKey, to: &PodKey, v6: bool) -> Option<Path> {
        self.add_pod(from, given);
        self.add_pod(to, given);
        let (source, start) = self.pod(given, from, v6)?;
        let (destination, end) = self.pod(given, to, v6)?;
        if start == end {
            return Some(Path { port: to.port_name(), routed: false });
        }
        let ways = self.ways(self.router_behind(start)?, source, destination);
        let delivered =
            !ways.is_empty() && ways.iter().all(|way| way.hop.is_none() && self.switch_behind(&way.port) == Some(end));
        delivered.then(|| Path { port: to.port_name(), routed: true })
    }

    /// As [`leaves`] says it.
    pub(crate) fn leaves(&mut self, given: Inputs<'_>, from: &PodKey, outside: IpAddr) -> Option<Exit> {
        self.add_pod(from, given);
        let (source, start) = self.pod(given, from, outside.is_ipv6())?;
        let hop = self.ways(self.router_behind(start)?, source, outside).first()?.hop?;
        let Some((gateway, name)) = self.router_with(hop) else {
            return self.port_with(hop).map(|port| Exit::Host { port });
        };
        let ways = self.ways(gateway, source, outside);
        let mut next_hops: Vec<IpAddr> = ways.iter().map(|way| way.hop.unwrap_or(outside)).collect();
        next_hops.sort_unstable();
        let source = self.translated(gateway, source);
        (!next_hops.is_empty()).then_some(Exit::Gateway { router: name, source, next_hops })
    }

    fn rows_of<R: TableRow>(&self) -> impl Iterator<Item = (Uuid, &RowValues)> {
        self.rows.iter().filter(|((table, _), _)| *table == R::TABLE).map(|((_, uuid), values)| (*uuid, values))
    }

    /// The rows in a set of another row.
    fn members<R: TableRow>(&self, of: Uuid, column: &'static str) -> impl Iterator<Item = &RowValues> {
        let uuids = self.sets.get(&(of, column)).into_iter().flatten();
        uuids.filter_map(|uuid| self.rows.get(&(R::TABLE, *uuid)))
    }

    /// The networks that routers tell apart: their ports' own, and those of their routes.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let ports = self.rows_of::<LogicalRouterPort>().flat_map(|(_, port)| networks(port));
        let routes = self.rows_of::<LogicalRouterStaticRoute>();
        ports.map(InterfaceAddress::network).chain(routes.filter_map(|(_, route)| prefix(&text(route, "ip_prefix"))))
    }

    /// A pod's address of a family and the switch that its port is on, if it has a port with that address.
    fn pod(&self, given: Inputs<'_>, key: &PodKey, v6: bool) -> Option<(IpAddr, Uuid)> {
        let own = given.allocator.pod(key)?;
        let address = own.addresses().find(|address| address.is_ipv6() == v6)?;
        let port = given.aliases.resolve(row_uuid(LogicalSwitchPort::TABLE, "Pod", &own.uid, PORT_KEY));
        let values = self.rows.get(&(LogicalSwitchPort::TABLE, port))?;
        holds(values, address).then_some(())?;
        // Groups of ports have it too.
        let on = |(set, members): (&(Uuid, &str), &Vec<Uuid>)| {
            let is_switch = self.rows.contains_key(&(LogicalSwitch::TABLE, set.0));
            (is_switch && set.1 == "ports" && members.contains(&port)).then_some(set.0)
        };
        self.sets.iter().find_map(on).map(|switch| (address, switch))
    }

    /// The router that a switch hangs on.
    fn router_behind(&self, switch: Uuid) -> Option<Uuid> {
        let mut ports = self.members::<LogicalSwitchPort>(switch, "ports");
        let peer = ports.find_map(|port| port.get("options")?.get_str("router-port"))?;
        let routers = self.rows_of::<LogicalRouter>().map(|(uuid, _)| uuid);
        routers
            .into_iter()
            .find(|router| self.members::<LogicalRouterPort>(*router, "ports").any(|port| text(port, "name") == peer))
    }

    /// The switch that a router's port faces.
    fn switch_behind(&self, port: &str) -> Option<Uuid> {
        let faces = |values: &RowValues| values.get("options")?.get_str("router-port");
        self.rows_of::<LogicalSwitch>().map(|(uuid, _)| uuid).find(|switch| {
            self.members::<LogicalSwitchPort>(*switch, "ports").any(|peer| faces(peer).as_deref() == Some(port))
        })
    }

    /// The router whose port has an address, with its name.
    fn router_with(&self, address: IpAddr) -> Option<(Uuid, String)> {
        let has = |router: &Uuid| {
            let mut ports = self.members::<LogicalRouterPort>(*router, "ports");
            ports.any(|port| networks(port).any(|network| network.address() == address))
        };
        let (uuid, values) = self.rows_of::<LogicalRouter>().find(|(uuid, _)| has(uuid))?;
        Some((uuid, text(values, "name")))
    }

    /// The switch port that has an address.
    fn port_with(&self, address: IpAddr) -> Option<String> {
        let mut ports = self.rows_of::<LogicalSwitchPort>();
        ports.find(|(_, values)| holds(values, address)).map(|(_, values)| text(values, "name"))
    }

    /// The best ways of a router, by OVN's order: the longest prefix; of the same length a port's own network, then a
    /// destination's route, then a source's.
    fn ways(&self, router: Uuid, source: IpAddr, destination: IpAddr) -> Vec<Way> {
        let mut ways: Vec<((u8, u8), Way)> = Vec::new();
        for port in self.members::<LogicalRouterPort>(router, "ports") {
            for network in networks(port).map(InterfaceAddress::network).filter(|network| network.contains(destination))
            {
                ways.push(((network.length(), 2), Way { port: text(port, "name"), hop: None }));
            }
        }
        for route in self.members::<LogicalRouterStaticRoute>(router, "static_routes") {
            let by_source = text(route, "policy") == "src-ip";
            let judged = if by_source { source } else { destination };
            if let (Some(network), Ok(hop)) = (prefix(&text(route, "ip_prefix")), text(route, "nexthop").parse())
                && network.contains(judged)
            {
                let way = Way { port: text(route, "output_port"), hop: Some(hop) };
                ways.push(((network.length(), u8::from(!by_source)), way));
            }
        }
        let best = ways.iter().map(|(rank, _)| *rank).max();
        ways.into_iter().filter(|(rank, _)| Some(*rank) == best).map(|(_, way)| way).collect()
    }

    /// The address that a router gives a packet which comes from this one.
    fn translated(&self, router: Uuid, source: IpAddr) -> IpAddr {
        // A rule with a condition is not about first packets.
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
    let single = || {
        text.parse()
            .ok()
            .and_then(|address: IpAddr| Prefix::new(address, if address.is_ipv6() { 128 } else { 32 }).ok())
    };
    text.parse().ok().or_else(single)
}

/// Whether a switch port has an address.
fn holds(port: &RowValues, address: IpAddr) -> bool {
    let address = address.to_string();
    let mut lines = port.get("addresses").into_iter().flat_map(Datum::atoms);
    lines.any(|line| line.to_string().split(' ').any(|word| word == address))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use objects::{NodeFacts, PodFacts};
    use topology::allocation::{Allocator, KnownNode};
    use topology::contribution::Aliases;
    use topology::settings::ClusterSettings;
    use topology::store::Store;

    struct World {
        settings: ClusterSettings,
        store: Store,
        allocator: Allocator,
        aliases: Aliases,
    }

    impl World {
        /// Nodes `n0`, `n1`, … with these gateways and subnets, and two pods `a`, `b` on each.
        fn new(cluster: &[&str], nodes: &[(&str, Option<&str>)]) -> Self {
            let cluster = cluster.iter().map(|text| text.parse().unwrap()).collect();
            let settings = ClusterSettings::new(cluster, Vec::new());
            let mut world = Self {
                allocator: Allocator::new(&settings).unwrap(),
                settings,
                store: Store::default(),
                aliases: Aliases::default(),
            };
            for (number, (mode, subnet)) in nodes.iter().enumerate() {
                world.add_node(number, mode, *subnet);
                for name in ["a", "b"] {
                    let object = json!({"metadata": {"name": format!("{name}{number}"), "namespace": "ns",
                        "uid": format!("{name}{number}")}, "spec": {"nodeName": format!("n{number}")}});
                    let pod = PodFacts::parse(&object.to_string()).unwrap();
                    world.allocator.allocate_pod(&pod, None).unwrap();
                    world.store.put_pod(pod);
                }
            }
            world
        }

        fn add_node(&mut self, number: usize, mode: &str, subnet: Option<&str>) {
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
            let node = NodeFacts::parse(&object.to_string()).unwrap();
            self.allocator.allocate_node(&node, &KnownNode::default()).unwrap();
            self.store.put_node(node);
        }

        fn given(&self) -> Inputs<'_> {
            let Self { settings, store, allocator, aliases } = self;
            Inputs { settings, store, allocator, aliases }
        }

        fn reach(&self, from: &str, to: &str, v6: bool) -> Option<Path> {
            reach(self.inputs(), &PodKey::new("ns", from), &PodKey::new("ns", to), v6)
        }

        fn leaves(&self, from: &str, outside: &str) -> Option<Exit> {
            leaves(self.inputs(), &PodKey::new("ns", from), outside.parse().unwrap())
        }
    }

    const DUAL: [&str; 2] = ["10.128.0.0/14/23", "fd01::/48/64"];

    #[test]
    fn pods_of_one_node_are_on_one_switch_and_others_behind_the_router() {
        let world = World::new(&DUAL, &[("shared", None), ("local", None)]);
        for v6 in [false, true] {
            let path = |port: &str, routed| Some(Path { port: port.into(), routed });
            assert_eq!(world.reach("a0", "b0", v6), path("ns_b0", false));
            assert_eq!(world.reach("a0", "a1", v6), path("ns_a1", true));
            assert_eq!(world.reach("b1", "b0", v6), path("ns_b0", true));
        }
        assert_eq!(world.reach("a0", "nobody", false), None);
        assert_eq!(
            World::new(&DUAL[..1], &[("shared", None)]).reach("a0", "b0", true),
            None,
            "there is no such family"
        );
    }

    #[test]
    fn the_outside_is_behind_the_gateway_of_the_pods_own_node() {
        let world = World::new(&DUAL, &[("shared", None), ("local", None), ("disabled", None)]);
        let gateway = |source: &str, hop: &str| {
            let (source, next_hops) = (source.parse().unwrap(), vec![hop.parse().unwrap()]);
            Some(Exit::Gateway { router: "GR_n0".into(), source, next_hops })
        };
        assert_eq!(world.leaves("a0", "198.51.100.7"), gateway("192.0.2.10", "192.0.2.1"));
        assert_eq!(world.leaves("a0", "192.0.2.200"), gateway("192.0.2.10", "192.0.2.200"), "on the link itself");
        assert_eq!(world.leaves("b0", "2001:db8:1::7"), gateway("2001:db8::", "2001:db8::ffff"));
        assert_eq!(world.leaves("a1", "198.51.100.7"), Some(Exit::Host { port: "k8s-n1".into() }));
        assert_eq!(world.leaves("a2", "198.51.100.7"), None, "a node without a gateway");
    }

    #[test]
    fn a_translation_of_the_pods_own_gives_the_same_source() {
        let mut world = World::new(&DUAL, &[("shared", None)]);
        world.settings.snat_per_pod = true;
        let Some(Exit::Gateway { source, .. }) = world.leaves("a0", "198.51.100.7") else { panic!("it stays") };
        assert_eq!(source.to_string(), "192.0.2.10");
    }

    /// OVN asks for the longest prefix first, whether of the source or of the destination: where shares have two lengths,
    /// the way out of the smaller one comes before the way into the larger one.
    #[test]
    fn shares_of_two_lengths_hide_the_larger_from_the_smaller() {
        let cluster = ["10.128.0.0/16/23", "10.200.0.0/16/24"];
        let world = World::new(&cluster, &[("shared", Some("10.128.0.0/23")), ("shared", Some("10.200.0.0/24"))]);
        assert!(world.reach("a0", "a1", false).is_some());
        assert_eq!(world.reach("a1", "a0", false), None);
    }
}
