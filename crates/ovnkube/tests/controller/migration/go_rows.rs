//! Writes northbound rows as OVN-Kubernetes (Go) v1.3.0 does: its names, `external_ids` and shared bands, for the objects
//! of the API (central mode, shared gateway, IPv4).
//!
//! Like the Go controller it looks each row up (by name, by primary ID or by content), updates the columns that it knows
//! and leaves the others, and creates missing rows; it removes stale load balancers of Services.
#![allow(clippy::needless_pass_by_value, reason = "rows are literals at the call")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::rows::{tables, text};

pub(crate) const GO: &str = "default-network-controller";
pub(crate) const POLICED: [&str; 9] =
    ["arp", "arp-resolve", "bfd", "event-elb", "icmp4-error", "icmp6-error", "reject", "svc-monitor", "tcp-reset"];
const CLUSTER: &str = "10.128.0.0/14";
const ROUTER: &str = "ovn_cluster_router";

type Object = Map<String, Value>;

impl Cluster {
    /// Writes missing and differing rows.
    pub(crate) fn sync_go(&self) {
        let mut writer = Writer::new(self);
        let copp = writer.cluster();
        let nodes = self.get(&["nodes"])["items"].as_array().unwrap().iter().map(Node::read).collect::<Vec<_>>();
        for node in &nodes {
            writer.node(node, &copp);
        }
        writer.pods(&self.get(&["pods", "-A"]));
        let slices = self.get(&["endpointslices", "-A"]);
        writer.services(&self.get(&["services", "-A"]), &slices, &nodes);
        writer.policies(&self.get(&["networkpolicies", "-A"]), &self.get(&["pods", "-A"]));
        self.transact(&writer.operations);
    }
}

/// A node, from its annotations.
struct Node {
    name: String,
    id: u32,
    /// The first three octets of its subnet, a /23.
    subnet: String,
    chassis: String,
    address: String,
    mac: String,
    next_hop: String,
}

impl Node {
    fn read(object: &Value) -> Self {
        let annotation = |key: &str| object["metadata"]["annotations"][format!("k8s.ovn.org/{key}")].as_str().unwrap();
        let json = |key: &str| -> Value { serde_json::from_str(annotation(key)).unwrap() };
        let gateway = json("l3-gateway-config")["default"].clone();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let subnet = word(&json("node-subnets")["default"][0]);
        Self {
            name: word(&object["metadata"]["name"]),
            id: annotation("node-id").parse().unwrap(),
            subnet: subnet.rsplit_once('.').unwrap().0.to_owned(),
            chassis: annotation("node-chassis-id").to_owned(),
            address: word(&gateway["ip-addresses"][0]),
            mac: word(&gateway["mac-address"]),
            next_hop: word(&gateway["next-hops"][0]),
        }
    }

    fn host(&self) -> &str {
        self.address.split_once('/').unwrap().0
    }
}

fn map(pairs: &[(&str, &str)]) -> Value {
    json!(["map", pairs])
}

fn set(items: impl IntoIterator<Item = Value>) -> Value {
    json!(["set", items.into_iter().collect::<Vec<_>>()])
}

/// The `external_ids` of a row: owner, keys, and the primary ID made of them.
fn ids(kind: &str, keys: &[(&str, &str)]) -> Value {
    let values: Vec<&str> = keys.iter().map(|(_, value)| *value).collect();
    let id = format!("{GO}:{kind}:{}", values.join(":"));
    let own = [("k8s.ovn.org/owner-controller", GO), ("k8s.ovn.org/owner-type", kind), ("k8s.ovn.org/id", id.as_str())];
    let pairs: Vec<(&str, &str)> = own.into_iter().chain(keys.iter().copied()).collect();
    map(&pairs)
}

/// `a` and a 64-bit FNV-1a hash: how the Go controller names sets and groups.
fn hashed(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("a{hash}")
}

fn mac_of(address: &str) -> String {
    let bytes: Vec<String> = address.split('.').map(|byte| format!("{:02x}", byte.parse::<u8>().unwrap())).collect();
    format!("0a:58:{}", bytes.join(":"))
}

