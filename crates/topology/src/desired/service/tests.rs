use std::collections::BTreeMap;

use objects::SliceFacts;
use ovn_schema::{Feature, Features};
use serde_json::{Value, json};

use super::*;
use crate::allocation::Allocator;
use crate::contribution::Aliases;
use crate::maps;
use crate::settings::ClusterSettings;
use crate::store::Store;

/// A cluster of two nodes, `n1` in zone `a` and `n2` in zone `b`, and Services as each test adds them.
pub(super) struct World {
    pub(super) settings: ClusterSettings,
    pub(super) store: Store,
    clock: u32,
}

impl World {
    fn new(cluster: &[&str]) -> Self {
        let cluster = cluster.iter().map(|text| text.parse().unwrap()).collect();
        let mut store = Store::default();
        for (name, zone, last) in [("n1", "a", 1), ("n2", "b", 2)] {
            let hosts = json!([format!("192.0.2.{last}/24"), format!("fd00::{last}/64")]).to_string();
            let node = json!({"metadata": {"name": name, "uid": name, "labels": {"topology.kubernetes.io/zone": zone},
                "annotations": {"k8s.ovn.org/node-chassis-id": format!("c-{name}"), "k8s.ovn.org/host-cidrs": hosts}}});
            store.put_node(NodeFacts::parse(&node.to_string()).unwrap());
        }
        Self { settings: ClusterSettings::new(cluster, vec!["172.30.0.0/16".parse().unwrap()]), store, clock: 0 }
    }

    pub(super) fn v4() -> Self {
        Self::new(&["10.128.0.0/14/23"])
    }

    pub(super) fn dual() -> Self {
        Self::new(&["10.128.0.0/14/23", "fd01::/48/64"])
    }

    pub(super) fn service(&mut self, name: &str, spec: Value) -> &mut Self {
        self.clock += 1;
        let metadata =
            json!({"name": name, "namespace": "d", "uid": name, "creationTimestamp": format!("{:03}", self.clock)});
        let mut status = json!({});
        if let Some(ip) = spec.get("ingress") {
            status = json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
        }
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        self.store.put_service(ServiceFacts::parse(&object.to_string()).unwrap());
        self
    }

    /// Endpoints of port 8080, each as `address@node`, optionally followed by `terminating`, `not-ready`, or the zone of
    /// its hint.
    pub(super) fn slice(&mut self, name: &str, service: &str, endpoints: &[&str]) -> &mut Self {
        let read = |text: &&str| {
            let (place, more) = text.split_once(' ').unwrap_or((text, ""));
            let (address, node) = place.split_once('@').unwrap_or((place, ""));
            let mut endpoint = json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}});
            match more {
                "" => {}
                "terminating" => {
                    endpoint["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
                }
                "not-ready" => endpoint["conditions"] = json!({"ready": false}),
                zone => endpoint["hints"] = json!({"forZones": [{"name": zone}]}),
            }
            endpoint
        };
        let is_v6 = endpoints.first().is_some_and(|first| first.contains("::"));
        let object = json!({"metadata": {"name": name, "namespace": "d", "uid": name,
            "labels": {"kubernetes.io/service-name": service}}, "addressType": if is_v6 { "IPv6" } else { "IPv4" },
            "ports": [{"name": "", "port": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}],
            "endpoints": endpoints.iter().map(read).collect::<Vec<_>>()});
        self.store.put_slice(SliceFacts::parse(&object.to_string()).unwrap());
        self
    }

    pub(super) fn desired_of(&self, name: &str) -> Result<Contribution, Refusal> {
        let allocator = Allocator::new(&self.settings).unwrap();
        let aliases = Aliases::default();
        let inputs = Inputs { settings: &self.settings, store: &self.store, allocator: &allocator, aliases: &aliases };
        desired(&ObjectKey::new("d", name), inputs)
    }

    /// The rows of a Service as text: `name vip → backends`, and `node variable = value`, without the unique prefix of
    /// variables.
    pub(super) fn rows_of(&self, name: &str) -> Vec<String> {
        let made = self.desired_of(name).unwrap();
        let prefix = format!("{}_", variable_prefix(&ObjectKey::new("d", name)));
        let mut told = Vec::new();
        for row in made.rows.iter().filter(|row| row.id.table == "Load_Balancer") {
            let short = row.values["name"].to_string().replace("Service_d/", "");
            for (vip, backends) in row.values.get("vips").iter().flat_map(|vips| vips.pairs()) {
                told.push(format!("{short} {vip} → {backends}"));
            }
        }
        let aliases = Aliases::default();
        let owner = Owner::Cluster;
        let draft = Draft::new(&owner, "", &aliases);
        let nodes: BTreeMap<_, _> =
            self.store.nodes().filter_map(|node| Some((template::row_of(&draft, node)?, node.name.clone()))).collect();
        let mut variables: Vec<String> = Vec::new();
        for member in &made.members {
            if let Some(node) = nodes.get(&member.column.row.uuid) {
                let (key, value) = maps::pair(&member.atom);
                variables.push(format!("{node} {key} = {value}"));
            }
        }
        variables.sort();
        variables.dedup();
        told.sort();
        told.extend(variables);
        told.iter().map(|line| line.replace(&prefix, "")).collect()
    }
}

