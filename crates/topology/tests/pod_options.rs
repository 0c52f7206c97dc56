//! Optional pod settings: host ports, bandwidth limits, and their refusals.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use objects::ObjectKind;
use serde_json::{Value, json};
use topology::ClusterSettings;

use crate::support::api::Key;
use crate::support::schema;
use crate::support::test_cluster::TestCluster;

fn world() -> TestCluster {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/16/24".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let mut world = TestCluster::new(&schema::schema(), settings);
    for (name, last) in [("n1", 10), ("n2", 11)] {
        world.api.create(ObjectKind::Node, "", name, json!({"metadata": {"annotations": {}}}));
        world.annotate_node(name, "shared", last);
    }
    world.api.create(ObjectKind::Namespace, "", "ns", json!({"metadata": {}}));
    world
}

fn key(name: &str) -> Key {
    (ObjectKind::Pod, "ns".into(), name.into())
}

impl TestCluster {
    fn pod(&mut self, name: &str, node: &str, port: &Value) {
        self.pod_in("ns", name, node, port);
    }

    fn pod_in(&mut self, namespace: &str, name: &str, node: &str, port: &Value) {
        let spec = json!({"nodeName": node, "containers": [{"ports": [port]}]});
        self.api.create(ObjectKind::Pod, namespace, name, json!({"metadata": {"annotations": {}}, "spec": spec}));
        self.run_until_idle();
    }

    /// The refusal's public message, and the detail for administrators.
    fn refusal_texts(&self, name: &str) -> (String, String) {
        let mut parked = self.controller.engine.parked();
        let (_, why) = parked.find(|(owner, _)| owner.name() == format!("ns/{name}")).unwrap();
        (why.message.clone(), why.detail.clone().unwrap_or_default())
    }

    /// The values of a column, sorted.
    fn column(&self, table: &str, column: &str) -> Vec<String> {
        let rows = self.nb.rows();
        let mut values_found: Vec<String> = rows
            .iter()
            .filter(|((own, _), values)| {
                own == table && !values.get("name").is_some_and(|name| name.to_string().starts_with("foreign"))
            })
            .map(|(_, values)| values[column].to_string())
            .collect();
        values_found.sort();
        values_found
    }

    fn refusal(&self, name: &str) -> Option<(&'static str, String)> {
        let mut parked = self.controller.engine.parked();
        parked.find(|(owner, _)| owner.name() == format!("ns/{name}")).map(|(_, why)| (why.reason, why.message.clone()))
    }
}

const WEB: &str = "192.0.2.10:9080";

#[test]
fn the_older_pod_keeps_a_contested_host_port() {
    let mut world = world();
    let port = || json!({"containerPort": 80, "hostPort": 9080});
    world.pod("one", "n1", &port());
    world.pod("two", "n1", &port());
    world.pod("far", "n2", &port());
    assert_eq!(world.column("Load_Balancer", "name"), ["HostPort_ns/far_TCP", "HostPort_ns/one_TCP"]);
    let (reason, message) = world.refusal("two").unwrap();
    assert_eq!(reason, "AddressTaken");
    assert!(message.contains(WEB) && message.contains("Pod ns/one, which is older"), "{message}");
    // The pod has its network nevertheless.
    assert_eq!(world.column("Logical_Switch_Port", "name").iter().filter(|name| name.starts_with("ns_")).count(), 3);

    world.api.delete(&key("one"));
    world.run_until_idle();
    assert_eq!(world.column("Load_Balancer", "name"), ["HostPort_ns/far_TCP", "HostPort_ns/two_TCP"]);
    assert_eq!(world.refusal("two"), None);
    world.api.change(&key("two"), |pod| pod["status"]["phase"] = json!("Succeeded"));
    world.run_until_idle();
    assert_eq!(world.column("Load_Balancer", "name"), ["HostPort_ns/far_TCP"]);
}

#[test]
fn a_node_port_wins_over_a_host_port() {
    let mut world = world();
    world.pod("web", "n1", &json!({"containerPort": 80, "hostPort": 30080}));
    let balancers = |world: &TestCluster| {
        world
            .column("Load_Balancer", "name")
            .into_iter()
            .filter(|name| name.starts_with("HostPort"))
            .collect::<Vec<_>>()
    };
    assert_eq!(balancers(&world), ["HostPort_ns/web_TCP"]);
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let service = json!({"metadata": {}, "spec": {"type": "NodePort", "clusterIP": "172.30.0.7", "ports": ports}});
    world.api.create(ObjectKind::Service, "ns", "web", service);
    world.run_until_idle();
    assert_eq!(balancers(&world), [""; 0]);
    let (reason, message) = world.refusal("web").unwrap();
    assert_eq!(reason, "AddressTaken");
    assert!(message.contains("taken by Service ns/web"), "{message}");
    world.api.delete(&(ObjectKind::Service, "ns".into(), "web".into()));
    world.run_until_idle();
    assert_eq!((balancers(&world).len(), world.refusal("web")), (1, None));
}