struct Writer {
    rows: BTreeMap<&'static str, Vec<Object>>,
    operations: Vec<Value>,
    /// Rows of this transaction, by table and name.
    made: BTreeMap<(&'static str, String), Value>,
    next: usize,
}

impl Writer {
    fn new(cluster: &Cluster) -> Self {
        let rows = tables().map(|table| (table, cluster.raw(table))).collect();
        Self { rows, operations: Vec::new(), made: BTreeMap::new(), next: 0 }
    }

    /// Updates the first matching row, or inserts one.
    fn put(&mut self, table: &'static str, found: impl Fn(&Object) -> bool, row: Value) -> Value {
        if let Some(found) = self.rows[table].iter().find(|row| found(row)) {
            let uuid = json!(["uuid", text(&found["_uuid"])]);
            self.operations.push(json!({"op": "update", "table": table, "where": [["_uuid", "==", uuid]], "row": row}));
            return uuid;
        }
        self.next += 1;
        let name = format!("row{}", self.next);
        self.operations.push(json!({"op": "insert", "table": table, "uuid-name": name, "row": row}));
        json!(["named-uuid", name])
    }

    fn named(&mut self, table: &'static str, name: &str, mut row: Value) -> Value {
        row["name"] = json!(name);
        let made = self.put(table, |row| row["name"] == name, row);
        self.made.insert((table, name.to_owned()), made.clone());
        made
    }