fn web(more: Value) -> Value {
    let mut spec = json!({"clusterIP": "172.30.0.7", "ports": [{"port": 80}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn a_cluster_ip_is_one_load_balancer() {
    let mut world = World::v4();
    world.service("web", web(json!({}))).slice("one", "web", &["10.128.0.5@n1", "10.128.2.5@n2"]);
    assert_eq!(world.rows_of("web"), ["web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080,10.128.2.5:8080"]);
    let made = world.desired_of("web").unwrap();
    let options = &made.rows[0].values["options"];
    for (key, value) in [
        ("reject", "true"),
        ("event", "false"),
        ("skip_snat", "false"),
        ("neighbor_responder", "none"),
        ("hairpin_snat_ip", "169.254.169.5 fd69::5"),
    ] {
        assert_eq!(options.get_str(key).as_deref(), Some(value));
    }
    assert_eq!((options.len(), made.members.len(), made.refusal), (5, 1, None));
    assert_eq!(made.rows[0].values["external_ids"].get_str("k8s.ovn.org/owner").as_deref(), Some("d/web"));
}

#[test]
fn ready_endpoints_are_preferred_to_terminating_ones() {
    type Case<'a> = (&'a [&'a str], &'a [&'a str], bool, &'a str);
    let cases: [Case<'_>; 7] = [
        (&[], &[], false, ""),
        (&["10.128.0.5", "10.128.0.6 not-ready"], &[], false, "10.128.0.5:8080"),
        (&["10.128.0.5", "10.128.0.6 terminating"], &[], false, "10.128.0.5:8080"),
        (&["10.128.0.5 not-ready", "10.128.0.6 terminating"], &[], false, "10.128.0.6:8080"),
        (&["10.128.0.5 not-ready", "10.128.0.6"], &[], true, "10.128.0.5:8080,10.128.0.6:8080"),
        // In overlapping slices, in any order: the better state counts.
        (&["10.128.0.6", "10.128.0.5"], &["10.128.0.5 terminating"], false, "10.128.0.5:8080,10.128.0.6:8080"),
        // Of another family than the cluster's.
        (&["10.128.0.5"], &["fd01::5"], false, "10.128.0.5:8080"),
    ];
    for (one, two, publish, backends) in cases {
        let mut world = World::v4();
        world.slice("one", "web", one).slice("two", "web", two);
        world.service("web", web(json!({"publishNotReadyAddresses": publish})));
        assert_eq!(world.rows_of("web"), [format!("web_TCP_cluster 172.30.0.7:80 → {backends}")], "{one:?} {two:?}");
    }
}

#[test]
fn protocols_names_families_and_affinity() {
    let mut world = World::dual();
    world.service(
        "web",
        json!({"clusterIPs": ["172.30.0.7", "fd02::7"], "sessionAffinity": "ClientIP", "externalIPs": ["192.0.2.100"],
            "ports": [{"port": 80}, {"name": "dns", "port": 80, "protocol": "UDP"}, {"name": "odd", "port": 81}]}),
    );
    world.slice("one", "web", &["10.128.0.5@n1"]).slice("six", "web", &["fd01::5@n1"]);
    assert_eq!(
        world.rows_of("web"),
        [
            "web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080",
            "web_TCP_cluster 172.30.0.7:81 → ",
            "web_TCP_cluster 192.0.2.100:80 → 10.128.0.5:8080",
            "web_TCP_cluster 192.0.2.100:81 → ",
            "web_TCP_cluster [fd02::7]:80 → [fd01::5]:8080",
            "web_TCP_cluster [fd02::7]:81 → ",
            "web_UDP_cluster 172.30.0.7:80 → 10.128.0.5:53",
            "web_UDP_cluster 192.0.2.100:80 → 10.128.0.5:53",
            "web_UDP_cluster [fd02::7]:80 → [fd01::5]:53",
        ]
    );
    let made = world.desired_of("web").unwrap();
    let option = |row: usize, key: &str| made.rows[row].values["options"].get_str(key);
    assert_eq!(made.rows[0].values["selection_fields"].len(), 2);
    assert_eq!((option(0, "affinity_timeout"), option(0, "ct_flush")), (None, None));
    assert_eq!(option(1, "ct_flush").as_deref(), Some("true"));
}

#[test]
fn a_node_port_is_one_load_balancer_for_all_nodes() {
    let mut world = World::v4();
    world.service("web", web(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]})));
    world.slice("one", "web", &["10.128.0.5@n1"]);
    assert_eq!(
        world.rows_of("web"),
        [
            "web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080",
            "web_TCP_node_router+switch_template_IPv4 ^NODEIP_IPv4_0:30080 → 10.128.0.5:8080",
        ]
    );
    let made = world.desired_of("web").unwrap();
    let options = &made.rows[1].values["options"];
    assert_eq!(options.get_str("template").as_deref(), Some("true"));
    assert_eq!(options.get_str("address-family").as_deref(), Some("ipv4"));
}

#[test]
fn external_traffic_policy_local_uses_endpoints_of_the_node() {
    let mut world = World::v4();
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ingress": "192.0.2.100",
        "ports": [{"port": 80, "nodePort": 30080}]});
    world.service("web", web(spec)).slice("one", "web", &["10.128.0.5@n1", "10.128.0.6@n1 terminating"]);
    assert_eq!(
        world.rows_of("web"),
        [
            "web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080",
            "web_TCP_node_router_local_template_IPv4 ^NODEIP_IPv4_0:30080 → ^TCP_80_IPv4_LOCAL",
            "web_TCP_node_router_local_template_IPv4 ^TCP_80_IPv4_LOCAL_192_0_2_100:80 → ^TCP_80_IPv4_LOCAL",
            "web_TCP_node_switch 192.0.2.100:80 → 10.128.0.5:8080",
            "web_TCP_node_switch_template_IPv4 ^HOSTLOCAL_IPv4:30080 → ^TCP_80_IPv4_LOCAL",
            "web_TCP_node_switch_template_IPv4 ^NODEIP_IPv4_0:30080 → 10.128.0.5:8080",
            "n1 TCP_80_IPv4_LOCAL = 10.128.0.5:8080",
            "n1 TCP_80_IPv4_LOCAL_192_0_2_100 = 192.0.2.100",
            // No endpoint there: bridges drop this address.
            "n2 TCP_80_IPv4_LOCAL = 169.254.169.6:80",
            "n2 TCP_80_IPv4_LOCAL_192_0_2_100 = 192.0.2.100",
        ]
    );
    let made = world.desired_of("web").unwrap();
    for row in &made.rows {
        let local = row.values["name"].to_string().contains("router_local");
        assert_eq!(row.values["options"].get_str("skip_snat"), Some(local.to_string()));
    }
}