/// Only administrators see the holder's name.
#[test]
fn host_port_holders_in_other_namespaces_are_not_disclosed() {
    let mut world = world();
    world.pod_in("bank", "vault", "n1", &json!({"containerPort": 80, "hostPort": 9080}));
    world.pod("late", "n1", &json!({"containerPort": 80, "hostPort": 9080}));
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let service = json!({"metadata": {}, "spec": {"type": "NodePort", "clusterIP": "172.30.0.7", "ports": ports}});
    world.api.create(ObjectKind::Service, "bank", "teller", service);
    world.pod("web", "n1", &json!({"containerPort": 80, "hostPort": 30080}));
    for (pod, shown, detail) in [
        ("late", "taken by a Pod of another namespace, which is older", "it is Pod bank/vault"),
        ("web", "taken by a Service of another namespace", "it is Service bank/teller"),
    ] {
        let (message, own) = world.refusal_texts(pod);
        assert!(message.contains(shown) && !message.contains("bank"), "{message}");
        assert_eq!(own, detail);
    }
}

#[test]
fn host_ports_follow_the_nodes_addresses() {
    let mut world = world();
    world.pod("web", "n1", &json!({"containerPort": 80, "hostPort": 9080, "protocol": "UDP"}));
    world.pod("one", "n1", &json!({"containerPort": 80, "hostPort": 9081, "hostIP": "192.0.2.12"}));
    let (reason, message) = world.refusal("one").unwrap();
    assert_eq!(reason, "HostPortRefused");
    assert!(message.contains("192.0.2.12 is not an address of node n1 (192.0.2.10)"), "{message}");
    let vips = |world: &TestCluster| world.column("Load_Balancer", "vips").join(" ");
    assert!(vips(&world).contains(WEB), "{}", vips(&world));
    world.api.change(&(ObjectKind::Node, String::new(), "n1".into()), |node| {
        node["metadata"]["annotations"]["k8s.ovn.org/host-cidrs"] = json!(r#"["192.0.2.10/24","192.0.2.12/24"]"#);
    });
    world.run_until_idle();
    assert_eq!(world.refusal("one"), None);
    for vip in [WEB, "192.0.2.12:9080", "192.0.2.12:9081"] {
        assert!(vips(&world).contains(vip), "{vip} in {}", vips(&world));
    }
    assert!(!vips(&world).contains("192.0.2.10:9081"));
}

/// A Service with an external IP loses it when that becomes the address of a database, and gets it back afterwards.
#[test]
fn addresses_of_new_database_servers_are_taken_from_services() {
    let mut world = world();
    let spec = json!({"clusterIP": "172.30.0.7", "externalIPs": ["203.0.113.9"], "ports": [{"port": 80}]});
    world.api.create(ObjectKind::Service, "ns", "web", json!({"metadata": {}, "spec": spec}));
    world.run_until_idle();
    let claimed = |world: &TestCluster| world.column("Load_Balancer", "vips").join(" ").contains("203.0.113.9:80");
    assert!(claimed(&world));
    for (servers, allowed) in [(vec!["203.0.113.9".parse().unwrap()], false), (Vec::new(), true)] {
        world.controller.engine.set_databases(servers, std::time::Duration::ZERO);
        world.run_until_idle();
        assert_eq!(claimed(&world), allowed);
    }
}

#[test]
fn bandwidth_limits_are_added_changed_and_removed() {
    let mut world = world();
    world.pod("web", "n1", &json!({"containerPort": 80}));
    // The join switch has a rule without a port.
    let limited = |world: &TestCluster| {
        world.column("QoS", "match").into_iter().filter(|rule| rule.contains("port == ")).collect::<Vec<_>>()
    };
    assert_eq!(limited(&world), [""; 0]);
    let set = |world: &mut TestCluster, limits: &Value| {
        world.api.change(&key("web"), |pod| {
            let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.retain(|key, _| !key.ends_with("-bandwidth"));
            annotations.extend(limits.as_object().unwrap().clone());
        });
        world.run_until_idle();
    };
    set(&mut world, &json!({"kubernetes.io/ingress-bandwidth": "1M", "kubernetes.io/egress-bandwidth": "1G"}));
    assert_eq!(limited(&world), ["inport == \"ns_web\"", "outport == \"ns_web\""]);
    assert_eq!(world.column("QoS", "direction"), ["from-lport", "from-lport", "to-lport"]);
    let limits = world.column("QoS", "bandwidth").join(" ");
    for words in ["1000000", "100000", "1000", "1024"] {
        assert!(limits.contains(words), "{words} in {limits}");
    }
    set(&mut world, &json!({"kubernetes.io/ingress-bandwidth": "fast"}));
    assert_eq!(limited(&world), [""; 0], "an invalid limit is not applied");
    let (reason, message) = world.refusal("web").unwrap();
    assert_eq!(reason, "BandwidthRefused");
    assert!(message.contains("kubernetes.io/ingress-bandwidth") && message.contains("correct"), "{message}");
    set(&mut world, &json!({"kubernetes.io/ingress-bandwidth": "2M"}));
    assert_eq!((limited(&world).len(), world.refusal("web")), (1, None));
    world.api.delete(&key("web"));
    world.run_until_idle();
    assert_eq!(limited(&world), [""; 0]);
}