    /// Adds a row to a reference set of its parent.
    fn child(&mut self, parent: (&'static str, &str), column: &str, child: &Value) {
        let parent_row = self.made[&(parent.0, parent.1.to_owned())].clone();
        self.operations.push(json!({"op": "mutate", "table": parent.0, "where": [["_uuid", "==", parent_row]],
            "mutations": [[column, "insert", set([child.clone()])]]}));
    }

    /// The UUIDs in a reference set of a named row.
    fn of(&self, parent: (&'static str, &str), column: &str) -> BTreeSet<String> {
        let row = self.rows[parent.0].iter().find(|row| row["name"] == parent.1);
        row.map(|row| text(&row[column]).split(' ').map(String::from).collect()).unwrap_or_default()
    }

    /// A row without a name, identified by some columns.
    fn unnamed(&mut self, parent: (&'static str, &str), column: &str, table: &'static str, keys: &[&str], row: Value) {
        let known = self.of(parent, column);
        let same = |found: &Object| {
            known.contains(&text(&found["_uuid"])) && keys.iter().all(|key| text(&found[*key]) == text(&row[*key]))
        };
        let child = self.put(table, same, row.clone());
        self.child(parent, column, &child);
    }

    fn port(&mut self, switch: &str, name: &str, row: Value) {
        let port = self.named("Logical_Switch_Port", name, row);
        self.child(("Logical_Switch", switch), "ports", &port);
    }

    fn router_port(&mut self, router: &str, name: &str, mac: &str, network: &str, options: Value) {
        let row = json!({"mac": mac, "networks": set([json!(network)]), "options": options});
        let port = self.named("Logical_Router_Port", name, row);
        self.child(("Logical_Router", router), "ports", &port);
    }

    fn peer(&mut self, switch: &str, name: &str, peer: &str, more: &[(&str, &str)]) {
        let options: Vec<_> = [("router-port", peer)].into_iter().chain(more.iter().copied()).collect();
        let row = json!({"type": "router", "addresses": set([json!("router")]), "options": map(&options)});
        self.port(switch, name, row);
    }

    fn rule(
        &mut self,
        parent: (&'static str, &str),
        marks: Value,
        direction: &str,
        priority: u32,
        action: &str,
        matching: &str,
    ) {
        let id = text(&marks);
        let id = id.split(' ').find(|pair| pair.starts_with("k8s.ovn.org/id=")).unwrap().to_owned();
        let options = if direction == "from-lport" { map(&[("apply-after-lb", "true")]) } else { map(&[]) };
        let row = json!({"direction": direction, "priority": priority, "action": action, "match": matching, "tier": 2,
            "meter": "acl-logging", "options": options, "external_ids": marks});
        let found = |row: &Object| text(&row["external_ids"]).split(' ').any(|pair| pair == id);
        let rule = self.put("ACL", found, row);
        self.child(parent, "acls", &rule);
    }

    /// Meters share bands with the same contents.
    fn meters(&mut self) -> Value {
        let band = |writer: &mut Self, rate: i64| {
            let same = |row: &Object| row["rate"] == rate && text(&row["external_ids"]).is_empty();
            writer.put("Meter_Band", same, json!({"action": "drop", "rate": rate}))
        };
        let shared = band(self, 25);
        let own = band(self, 20);
        let limiter = |name: &str| format!("{name}-rate-limiter");
        for name in POLICED {
            let row = json!({"unit": "pktps", "fair": true, "bands": set([shared.clone()])});
            self.named("Meter", &limiter(name), row);
        }
        self.named("Meter", "acl-logging", json!({"unit": "pktps", "fair": true, "bands": set([own])}));
        let meters: Vec<(&str, String)> = POLICED.iter().map(|name| (*name, limiter(name))).collect();
        self.named("Copp", "ovnkube-default", json!({"meters": ["map", meters]}))
    }

    fn cluster(&mut self) -> Value {
        let copp = self.meters();
        let row = json!({"copp": copp, "options": map(&[("always_learn_from_arp_request", "false")]),
            "external_ids": map(&[("k8s-cluster-router", "yes")])});
        self.named("Logical_Router", ROUTER, row);
        self.named("Logical_Switch", "join", json!({}));
        self.router_port(ROUTER, "rtoj-ovn_cluster_router", &mac_of("100.64.0.1"), "100.64.0.1/16", map(&[]));
        self.peer("join", "jtor-ovn_cluster_router", "rtoj-ovn_cluster_router", &[]);
        for group in ["clusterLBGroup", "clusterSwitchLBGroup", "clusterRouterLBGroup"] {
            self.named("Load_Balancer_Group", group, json!({}));
        }
        for group in ["clusterPortGroup", "clusterRtrPortGroup"] {
            let marks = ids("Cluster", &[("k8s.ovn.org/name", group)]);
            self.named("Port_Group", group, json!({"external_ids": marks}));
        }
        for (direction, word) in [("to-lport", "Ingress"), ("from-lport", "Egress")] {
            let marks = ids("NetpolDefault", &[("k8s.ovn.org/name", "allow-hairpinning"), ("direction", word)]);
            let group = ("Port_Group", "clusterPortGroup");
            self.rule(group, marks, direction, 1001, "allow-related", "ip4.src == 169.254.169.5");
        }
        copp
    }

    fn node(&mut self, node: &Node, copp: &Value) {
        let Node { name, subnet, .. } = node;
        let groups = |writer: &Self, names: [&str; 2]| {
            set(names.map(|name| writer.made[&("Load_Balancer_Group", name.to_owned())].clone()))
        };
        let held = groups(self, ["clusterLBGroup", "clusterSwitchLBGroup"]);
        let config = map(&[("subnet", &format!("{subnet}.0/23"))]);
        self.named("Logical_Switch", name, json!({"other_config": config, "load_balancer_group": held}));
        let (inner, gateway) = (format!("rtos-{name}"), format!("GR_{name}"));
        let mtu = map(&[("gateway_mtu", "1400")]);
        self.router_port(ROUTER, &inner, &mac_of(&format!("{subnet}.1")), &format!("{subnet}.1/23"), mtu.clone());
        let chassis = format!("{inner}-{}", node.chassis);
        let row = json!({"chassis_name": node.chassis, "priority": 1});
        let row = self.named("Gateway_Chassis", &chassis, row);
        self.child(("Logical_Router_Port", &inner), "gateway_chassis", &row);
        self.peer(name, &format!("stor-{name}"), &inner, &[]);
        let management = format!("{subnet}.2");
        let addresses = set([json!(format!("{} {management}", mac_of(&management)))]);
        self.port(name, &format!("k8s-{name}"), json!({"addresses": addresses}));
        let port = self.made[&("Logical_Switch_Port", format!("k8s-{name}"))].clone();
        self.child(("Port_Group", "clusterPortGroup"), "ports", &port);
        let marks = ids("NetpolNode", &[("k8s.ovn.org/name", name), ("ip", &management)]);
        let matching = format!("ip4.src=={management}");
        self.rule(("Logical_Switch", name), marks, "to-lport", 1001, "allow-related", &matching);
        let held = groups(self, ["clusterLBGroup", "clusterRouterLBGroup"]);
        self.gateway(node, &gateway, copp, &held, &mtu);
        let policy = json!({"priority": 1004, "action": "reroute", "nexthops": set([json!(management)]),
            "match": format!("inport == \"{inner}\" && ip4.dst == {} /* {name} */", node.host())});
        self.unnamed(("Logical_Router", ROUTER), "policies", "Logical_Router_Policy", &["priority", "match"], policy);
    }

    fn gateway(&mut self, node: &Node, router: &str, copp: &Value, groups: &Value, mtu: &Value) {
        let name = &node.name;
        let options = map(&[
            ("lb_force_snat_ip", "router_ip"),
            ("snat-ct-zone", "0"),
            ("always_learn_from_arp_request", "false"),
            ("dynamic_neigh_routers", "true"),
            ("chassis", &node.chassis),
            ("mac_binding_age_threshold", "300"),
        ]);
        let marks = map(&[("physical_ip", node.host()), ("physical_ips", node.host())]);
        let row = json!({"options": options, "copp": copp, "load_balancer_group": groups, "external_ids": marks});
        self.named("Logical_Router", router, row);
        let join = format!("100.64.0.{}", node.id);
        let (to_join, out) = (format!("rtoj-{router}"), format!("rtoe-{router}"));
        self.router_port(router, &to_join, &mac_of(&join), &format!("{join}/16"), mtu.clone());
        self.peer("join", &format!("jtor-{router}"), &to_join, &[]);
        self.router_port(router, &out, &node.mac, &node.address, map(&[]));
        let external = format!("ext_{name}");
        self.named("Logical_Switch", &external, json!({}));
        let more = [("nat-addresses", "router"), ("exclude-lb-vips-from-garp", "true")];
        self.peer(&external, &format!("etor-{router}"), &out, &more);
        let localnet = json!({"type": "localnet", "addresses": set([json!("unknown")]),
            "options": map(&[("network_name", "physnet")])});
        self.port(&external, &format!("br-ex_{name}"), localnet);
        let binding = json!({"logical_port": out, "ip": "169.254.169.4", "mac": mac_of("169.254.169.4"),
            "override_dynamic_mac": true});
        let same = |row: &Object| row["logical_port"] == out.as_str() && row["ip"] == "169.254.169.4";
        self.put("Static_MAC_Binding", same, binding);
        let pods = format!("{}.0/23", node.subnet);
        let routes = ("Logical_Router_Static_Route", ["ip_prefix", "nexthop", "policy"]);
        for (at, prefix, hop, port, policy) in [
            (router, CLUSTER, "100.64.0.1", None, None),
            (router, "169.254.169.0/29", "169.254.169.4", Some(&out), None),
            (router, "0.0.0.0/0", node.next_hop.as_str(), Some(&out), None),
            (ROUTER, join.as_str(), join.as_str(), None, None),
            (ROUTER, pods.as_str(), join.as_str(), None, Some("src-ip")),
        ] {
            let row = json!({"ip_prefix": prefix, "nexthop": hop, "policy": set(policy.map(|policy| json!(policy))),
                "output_port": set(port.map(|port| json!(port)))});
            self.unnamed(("Logical_Router", at), "static_routes", routes.0, &routes.1, row);
        }
        for inside in [CLUSTER, join.as_str()] {
            let row = json!({"type": "snat", "external_ip": node.host(), "logical_ip": inside,
                "external_port_range": "32768-60999"});
            self.unnamed(("Logical_Router", router), "nat", "NAT", &["type", "external_ip", "logical_ip"], row);
        }
    }

    fn pods(&mut self, pods: &Value) {
        let mut namespaces: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for pod in pods["items"].as_array().unwrap() {
            let word = |field: &str| pod["metadata"][field].as_str().unwrap();
            let (namespace, name) = (word("namespace"), word("name"));
            let (address, mac) = address_of(pod);
            let words = set([json!(format!("{mac} {address}"))]);
            let node = pod["spec"]["nodeName"].as_str().unwrap();
            let options = map(&[("iface-id-ver", word("uid")), ("requested-chassis", node)]);
            let marks = map(&[("namespace", namespace), ("pod", "true")]);
            let row = json!({"addresses": words, "port_security": words, "options": options, "external_ids": marks});
            self.port(node, &format!("{namespace}_{name}"), row);
            namespaces.entry(namespace.to_owned()).or_default().push(json!(address));
        }
        for (namespace, addresses) in namespaces {
            let marks = ids("Namespace", &[("k8s.ovn.org/name", &namespace), ("ip-family", "v4")]);
            let row = json!({"addresses": set(addresses), "external_ids": marks});
            self.named("Address_Set", &hashed(&format!("{GO}:Namespace:{namespace}:v4")), row);
        }
    }

    fn services(&mut self, services: &Value, slices: &Value, nodes: &[Node]) {
        let mut wanted = BTreeSet::new();
        for service in services["items"].as_array().unwrap() {
            let word = |field: &str| service["metadata"][field].as_str().unwrap();
            let key = format!("{}/{}", word("namespace"), word("name"));
            let of = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == word("name");
            let slices: Vec<&Value> = slices["items"].as_array().unwrap().iter().filter(of).collect();
            for port in service["spec"]["ports"].as_array().unwrap() {
                let protocol = port["protocol"].as_str().unwrap();
                let mut backends = Vec::new();
                for slice in &slices {
                    let target = slice["ports"][0]["port"].as_u64().unwrap();
                    for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                        backends.push(format!("{}:{target}", endpoint["addresses"][0].as_str().unwrap()));
                    }
                }
                let backends = backends.join(",");
                let vip = format!("{}:{}", service["spec"]["clusterIP"].as_str().unwrap(), port["port"]);
                let name = format!("Service_{key}_{protocol}_cluster");
                let balancer = self.balancer(&name, &key, protocol, &vip, &backends);
                self.child(("Load_Balancer_Group", "clusterLBGroup"), "load_balancer", &balancer);
                wanted.insert(name);
                for node in nodes.iter().filter(|_| port["nodePort"].is_u64()) {
                    let name = format!("Service_{key}_{protocol}_node_router+switch_{}", node.name);
                    let vip = format!("{}:{}", node.host(), port["nodePort"]);
                    let balancer = self.balancer(&name, &key, protocol, &vip, &backends);
                    self.child(("Logical_Router", &format!("GR_{}", node.name)), "load_balancer", &balancer);
                    self.child(("Logical_Switch", &node.name), "load_balancer", &balancer);
                    wanted.insert(name);
                }
            }
        }
        let of_services = |row: &&Object| text(&row["external_ids"]).contains("k8s.ovn.org/kind=Service");
        let stale =
            self.rows["Load_Balancer"].iter().filter(of_services).filter(|row| !wanted.contains(&text(&row["name"])));
        let stale: Vec<Value> = stale.map(|row| json!(["uuid", text(&row["_uuid"])])).collect();
        for uuid in stale {
            self.operations.push(json!({"op": "delete", "table": "Load_Balancer", "where": [["_uuid", "==", uuid]]}));
        }
    }

    fn balancer(&mut self, name: &str, service: &str, protocol: &str, vip: &str, backends: &str) -> Value {
        let options = [
            ("reject", "true"),
            ("event", "false"),
            ("skip_snat", "false"),
            ("neighbor_responder", "none"),
            ("hairpin_snat_ip", "169.254.169.5 fd69::5"),
        ];
        let marks = map(&[("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", service)]);
        let row = json!({"vips": map(&[(vip, backends)]), "protocol": protocol.to_lowercase(), "options": map(&options),
            "external_ids": marks});
        self.named("Load_Balancer", name, row)
    }

    /// Only ingress policies with one pod selector are supported.
    fn policies(&mut self, policies: &Value, pods: &Value) {
        for policy in policies["items"].as_array().unwrap() {
            let word = |field: &str| policy["metadata"][field].as_str().unwrap();
            let (namespace, name) = (word("namespace"), word("name"));
            let with = |selector: &Value| -> Vec<&Value> {
                let labels = selector["matchLabels"].as_object().cloned().unwrap_or_default();
                let all =
                    pods["items"].as_array().unwrap().iter().filter(|pod| pod["metadata"]["namespace"] == namespace);
                all.filter(|pod| labels.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value)).collect()
            };
            let key = format!("{namespace}:{name}");
            let ports = with(&policy["spec"]["podSelector"]).into_iter().map(|pod| {
                let port = format!("{namespace}_{}", pod["metadata"]["name"].as_str().unwrap());
                self.made[&("Logical_Switch_Port", port)].clone()
            });
            let ports = set(ports);
            for (word, direction, port) in [("Ingress", "to-lport", "outport"), ("Egress", "from-lport", "inport")] {
                let group = hashed(&format!("{GO}:NetpolNamespace:{namespace}:{word}"));
                let object = [("k8s.ovn.org/name", namespace), ("direction", word)];
                // Groups and ACLs exist for both directions; only ingress has ports here.
                let closed = if word == "Ingress" { ports.clone() } else { set([]) };
                let row = json!({"ports": closed, "external_ids": ids("NetpolNamespace", &object)});
                self.named("Port_Group", &group, row);
                for (kind, priority, action, more) in
                    [("defaultDeny", 1000, "drop", ""), ("arpAllow", 1001, "allow", " && (arp || nd)")]
                {
                    let marks = ids("NetpolNamespace", &[object[0], object[1], ("type", kind)]);
                    let matching = format!("{port} == @{group}{more}");
                    self.rule(("Port_Group", &group), marks, direction, priority, action, &matching);
                }
            }
            let group = hashed(&format!("{GO}:NetworkPolicy:{key}"));
            let marks = ids("NetworkPolicy", &[("k8s.ovn.org/name", &key)]);
            self.named("Port_Group", &group, json!({"ports": ports, "external_ids": marks}));
            for (index, rule) in policy["spec"]["ingress"].as_array().into_iter().flatten().enumerate() {
                let selector = &rule["from"][0]["podSelector"];
                let addresses = set(with(selector).into_iter().map(|pod| json!(address_of(pod).0)));
                let words = format!("{namespace}_{selector}");
                let marks = ids("PodSelector", &[("k8s.ovn.org/name", &words), ("ip-family", "v4")]);
                let peers = hashed(&format!("{GO}:PodSelector:{words}:v4"));
                self.named("Address_Set", &peers, json!({"addresses": addresses, "external_ids": marks}));
                let marks = ids(
                    "NetworkPolicy",
                    &[
                        ("k8s.ovn.org/name", &key),
                        ("direction", "Ingress"),
                        ("gress-index", &index.to_string()),
                        ("port-policy-protocol", "None"),
                        ("ip-block-index", "-1"),
                    ],
                );
                let matching = format!("ip4.src == {{${peers}}} && outport == @{group}");
                self.rule(("Port_Group", &group), marks, "to-lport", 1001, "allow-related", &matching);
            }
        }
    }
}

fn address_of(pod: &Value) -> (String, String) {
    let network = pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"].as_str().unwrap();
    let network: Value = serde_json::from_str(network).unwrap();
    let word = |key: &str| network["default"][key].as_str().unwrap().to_owned();
    (word("ip_address").split_once('/').unwrap().0.to_owned(), word("mac_address"))
}