#[test]
fn internal_traffic_policy_local_rejects_on_nodes_without_endpoints() {
    let mut world = World::dual();
    let spec = json!({"clusterIPs": ["172.30.0.7", "fd02::7"], "internalTrafficPolicy": "Local"});
    world.service("web", web(spec)).slice("one", "web", &["fd01::5@n2"]);
    assert_eq!(
        world.rows_of("web"),
        [
            // No endpoint at all: no difference between nodes.
            "web_TCP_cluster 172.30.0.7:80 → ",
            "web_TCP_node_router+switch_template_IPv6 ^TCP_80_IPv6_LOCAL_fd02__7:80 → ^TCP_80_IPv6_LOCAL",
            "web_TCP_node_router+switch_template_IPv6 ^TCP_80_IPv6_LOCAL_fd02__7_NONE:80 → ",
            "n1 TCP_80_IPv6_LOCAL = [fd69::6]:80",
            "n1 TCP_80_IPv6_LOCAL_fd02__7 = ::",
            "n1 TCP_80_IPv6_LOCAL_fd02__7_NONE = fd02::7",
            "n2 TCP_80_IPv6_LOCAL = [fd01::5]:8080",
            "n2 TCP_80_IPv6_LOCAL_fd02__7 = fd02::7",
            "n2 TCP_80_IPv6_LOCAL_fd02__7_NONE = ::",
        ]
    );
}

