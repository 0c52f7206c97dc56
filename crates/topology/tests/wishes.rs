//! What few pods ask for: ports of their nodes, and limits. Who gets what, and what is told.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use topology::ClusterSettings;
use topology::store::ObjectKind;

use crate::support::api::Key;
use crate::support::quiet::Quiet;
use crate::support::schema;

fn world() -> Quiet {
    let settings =
        ClusterSettings::new(vec!["10.128.0.0/16/24".parse().unwrap()], vec!["172.30.0.0/16".parse().unwrap()]);
    let mut world = Quiet::new(&schema::schema(), settings);
    for (name, last) in [("n1", 10), ("n2", 11)] {
        world.api.create(ObjectKind::Node, "", name, json!({"metadata": {"annotations": {}}}));
        world.wire(name, "shared", last);
    }
    world.api.create(ObjectKind::Namespace, "", "ns", json!({"metadata": {}}));
    world
}

fn key(name: &str) -> Key {
    (ObjectKind::Pod, "ns".into(), name.into())
}

impl Quiet {
    fn pod(&mut self, name: &str, node: &str, port: &Value) {
        self.pod_in("ns", name, node, port);
    }

    fn pod_in(&mut self, namespace: &str, name: &str, node: &str, port: &Value) {
        let spec = json!({"nodeName": node, "containers": [{"ports": [port]}]});
        self.api.create(ObjectKind::Pod, namespace, name, json!({"metadata": {"annotations": {}}, "spec": spec}));
        self.rest();
    }

    /// What somebody in `ns` is told, and what only administrators read.
    fn told(&self, name: &str) -> (String, String) {
        let mut parked = self.controller.engine.parked();
        let (_, why) = parked.find(|(owner, _)| owner.name() == format!("ns/{name}")).unwrap();
        (why.message.clone(), why.detail.clone().unwrap_or_default())
    }

    /// What a column of the rows of a table says.
    fn said(&self, table: &str, column: &str) -> Vec<String> {
        let rows = self.nb.rows();
        let mut said: Vec<String> = rows
            .iter()
            .filter(|((own, _), values)| {
                own == table && !values.get("name").is_some_and(|name| name.to_string().starts_with("foreign"))
            })
            .map(|(_, values)| values[column].to_string())
            .collect();
        said.sort();
        said
    }

    fn refusal(&self, name: &str) -> Option<(&'static str, String)> {
        let mut parked = self.controller.engine.parked();
        parked.find(|(owner, _)| owner.name() == format!("ns/{name}")).map(|(_, why)| (why.reason, why.message.clone()))
    }
}

const WEB: &str = "192.0.2.10:9080";

#[test]
fn of_two_pods_the_older_has_the_port() {
    let mut world = world();
    let port = || json!({"containerPort": 80, "hostPort": 9080});
    world.pod("one", "n1", &port());
    world.pod("two", "n1", &port());
    world.pod("far", "n2", &port());
    assert_eq!(world.said("Load_Balancer", "name"), ["HostPort_ns/far_TCP", "HostPort_ns/one_TCP"]);
    let (reason, message) = world.refusal("two").unwrap();
    assert_eq!(reason, "AddressTaken");
    assert!(message.contains(WEB) && message.contains("Pod ns/one, which is older"), "{message}");
    // It has its network all the same.
    assert_eq!(world.said("Logical_Switch_Port", "name").iter().filter(|name| name.starts_with("ns_")).count(), 3);

    world.api.delete(&key("one"));
    world.rest();
    assert_eq!(world.said("Load_Balancer", "name"), ["HostPort_ns/far_TCP", "HostPort_ns/two_TCP"]);
    assert_eq!(world.refusal("two"), None);
    world.api.change(&key("two"), |pod| pod["status"]["phase"] = json!("Succeeded"));
    world.rest();
    assert_eq!(world.said("Load_Balancer", "name"), ["HostPort_ns/far_TCP"]);
}

