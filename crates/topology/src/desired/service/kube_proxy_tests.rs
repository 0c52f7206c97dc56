//! Behaviours that follow kube-proxy and the API's documentation where other implementations did not.

use objects::{NodeFacts, ObjectKey, ServiceFacts, SliceFacts};
use serde_json::{Value, json};

use super::super::{Inputs, template};
use super::tests::World;
use crate::allocation::Allocator;
use crate::contribution::{Aliases, Draft};
use crate::identity::Owner;
use crate::maps;

/// A Service of two named ports.
fn put_web(world: &mut World, status: &Value) {
    let object = json!({"metadata": {"name": "web", "namespace": "d", "uid": "web"}, "status": status,
        "spec": {"type": "LoadBalancer", "clusterIP": "172.30.0.7", "loadBalancerSourceRanges": ["198.51.100.0/24"],
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}, {"name": "metrics", "port": 90}]}});
    world.store.put_service(ServiceFacts::parse(&object.to_string()).unwrap());
}

fn put_slice(world: &mut World, name: &str, ports: &Value, addresses: &[&str]) {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    let object = json!({"metadata": {"name": name, "namespace": "d", "uid": name,
        "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4", "ports": ports, "endpoints": endpoints});
    world.store.put_slice(SliceFacts::parse(&object.to_string()).unwrap());
}

/// A named target port may have another number on each pod: the number is per slice.
#[test]
fn named_target_ports_may_differ_between_slices() {
    let mut world = World::v4();
    put_web(&mut world, &json!({}));
    put_slice(
        &mut world,
        "a",
        &json!([{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}]),
        &["10.128.0.5"],
    );
    put_slice(&mut world, "b", &json!([{"name": "http", "port": 8081}]), &["10.128.0.6", "10.128.0.5"]);
    assert_eq!(
        world.rows_of("web"),
        [
            "web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080,10.128.0.5:8081,10.128.0.6:8081",
            "web_TCP_cluster 172.30.0.7:90 → 10.128.0.5:9090",
        ]
    );
    // A port of another name, or of another protocol, is not this Service's.
    put_slice(
        &mut world,
        "b",
        &json!([{"name": "other", "port": 1}, {"name": "http", "port": 2, "protocol": "UDP"}]),
        &["10.128.0.6"],
    );
    assert_eq!(world.rows_of("web")[0], "web_TCP_cluster 172.30.0.7:80 → 10.128.0.5:8080");
}

/// A load balancer that terminates connections itself (`ipMode: Proxy`) is reached as it is, by pods as well: neither an
/// entry nor source ranges apply to its address.
#[test]
fn addresses_of_proxies_are_not_served() {
    let mut world = World::v4();
    put_slice(&mut world, "a", &json!([{"name": "http", "port": 8080}]), &["10.128.0.5"]);
    let status = |mode: &str| json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.100", "ipMode": mode}]}});
    let guards = |world: &World| {
        let made = world.desired_of("web").unwrap();
        made.rows.iter().filter(|row| row.id.table == "ACL").count()
    };
    put_web(&mut world, &status("Proxy"));
    assert!(!world.rows_of("web").iter().any(|line| line.contains("192.0.2.100")), "{:?}", world.rows_of("web"));
    assert_eq!(guards(&world), 0);
    put_web(&mut world, &status("VIP"));
    assert!(world.rows_of("web").contains(&"web_TCP_cluster 192.0.2.100:80 → 10.128.0.5:8080".to_owned()));
    assert_eq!(guards(&world), 2);
}

/// The API server allocates cluster IPs; any tenant may write external IPs. So age gives the latter no precedence, even in
/// a network that the settings do not have.
#[test]
fn a_cluster_ip_is_never_taken_by_an_external_one() {
    let mut world = World::v4();
    world.service("thief", json!({"clusterIP": "172.30.0.66", "externalIPs": ["10.96.0.10"], "ports": [{"port": 80}]}));
    assert_eq!(world.rows_of("thief").len(), 2);
    world.service("dns", json!({"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}));
    assert_eq!(world.rows_of("dns"), ["dns_TCP_cluster 10.96.0.10:80 → "]);
    assert_eq!(world.rows_of("thief"), ["thief_TCP_cluster 172.30.0.66:80 → "]);
    let refusal = world.desired_of("thief").unwrap().refusal.unwrap();
    assert_eq!(refusal.reason, "AddressTaken");
    // It gets the address when the other one is deleted.
    world.store.remove_service(&ObjectKey::new("d", "dns"), None);
    assert_eq!(world.rows_of("thief").len(), 2);
}

/// API servers may run on machines that are not nodes.
#[test]
fn the_api_servers_address_cannot_be_claimed() {
    let mut world = World::v4();
    let object = json!({"metadata": {"name": "kubernetes", "namespace": "default", "uid": "k",
        "labels": {"kubernetes.io/service-name": "kubernetes"}}, "addressType": "IPv4",
        "ports": [{"name": "https", "port": 6443}], "endpoints": [{"addresses": ["203.0.113.5"]}]});
    world.store.put_slice(SliceFacts::parse(&object.to_string()).unwrap());
    world.service(
        "thief",
        json!({"clusterIP": "172.30.0.66", "externalIPs": ["203.0.113.5"], "ports": [{"port": 6443}]}),
    );
    assert_eq!(world.rows_of("thief").len(), 1);
    let refusal = world.desired_of("thief").unwrap().refusal.unwrap();
    assert!(refusal.message.starts_with("spec.externalIPs: 203.0.113.5 is the API server's own address"), "{refusal}");
}

/// A node's annotation cannot claim a cluster IP: the API server allocates those.
#[test]
fn a_node_cannot_claim_a_cluster_ip() {
    let mut world = World::v4();
    let node = json!({"metadata": {"name": "n1", "uid": "n1", "annotations":
        {"k8s.ovn.org/host-cidrs": "[\"192.0.2.10/24\",\"172.30.0.7/32\"]"}}});
    world.store.put_node(NodeFacts::parse(&node.to_string()).unwrap());
    world.service("web", json!({"clusterIP": "172.30.0.7", "externalIPs": ["192.0.2.10"], "ports": [{"port": 80}]}));
    assert_eq!(world.rows_of("web"), ["web_TCP_cluster 172.30.0.7:80 → "]);
    let refusal = world.desired_of("web").unwrap().refusal.unwrap();
    assert!(refusal.message.contains("192.0.2.10 is a node's own address"), "{refusal}");
}

/// A Service with the databases' addresses would cut all nodes off; and all problems are reported at once.
#[test]
fn the_databases_addresses_cannot_be_claimed() {
    let mut world = World::v4();
    world.settings.databases = vec!["203.0.113.6".parse().unwrap()];
    let spec =
        json!({"clusterIP": "172.30.0.66", "externalIPs": ["203.0.113.6", "10.128.0.9"], "ports": [{"port": 6642}]});
    world.service("thief", spec);
    assert_eq!(world.rows_of("thief").len(), 1);
    let refusal = world.desired_of("thief").unwrap().refusal.unwrap();
    for problem in ["203.0.113.6 is the address of OVN's databases", "10.128.0.9 is in 10.128.0.0/14"] {
        assert!(refusal.message.contains(problem), "{refusal}");
    }
}

/// The holder of an address in another namespace is named to administrators only.
#[test]
fn a_service_of_another_namespace_is_not_named() {
    let mut world = World::v4();
    let metadata = json!({"name": "teller", "namespace": "bank", "uid": "t", "creationTimestamp": "000"});
    let spec = json!({"clusterIP": "172.30.0.66", "externalIPs": ["192.0.2.100"], "ports": [{"port": 80}]});
    let older = json!({"metadata": metadata, "spec": spec});
    world.store.put_service(ServiceFacts::parse(&older.to_string()).unwrap());
    world.service("web", json!({"clusterIP": "172.30.0.7", "externalIPs": ["192.0.2.100"], "ports": [{"port": 80}]}));
    let refusal = world.desired_of("web").unwrap().refusal.unwrap();
    assert!(refusal.message.contains("192.0.2.100:80/TCP is taken by a Service of another namespace"), "{refusal}");
    assert!(!refusal.message.contains("bank"), "{refusal}");
    assert_eq!(refusal.detail.as_deref(), Some("it is Service bank/teller"));
}

/// ovn-controller warns of every variable without a value on its chassis: a node with fewer addresses than another has
/// values for all of them.
#[test]
fn every_chassis_has_a_value_for_each_address_variable() {
    let mut world = World::v4();
    let hosts = json!(["192.0.2.3/24", "192.0.2.4/24", "192.0.2.5/24"]).to_string();
    let third = json!({"metadata": {"name": "n3", "uid": "n3", "annotations":
        {"k8s.ovn.org/node-chassis-id": "c-n3", "k8s.ovn.org/host-cidrs": hosts}}});
    world.store.put_node(NodeFacts::parse(&third.to_string()).unwrap());
    let (allocator, aliases) = (Allocator::new(&world.settings).unwrap(), Aliases::default());
    let inputs = Inputs { settings: &world.settings, store: &world.store, allocator: &allocator, aliases: &aliases };
    let values = |name: &str| -> Vec<String> {
        let node = world.store.node(name).unwrap();
        let owner = Owner::Node(node.name.clone());
        let mut draft = Draft::new(&owner, &node.uid, &aliases);
        template::add(&mut draft, node, inputs);
        let members = draft.finish().members;
        let pairs = members.iter().map(|member| maps::pair(&member.atom));
        let mut values: Vec<String> = pairs.map(|(key, value)| format!("{key} = {value}")).collect();
        values.retain(|value| value.starts_with("NODEIP_"));
        values.sort();
        values
    };
    // No packet is sent to 0.0.0.0.
    let one = ["NODEIP_IPv4_0 = 192.0.2.1", "NODEIP_IPv4_1 = 0.0.0.0", "NODEIP_IPv4_2 = 0.0.0.0"];
    assert_eq!(values("n1"), one);
    assert_eq!(values("n3"), ["NODEIP_IPv4_0 = 192.0.2.3", "NODEIP_IPv4_1 = 192.0.2.4", "NODEIP_IPv4_2 = 192.0.2.5"]);
}