#[test]
fn a_gateway_router_reaches_its_own_host_by_another_address() {
    let mut world = World::v4();
    world.service("web", web(json!({}))).slice("one", "web", &["192.0.2.1@n1", "198.51.100.9"]);
    assert_eq!(
        world.rows_of("web"),
        [
            "web_TCP_node_router_template_IPv4 ^TCP_80_IPv4_ALL_ROUTER_172_30_0_7:80 → ^TCP_80_IPv4_ALL_ROUTER",
            "web_TCP_node_switch 172.30.0.7:80 → 192.0.2.1:8080,198.51.100.9:8080",
            "n1 TCP_80_IPv4_ALL_ROUTER = 169.254.169.2:8080,198.51.100.9:8080",
            "n1 TCP_80_IPv4_ALL_ROUTER_172_30_0_7 = 172.30.0.7",
            "n2 TCP_80_IPv4_ALL_ROUTER = 192.0.2.1:8080,198.51.100.9:8080",
            "n2 TCP_80_IPv4_ALL_ROUTER_172_30_0_7 = 172.30.0.7",
        ]
    );
}

#[test]
fn topology_hints_select_endpoints_of_the_zone() {
    let mut world = World::v4();
    world.service("web", web(json!({}))).slice("one", "web", &["10.128.0.5@n1 a", "10.128.2.5@n2 c"]);
    assert_eq!(
        world.rows_of("web"),
        [
            "web_TCP_node_router+switch_template_IPv4 ^TCP_80_IPv4_NEAR_172_30_0_7:80 → ^TCP_80_IPv4_NEAR",
            "n1 TCP_80_IPv4_NEAR = 10.128.0.5:8080",
            "n1 TCP_80_IPv4_NEAR_172_30_0_7 = 172.30.0.7",
            // No hint for zone b: all endpoints.
            "n2 TCP_80_IPv4_NEAR = 10.128.0.5:8080,10.128.2.5:8080",
            "n2 TCP_80_IPv4_NEAR_172_30_0_7 = 172.30.0.7",
        ]
    );
    // One endpoint without a hint: hints are ignored.
    world.slice("two", "web", &["10.128.0.6@n1"]);
    assert_eq!(world.rows_of("web").len(), 1);
}

#[test]
fn an_invalid_service_is_parked_and_names_the_field() {
    let mut world = World::v4();
    world.service("web", web(json!({"ports": [{"port": 70_000}]})));
    let refusal = world.desired_of("web").unwrap_err();
    assert!(refusal.message.starts_with("spec.ports[0].port: 70000 is not a port"), "{refusal}");
    world.service("web", web(json!({}))).slice("one", "web", &["10.128.0.5"]);
    assert_eq!(world.rows_of("web").len(), 1);
    world.slice("two", "web", &["10.128.0.6", "fd01::1"]);
    let refusal = world.desired_of("web").unwrap_err();
    assert!(refusal.message.starts_with("EndpointSlice two: endpoints[1].addresses"), "{refusal}");
}

#[test]
fn the_older_of_two_claimants_has_the_address() {
    let mut world = World::v4();
    let spec = |ip: &str| {
        json!({"type": "NodePort", "clusterIP": ip, "externalIPs": ["192.0.2.100"],
            "ports": [{"port": 80, "nodePort": 30080}]})
    };
    world.service("old", spec("172.30.0.7")).service("new", spec("172.30.0.8"));
    assert_eq!(world.rows_of("old").len(), 3);
    assert_eq!(world.rows_of("new"), ["new_TCP_cluster 172.30.0.8:80 → "]);
    let refusal = world.desired_of("new").unwrap().refusal.unwrap();
    assert!(refusal.message.starts_with("spec.externalIPs: 192.0.2.100:80/TCP is taken by Service d/old"), "{refusal}");
    // An invalid one keeps its claims.
    let mut bad = spec("172.30.0.7");
    bad["type"] = json!("Odd");
    world.clock = 0;
    world.service("old", bad);
    assert_eq!(world.rows_of("new").len(), 1);
    world.store.remove_service(&ObjectKey::new("d", "old"), None);
    assert_eq!(world.rows_of("new").len(), 3);
}

/// The ACLs of a Service's source ranges, as text.
fn guards(world: &World, name: &str) -> Vec<String> {
    let rows = world.desired_of(name).unwrap().rows;
    let rules = rows.iter().filter(|row| row.id.table == "ACL");
    let told = |row: &crate::contribution::DesiredRow| {
        let word = |column: &str| row.values[column].to_string();
        assert_eq!(word("direction"), "from-lport");
        format!("{} {} {}", word("priority"), word("action"), word("match"))
    };
    rules.map(told).collect()
}