#[test]
fn a_node_port_of_a_service_comes_first() {
    let mut world = world();
    world.pod("web", "n1", &json!({"containerPort": 80, "hostPort": 30080}));
    let balancers = |world: &Quiet| {
        world.said("Load_Balancer", "name").into_iter().filter(|name| name.starts_with("HostPort")).collect::<Vec<_>>()
    };
    assert_eq!(balancers(&world), ["HostPort_ns/web_TCP"]);
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let service = json!({"metadata": {}, "spec": {"type": "NodePort", "clusterIP": "172.30.0.7", "ports": ports}});
    world.api.create(ObjectKind::Service, "ns", "web", service);
    world.rest();
    assert_eq!(balancers(&world), [""; 0]);
    let (reason, message) = world.refusal("web").unwrap();
    assert_eq!(reason, "AddressTaken");
    assert!(message.contains("taken by Service ns/web"), "{message}");
    world.api.delete(&(ObjectKind::Service, "ns".into(), "web".into()));
    world.rest();
    assert_eq!((balancers(&world).len(), world.refusal("web")), (1, None));
}

/// Whoever has a port in another namespace is for administrators to know.
#[test]
fn holders_of_ports_in_other_namespaces_are_not_named() {
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
        let (message, own) = world.told(pod);
        assert!(message.contains(shown) && !message.contains("bank"), "{message}");
        assert_eq!(own, detail);
    }
}

#[test]
fn a_port_follows_the_addresses_of_its_node() {
    let mut world = world();
    world.pod("web", "n1", &json!({"containerPort": 80, "hostPort": 9080, "protocol": "UDP"}));
    world.pod("one", "n1", &json!({"containerPort": 80, "hostPort": 9081, "hostIP": "192.0.2.12"}));
    let (reason, message) = world.refusal("one").unwrap();
    assert_eq!(reason, "HostPortRefused");
    assert!(message.contains("192.0.2.12 is none of the addresses of node n1 (192.0.2.10)"), "{message}");
    let vips = |world: &Quiet| world.said("Load_Balancer", "vips").join(" ");
    assert!(vips(&world).contains(WEB), "{}", vips(&world));
    world.api.change(&(ObjectKind::Node, String::new(), "n1".into()), |node| {
        node["metadata"]["annotations"]["k8s.ovn.org/host-cidrs"] = json!(r#"["192.0.2.10/24","192.0.2.12/24"]"#);
    });
    world.rest();
    assert_eq!(world.refusal("one"), None);
    for vip in [WEB, "192.0.2.12:9080", "192.0.2.12:9081"] {
        assert!(vips(&world).contains(vip), "{vip} in {}", vips(&world));
    }
    assert!(!vips(&world).contains("192.0.2.10:9081"));
}

#[test]
fn limits_come_change_and_go() {
    let mut world = world();
    world.pod("web", "n1", &json!({"containerPort": 80}));
    // The join switch has a rule of its own, which is about no port.
    let limited = |world: &Quiet| {
        world.said("QoS", "match").into_iter().filter(|rule| rule.contains("port == ")).collect::<Vec<_>>()
    };
    assert_eq!(limited(&world), [""; 0]);
    let set = |world: &mut Quiet, limits: &Value| {
        world.api.change(&key("web"), |pod| {
            let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.retain(|key, _| !key.ends_with("-bandwidth"));
            annotations.extend(limits.as_object().unwrap().clone());
        });
        world.rest();
    };
    set(&mut world, &json!({"kubernetes.io/ingress-bandwidth": "1M", "kubernetes.io/egress-bandwidth": "1G"}));
    assert_eq!(limited(&world), ["inport == \"ns_web\"", "outport == \"ns_web\""]);
    assert_eq!(world.said("QoS", "direction"), ["from-lport", "from-lport", "to-lport"]);
    let limits = world.said("QoS", "bandwidth").join(" ");
    for words in ["1000000", "100000", "1000", "1024"] {
        assert!(limits.contains(words), "{words} in {limits}");
    }
    set(&mut world, &json!({"kubernetes.io/ingress-bandwidth": "fast"}));
    assert_eq!(limited(&world), [""; 0], "it works without");
    let (reason, message) = world.refusal("web").unwrap();
    assert_eq!(reason, "BandwidthRefused");
    assert!(message.contains("kubernetes.io/ingress-bandwidth") && message.contains("correct"), "{message}");
    set(&mut world, &json!({"kubernetes.io/ingress-bandwidth": "2M"}));
    assert_eq!((limited(&world).len(), world.refusal("web")), (1, None));
    world.api.delete(&key("web"));
    world.rest();
    assert_eq!(limited(&world), [""; 0]);
}