#[test]
fn source_ranges_limit_clients_of_load_balancer_addresses() {
    let mut world = World::dual();
    let spec = |ranges: Value| {
        json!({"type": "LoadBalancer", "clusterIPs": ["172.30.0.7", "fd02::7"], "externalIPs": ["192.0.2.101"],
            "ports": [{"port": 80, "name": "a", "nodePort": 30080}, {"port": 443, "name": "b"},
                {"port": 80, "name": "c", "protocol": "UDP"}],
            "ingress": "192.0.2.100", "loadBalancerSourceRanges": ranges})
    };
    world.service("web", spec(json!(["198.51.100.0/24", "203.0.113.7/32", "2001:db8::/64"])));
    let tcp = "ip4.dst == 192.0.2.100 && tcp.dst == {80, 443}";
    let udp = "ip4.dst == 192.0.2.100 && udp.dst == {80}";
    let from = "ip4.src == {198.51.100.0/24, 203.0.113.7/32}";
    assert_eq!(
        guards(&world, "web"),
        [
            format!("1001 allow {tcp} && {from}"),
            format!("1000 drop {tcp}"),
            format!("1001 allow {udp} && {from}"),
            format!("1000 drop {udp}"),
        ]
    );
    // No range of this family.
    world.service("web", spec(json!(["2001:db8::/64"])));
    assert_eq!(guards(&world, "web"), [format!("1000 drop {tcp}"), format!("1000 drop {udp}")]);
    for everybody in [json!([]), json!(["198.51.100.0/24", "0.0.0.0/0"])] {
        world.service("web", spec(everybody));
        assert_eq!(guards(&world, "web"), Vec::<String>::new());
    }
    world.service("web", spec(json!([])));
    assert_eq!(guards(&world, "web"), Vec::<String>::new());
    // The ranges of the older holder apply.
    world.service("late", spec(json!(["198.51.100.0/24"])));
    assert_eq!(guards(&world, "late"), Vec::<String>::new());
    // Source ranges apply to type LoadBalancer only.
    let mut other = spec(json!(["198.51.100.0/24"]));
    other["type"] = json!("NodePort");
    world.service("web", other);
    assert_eq!(guards(&world, "web"), Vec::<String>::new());
}

#[test]
fn reserved_and_unknown_addresses_are_refused() {
    let mut world = World::v4();
    world.settings.services.push("172.31.0.0/16".parse().unwrap());
    let desired_of = |world: &mut World, cluster: &str, external: &str| {
        world.service("web", web(json!({"clusterIP": cluster, "externalIPs": [external]})));
        let made = world.desired_of("web").unwrap();
        let vips: usize = made.rows.iter().map(|row| row.values["vips"].pairs().len()).sum();
        (vips, made.refusal.map(|refusal| (refusal.reason, refusal.message)))
    };
    // Several networks of one family.
    assert_eq!(desired_of(&mut world, "172.30.0.7", "192.0.2.100"), (2, None));
    assert_eq!(desired_of(&mut world, "172.31.0.7", "192.0.2.100"), (2, None));
    for (cluster, external, vips, reason, named) in [
        ("10.128.0.9", "192.0.2.100", 1, "AddressRefused", "spec.clusterIPs: 10.128.0.9 is in 10.128.0.0/14"),
        ("172.30.0.7", "10.129.1.1", 1, "AddressRefused", "spec.externalIPs: 10.129.1.1 is in 10.128.0.0/14"),
        ("172.30.0.7", "100.64.0.2", 1, "AddressRefused", "spec.externalIPs: 100.64.0.2 is in 100.64.0.0/16"),
        ("172.30.0.7", "169.254.169.2", 1, "AddressRefused", "spec.externalIPs: 169.254.169.2 is in 169.254.169.0/29"),
        ("172.30.0.7", "192.0.2.1", 1, "AddressRefused", "spec.externalIPs: 192.0.2.1 is a node's own address"),
        ("172.30.0.7", "172.30.0.10", 1, "AddressRefused", "spec.externalIPs: 172.30.0.10 is in 172.30.0.0/16"),
        ("10.96.0.9", "192.0.2.100", 2, "AddressUnknown", "spec.clusterIPs: 10.96.0.9 is in none"),
    ] {
        let (served, refusal) = desired_of(&mut world, cluster, external);
        let (why, message) = refusal.unwrap();
        assert_eq!((served, why), (vips, reason), "{message}");
        assert!(message.starts_with(named), "{message}");
    }
}

#[test]
fn five_thousand_endpoints_are_one_address() {
    let mut world = World::v4();
    let place = |n: usize| format!("10.{}.{}.{}@n{}", 128 + n / 60_000, n / 250, n % 250 + 1, n % 2 + 1);
    let affinity_slots: Vec<String> = (0..5000).map(place).collect();
    // In slices of a hundred, and then in one.
    for (number, slice) in affinity_slots.chunks(100).enumerate() {
        world.slice(&format!("part-{number}"), "web", &slice.iter().map(String::as_str).collect::<Vec<_>>());
    }
    world.slice("whole", "web", &affinity_slots.iter().map(String::as_str).collect::<Vec<_>>());
    world.service("web", web(json!({})));
    let told = world.rows_of("web");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].matches(":8080").count(), 5000);
}

#[test]
fn types_families_and_slices_change() {
    let mut world = World::dual();
    world.slice("one", "web", &["10.128.0.5@n1"]).slice("six", "web", &["fd01::5@n1"]);
    // No rows before the Service exists; slices of other Services do not count.
    assert!(world.desired_of("web").unwrap().rows.is_empty());
    world.slice("other", "db", &["10.128.0.9@n1"]);
    let cluster = "web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080";
    let node = "web_TCP_node_router+switch_template_IPv4 ^NODEIP_IPv4_0:30080 → 10.128.0.5:8080";
    let ingress = "web_TCP_cluster 192.0.2.100:80 → 10.128.0.5:8080";
    let six = "web_TCP_cluster [fd02::7]:80 → [fd01::5]:8080";
    let port = json!([{"port": 80, "nodePort": 30080}]);
    for (more, told) in [
        (json!({}), vec![cluster]),
        (json!({"type": "NodePort", "ports": port}), vec![cluster, node]),
        (json!({"type": "LoadBalancer", "ports": port, "ingress": "192.0.2.100"}), vec![cluster, ingress, node]),
        // Without node ports (`allocateLoadBalancerNodePorts: false`).
        (json!({"type": "LoadBalancer", "ingress": "192.0.2.100"}), vec![cluster, ingress]),
        (json!({"clusterIPs": ["172.30.0.7", "fd02::7"]}), vec![cluster, six]),
        (json!({"clusterIPs": ["fd02::7"]}), vec![six]),
        (json!({"type": "ExternalName", "externalName": "example.com"}), vec![]),
        (json!({"clusterIP": "None"}), vec![]),
        (json!({}), vec![cluster]),
    ] {
        assert_eq!(world.service("web", web(more.clone())).rows_of("web"), told, "{more}");
    }
    // Slices are split and merged: only their union counts.
    let two = "web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080,10.128.2.5:8080";
    world.slice("one", "web", &["10.128.0.5@n1", "10.128.2.5@n2"]);
    assert_eq!(world.rows_of("web"), [two]);
    world.slice("two", "web", &["10.128.2.5@n2"]);
    assert_eq!(world.rows_of("web"), [two]);
    world.slice("one", "web", &["10.128.0.5@n1"]);
    assert_eq!(world.rows_of("web"), [two]);
    // A slice moves to another Service.
    world.slice("two", "db", &["10.128.2.5@n2"]);
    assert_eq!(world.rows_of("web"), [cluster]);
    // The next claimant gets an address when its holder is deleted.
    world.service("new", web(json!({})));
    assert_eq!(world.rows_of("new"), Vec::<String>::new());
    world.store.remove_service(&ObjectKey::new("d", "web"), None);
    assert_eq!(world.rows_of("new"), ["new_TCP_cluster 172.30.0.7:80 → "]);
}

#[test]
fn an_older_server_gets_the_features_it_has() {
    let mut world = World::v4();
    world.settings.features = Features::from_iter([Feature::LoadBalancerTemplates, Feature::SessionAffinity]);
    let spec = json!({"type": "NodePort", "sessionAffinity": "ClientIP", "ports": [{"port": 80, "nodePort": 30080}]});
    world.service("web", web(spec)).slice("one", "web", &["10.128.0.5@n1"]);
    assert_eq!(world.rows_of("web"), ["web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080"]);
    let refusal = world.desired_of("web").unwrap().refusal.unwrap();
    assert!(refusal.message.starts_with("spec.ports.nodePort: "), "{refusal}");
}
