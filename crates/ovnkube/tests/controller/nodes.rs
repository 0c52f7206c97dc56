//! Rows of nodes: compared with the Go controller's, and for annotations in any order.

mod port_bindings;

use std::collections::BTreeSet;

use lab::{ChassisSpec, Family};
use serde_json::json;

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, node, pod, until};
use crate::rows::text;

fn rows<const N: usize>(rows: &[[&str; N]]) -> BTreeSet<Vec<String>> {
    rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect()
}

impl Cluster {
    fn routes(&self, router: &str) -> BTreeSet<Vec<String>> {
        let columns = ["ip_prefix", "nexthop", "policy", "output_port"];
        self.members("Logical_Router", router, "static_routes", "Logical_Router_Static_Route", &columns)
    }

    fn translations(&self, router: &str) -> BTreeSet<Vec<String>> {
        self.members("Logical_Router", router, "nat", "NAT", &["type", "external_ip", "logical_ip"])
    }

    fn policies(&self) -> BTreeSet<Vec<String>> {
        let columns = ["priority", "match", "action", "nexthops"];
        self.members("Logical_Router", "ovn_cluster_router", "policies", "Logical_Router_Policy", &columns)
    }

    fn wait_switch(&self, name: &str) {
        until(&format!("{name} has its network"), || self.annotation("node", name, "k8s.ovn.org/node-subnets"));
    }

    fn set_network_unavailable(&self, name: &str) {
        let condition = json!({"type": "NetworkUnavailable", "status": "True", "reason": "Booting", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"conditions": [condition]}}).to_string();
        self.lab.kubectl(&["patch", "node", name, "--subresource=status", "--type=strategic", "-p", &patch]).unwrap();
    }
}

/// One node and one pod, IPv4, shared gateway: compared with the rows of the Go controller v1.3.0.
///
/// Deliberate differences: every row has its owner in `external_ids`; there is no meter `acl-logging` while nothing logs;
/// the node's switch has the node ID in `external_ids`; hairpin ACLs are in tier 2 as all others; more kinds of packets to
/// ovn-controller are limited, on switches too, and those that pods wait for at a higher rate.
#[test]
fn node_and_pod_rows_match_the_go_controllers() {
    let cluster = ClusterSpec::new("table").start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    cluster.add_node(1);
    cluster.apply(&pod("default", "web", "n1"));
    let uid = cluster.network_of("default", "web").uid;
    // Nodes and pods have separate watches: the pod may be seen before the node's annotations.
    until("the gateway router exists", || cluster.row("Logical_Router", "GR_n1"));

    let limited = [
        "arp",
        "arp-resolve",
        "bfd",
        "dhcpv4-opts",
        "dhcpv6-opts",
        "dns",
        "event-elb",
        "icmp4-error",
        "icmp6-error",
        "igmp",
        "nd-na",
        "nd-ns",
        "nd-ns-resolve",
        "nd-ra-opts",
        "reject",
        "svc-monitor",
        "tcp-reset",
    ];
    let meters: BTreeSet<String> = limited.iter().map(|name| format!("{name}={name}-rate-limiter")).collect();
    assert_eq!(
        cluster.columns("Copp", &["name", "meters"]),
        rows(&[["ovnkube-default", &meters.into_iter().collect::<Vec<_>>().join(" ")]])
    );
    let limiters: Vec<String> = limited.iter().map(|name| format!("{name}-rate-limiter")).collect();
    let limiters = limiters.iter().map(|name| vec![name.clone(), "pktps".into(), "true".into()]).collect();
    assert_eq!(cluster.columns("Meter", &["name", "unit", "fair"]), limiters);
    let rates = rows(&[["1000", "drop"], ["12000", "drop"], ["25", "drop"]]);
    assert_eq!(cluster.columns("Meter_Band", &["rate", "action"]), rates);
    assert_eq!(cluster.raw("Meter_Band").len(), limited.len());

    assert_eq!(
        cluster.columns("Logical_Router", &["name", "options"]),
        rows(&[
            ["ovn_cluster_router", "always_learn_from_arp_request=false"],
            [
                "GR_n1",
                "always_learn_from_arp_request=false chassis=n1 dynamic_neigh_routers=true lb_force_snat_ip=router_ip \
                 mac_binding_age_threshold=300 snat-ct-zone=0"
            ],
        ])
    );
    let copp = text(&cluster.raw("Copp")[0]["_uuid"]);
    for table in ["Logical_Router", "Logical_Switch"] {
        assert!(cluster.raw(table).iter().all(|row| text(&row["copp"]) == copp), "{table}");
    }
    let marks = |table: &str, name: &str| cluster.value(table, name, "external_ids").unwrap();
    assert!(marks("Logical_Router", "ovn_cluster_router").contains("k8s-cluster-router=yes"));
    assert!(marks("Logical_Router", "GR_n1").contains("physical_ips=10.99.0.221"));

    assert_eq!(
        cluster.columns("Logical_Router_Port", &["name", "mac", "networks", "options"]),
        rows(&[
            ["rtoj-ovn_cluster_router", "0a:58:64:40:00:01", "100.64.0.1/16", ""],
            ["rtoj-GR_n1", "0a:58:64:40:00:02", "100.64.0.2/16", ""],
            ["rtoe-GR_n1", "0a:58:0a:63:00:dd", "10.99.0.221/24", ""],
            ["rtos-n1", "0a:58:0a:80:00:01", "10.128.0.1/23", "gateway_mtu=1400"],
        ])
    );
    let chassis = cluster.members(
        "Logical_Router_Port",
        "rtos-n1",
        "gateway_chassis",
        "Gateway_Chassis",
        &["chassis_name", "priority"],
    );
    assert_eq!(chassis, rows(&[["n1", "1"]]));

    let switches = cluster.columns("Logical_Switch", &["name", "other_config"]);
    assert_eq!(switches, rows(&[["join", ""], ["ext_n1", ""], ["n1", "subnet=10.128.0.0/23"]]));
    let (word, version) = ("0a:58:0a:80:00:03 10.128.0.3", format!("iface-id-ver={uid} requested-chassis=n1"));
    assert_eq!(
        cluster.columns("Logical_Switch_Port", &["name", "type", "addresses", "port_security", "options"]),
        rows(&[
            ["jtor-ovn_cluster_router", "router", "router", "", "router-port=rtoj-ovn_cluster_router"],
            ["jtor-GR_n1", "router", "router", "", "router-port=rtoj-GR_n1"],
            [
                "etor-GR_n1",
                "router",
                "router",
                "",
                "exclude-lb-vips-from-garp=true nat-addresses=router router-port=rtoe-GR_n1"
            ],
            ["br-ex_n1", "localnet", "unknown", "", "network_name=physnet"],
            ["stor-n1", "router", "router", "", "router-port=rtos-n1"],
            ["k8s-n1", "", "0a:58:0a:80:00:02 10.128.0.2", "", ""],
            ["default_web", "", word, word, &version],
        ])
    );
    let marks = marks("Logical_Switch_Port", "default_web");
    assert!(marks.contains("namespace=default") && marks.contains("pod=true"), "{marks}");

    let groups =
        |table: &str, name: &str| cluster.members(table, name, "load_balancer_group", "Load_Balancer_Group", &["name"]);
    assert_eq!(groups("Logical_Switch", "n1"), rows(&[["clusterLBGroup"], ["clusterSwitchLBGroup"]]));
    assert_eq!(groups("Logical_Router", "GR_n1"), rows(&[["clusterLBGroup"], ["clusterRouterLBGroup"]]));

    assert_eq!(
        cluster.routes("GR_n1"),
        rows(&[
            ["10.128.0.0/14", "100.64.0.1", "", ""],
            ["169.254.169.0/29", "169.254.169.4", "", "rtoe-GR_n1"],
            ["10.96.0.0/16", "169.254.169.4", "", "rtoe-GR_n1"],
            ["0.0.0.0/0", "10.99.0.254", "", "rtoe-GR_n1"],
        ])
    );
    assert_eq!(
        cluster.routes("ovn_cluster_router"),
        rows(&[["100.64.0.2", "100.64.0.2", "", ""], ["10.128.0.0/23", "100.64.0.2", "src-ip", ""]])
    );
    let host = "inport == \"rtos-n1\" && ip4.dst == 10.99.0.221 /* n1 */";
    assert_eq!(cluster.policies(), rows(&[["1004", host, "reroute", "10.128.0.2"]]));
    assert_eq!(
        cluster.translations("GR_n1"),
        rows(&[
            ["snat", "10.99.0.221", "100.64.0.2"],
            ["snat", "10.99.0.221", "10.128.0.0/14"],
            ["snat", "10.99.0.221", "0.0.0.0/0"],
        ])
    );
    let bindings = cluster.columns("Static_MAC_Binding", &["logical_port", "ip", "mac", "override_dynamic_mac"]);
    assert_eq!(bindings, rows(&[["rtoe-GR_n1", "169.254.169.4", "0a:58:a9:fe:a9:04", "true"]]));

    let columns = ["priority", "direction", "match", "action", "tier"];
    let hairpins = cluster.members("Port_Group", "clusterPortGroup", "acls", "ACL", &columns);
    let from = "ip4.src == 169.254.169.5";
    let blocked = "ct.est && !ct.rpl && ct_mark.blocked == 1";
    assert_eq!(
        hairpins,
        rows(&[
            ["0", "to-lport", blocked, "pass", "0"],
            ["0", "to-lport", blocked, "pass", "1"],
            ["1001", "to-lport", from, "allow-related", "2"],
            ["1001", "from-lport", from, "allow-related", "2"],
            ["32000", "from-lport", "ip4.dst == {10.96.0.0/16}", "reject", "0"],
            ["32000", "from-lport", "ip4.dst == 169.254.169.0/29", "drop", "0"],
        ])
    );
    let managed = cluster.members("Port_Group", "clusterPortGroup", "ports", "Logical_Switch_Port", &["name"]);
    assert_eq!(managed, rows(&[["k8s-n1"]]));
    let probes = cluster.members("Logical_Switch", "n1", "acls", "ACL", &columns);
    assert_eq!(probes, rows(&[["1001", "to-lport", "ip4.src == 10.128.0.2", "allow-related", "2"]]));
    assert_eq!(cluster.raw("ACL").len(), 8);
}

/// A gateway mode change, new host addresses and a recreated Node change rows; pods keep their addresses.
#[test]
fn pods_keep_their_addresses_while_their_node_changes() {
    let cluster = ClusterSpec::new("nodes").nodes(2).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for number in 1..=2 {
        cluster.apply(&node(&format!("n{number}")));
        cluster.annotate_node(&format!("n{number}"), number, "local");
        cluster.apply(&pod("default", &format!("web-{number}"), &format!("n{number}")));
    }
    let (one, two) = (cluster.bind(1, "default", "web-1"), cluster.bind(2, "default", "web-2"));
    let addresses = || ["web-1", "web-2"].map(|name| cluster.network_of("default", name).address().to_string());
    let given = addresses();
    let reach = || {
        cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
        for (from, to) in [(&one, &given[1]), (&two, &given[0])] {
            from.run(&["ping", "-c", "1", "-i", "0.2", "-w", "30", to]).unwrap();
        }
    };
    let subnet = |name: &str| {
        let text = cluster.annotation("node", name, "k8s.ovn.org/node-subnets").unwrap();
        text.trim_start_matches("{\"default\":[\"").trim_end_matches("\"]}").to_owned()
    };
    let hop = |name: &str| subnet(name).replace(".0/23", ".2");
    for name in ["n1", "n2"] {
        let out = vec![subnet(name), hop(name), "src-ip".into(), String::new()];
        assert!(cluster.routes("ovn_cluster_router").contains(&out), "{out:?}");
    }
    reach();

    // Another address of the host, and the shared gateway.
    let key = "k8s.ovn.org/l3-gateway-config";
    let gateway = cluster.annotation("node", "n1", key).unwrap();
    let gateway =
        gateway.replace("10.99.0.221", "10.99.0.231").replace("00:dd", "00:e7").replace("\"local\"", "\"shared\"");
    cluster.annotate("node", "n1", &[(key, &gateway), ("k8s.ovn.org/host-cidrs", "[\"10.99.0.231/24\"]")]);
    until("the gateway has the new address", || {
        let networks = cluster.value("Logical_Router_Port", "rtoe-GR_n1", "networks")?;
        (networks == "10.99.0.231/24").then_some(())
    });
    assert_eq!(cluster.value("Logical_Router_Port", "rtoe-GR_n1", "mac").unwrap(), "0a:58:0a:63:00:e7");
    assert!(cluster.translations("GR_n1").iter().all(|nat| nat[1] == "10.99.0.231"));
    let policies = cluster.policies();
    assert!(policies.iter().any(|policy| policy[1].contains("10.99.0.231") && policy[3] == hop("n1")), "{policies:?}");
    let old = cluster.all_rows().into_values().find(|contents| contents.contains("10.99.0.221"));
    assert_eq!(old, None);
    let out = cluster.routes("ovn_cluster_router").into_iter().find(|route| route[0] == subnet("n1")).unwrap();
    assert!(out[1].starts_with("100.64.0."), "{out:?}");
    reach();
    one.run(&["ping", "-c", "1", "-i", "0.2", "-w", "30", "10.99.0.254"]).unwrap();

    // The Node is recreated; its pods still exist.
    let (switch, had) = (cluster.identities("Logical_Switch"), subnet("n1"));
    cluster.lab.kubectl(&["delete", "node", "n1", "--wait=true"]).unwrap();
    cluster.add_node(1);
    until("the node has rows of its own", || {
        let now = cluster.identities("Logical_Switch");
        let other = now.get("n1").is_some_and(|uuid| *uuid != switch["n1"]);
        (other && cluster.row("Logical_Switch_Port", "default_web-1").is_some()).then_some(())
    });
    cluster.wait_switch("n1");
    assert_eq!((subnet("n1"), addresses()), (had, given.clone()));
    let port = cluster.value("Logical_Switch_Port", "default_web-1", "addresses").unwrap();
    assert!(port.ends_with(&given[0]), "{port}");
    let ports = cluster.members("Logical_Switch", "n1", "ports", "Logical_Switch_Port", &["name"]);
    assert!(ports.contains(&vec!["default_web-1".to_owned()]), "{ports:?}");
    reach();
    assert!(cluster.lab.terminate("c1", TIMEOUT).unwrap().success());
}

/// The agent's annotations may arrive one by one in any order. `NetworkUnavailable` is cleared when the node's own chassis
/// has acknowledged.
#[test]
fn node_annotations_may_arrive_in_any_order() {
    let cluster = ClusterSpec::new("order").start();
    let chassis = cluster.lab.light_chassis(&ChassisSpec::numbered("n", 3)).unwrap();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    cluster.add_node(1);
    let fixed = ["k8s.ovn.org/node-subnets", "k8s.ovn.org/node-id"];
    cluster.wait_switch("n1");
    let fixed = fixed.map(|key| (key, cluster.annotation("node", "n1", key).unwrap()));
    let agents = ["k8s.ovn.org/node-chassis-id", "k8s.ovn.org/l3-gateway-config", "k8s.ovn.org/host-cidrs"];
    let agents = agents.map(|key| (key, cluster.annotation("node", "n1", key).unwrap()));
    let network = || -> Vec<BTreeSet<Vec<String>>> {
        vec![
            cluster.columns("Logical_Switch_Port", &["name", "type", "addresses", "options"]),
            cluster.columns("Logical_Router_Port", &["name", "mac", "networks", "options"]),
            cluster.columns("Logical_Router", &["name", "options"]),
            cluster.columns("Logical_Switch", &["name", "other_config"]),
            cluster.columns("Gateway_Chassis", &["name", "chassis_name"]),
            cluster.columns("Static_MAC_Binding", &["logical_port", "ip"]),
            cluster.routes("ovn_cluster_router"),
            cluster.routes("GR_n1"),
            cluster.translations("GR_n1"),
            cluster.policies(),
        ]
    };
    until("the gateway router exists", || cluster.row("Logical_Router", "GR_n1"));
    let wanted = network();
    for order in [[2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0]] {
        cluster.lab.kubectl(&["delete", "node", "n1"]).unwrap();
        until("the switch is gone", || cluster.row("Logical_Switch", "n1").is_none().then_some(()));
        let annotations: serde_json::Map<_, _> =
            fixed.iter().map(|(key, value)| ((*key).into(), json!(value))).collect();
        cluster.apply(
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": annotations}}),
        );
        for index in order {
            let (key, value) = &agents[index];
            cluster.annotate("node", "n1", &[(key, value)]);
        }
        until(&format!("order {order:?} ends in the same rows"), || (network() == wanted).then_some(()));
    }

    chassis.pause("n2").unwrap();
    for number in 2..=3 {
        cluster.apply(&node(&format!("n{number}")));
        cluster.set_network_unavailable(&format!("n{number}"));
        cluster.annotate_node(&format!("n{number}"), number, "shared");
        cluster.wait_switch(&format!("n{number}"));
    }
    until("n3's condition is cleared", || (cluster.network_unavailable("n3")? == "False").then_some(()));
    assert_eq!(cluster.network_unavailable("n2").unwrap(), "True");
    chassis.resume("n2").unwrap();
    until("n2's condition is cleared", || (cluster.network_unavailable("n2")? == "False").then_some(()));
    chassis.stop().unwrap();
}

/// Dual-stack, a second cluster subnet when the first is full, and multicast by namespace annotation.
#[test]
fn several_cluster_subnets_and_multicast() {
    let mut spec = ClusterSpec::new("networks").arguments(&[
        "--cluster-subnets",
        "10.128.0.0/23/24,10.140.0.0/23/24,fd01::/48/64",
        "--k8s-service-cidrs",
        "172.30.0.0/16,fd02::/112",
        "--enable-multicast=true",
    ]);
    spec.family = Family::Dual;
    let cluster = spec.start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for number in 1..=3 {
        cluster.add_node(number);
        cluster.wait_switch(&format!("n{number}"));
    }
    let subnets = |name: &str| cluster.annotation("node", name, "k8s.ovn.org/node-subnets").unwrap();
    let (all, last) = (["n1", "n2", "n3"].map(subnets), subnets("n3"));
    assert!(all[..2].iter().all(|text| text.contains("10.128.")) && last.contains("10.140.0.0/24"), "{all:?}");
    assert!(all.iter().all(|text| text.contains("fd01:")), "{all:?}");
    cluster.apply(&pod("default", "web", "n3"));
    let addresses = cluster.network_of("default", "web").addresses;
    assert!(addresses.len() == 2 && addresses[0].to_string().starts_with("10.140.0."), "{addresses:?}");
    for router in ["GR_n1", "GR_n3"] {
        until(&format!("{router} exists"), || cluster.row("Logical_Router", router));
    }
    let routes = cluster.routes("GR_n1");
    for (network, hop) in [("10.128.0.0/23", "100.64.0.1"), ("10.140.0.0/23", "100.64.0.1"), ("fd01::/48", "fd98::1")] {
        assert!(routes.contains(&vec![network.into(), hop.into(), String::new(), String::new()]), "{routes:?}");
    }
    let inside: BTreeSet<String> = cluster.translations("GR_n3").into_iter().map(|nat| nat[2].clone()).collect();
    for network in ["10.128.0.0/23", "10.140.0.0/23", "fd01::/48"] {
        assert!(inside.contains(network), "{inside:?}");
    }

    let config = cluster.value("Logical_Switch", "n3", "other_config").unwrap();
    assert!(config.contains("mcast_snoop=true") && config.contains("mcast_ip4_src=10.140.0.1"), "{config}");
    let columns = ["priority", "direction", "action"];
    let closed = cluster.members("Port_Group", "clusterPodPortGroup", "acls", "ACL", &columns);
    assert_eq!(closed, rows(&[["1011", "to-lport", "drop"], ["1011", "from-lport", "drop"]]));
    let before = cluster.all_rows();
    cluster.annotate("namespace", "default", &[("k8s.ovn.org/multicast-enabled", "true")]);
    let group = until("the namespace has a group of its ports", || {
        let groups = cluster.raw("Port_Group");
        groups.into_iter().find(|group| text(&group["external_ids"]).contains("k8s.ovn.org/name=default"))
    });
    let name = text(&group["name"]);
    let open = cluster.members("Port_Group", &name, "acls", "ACL", &columns);
    assert_eq!(open, rows(&[["1012", "to-lport", "allow"], ["1012", "from-lport", "allow"]]));
    assert_eq!(text(&group["acls"]).split(' ').count(), 4, "one ACL per family and direction");
    until("the pod is in the group", || {
        let ports = cluster.members("Port_Group", &name, "ports", "Logical_Switch_Port", &["name"]);
        (ports == rows(&[["default_web"]])).then_some(())
    });
    cluster.lab.kubectl(&["annotate", "namespace", "default", "k8s.ovn.org/multicast-enabled-"]).unwrap();
    until("the rows are as before", || (cluster.all_rows() == before).then_some(()));
}

/// Otherwise northd would wait for it for ever. Covers a deleted node, also if the leader dies in between, and a node
/// with a new chassis.
#[test]
fn orphaned_chassis_are_removed_from_the_southbound_database() {
    let cluster = ClusterSpec::new("chassis").start();
    let chassis = cluster.lab.light_chassis(&ChassisSpec::numbered("n", 5)).unwrap();
    let registered = |table: &str| -> BTreeSet<String> {
        cluster.raw_southbound(table).iter().map(|row| text(&row["name"])).collect()
    };
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for number in 1..=4 {
        cluster.add_node(number);
        cluster.wait_switch(&format!("n{number}"));
    }
    // The leader dies when the node's rows are removed and its chassis is not: the node ID is quarantined until then.
    chassis.pause("n1").unwrap();
    cluster.delete("node", &["n1"]);
    until("the node ID is quarantined with its chassis", || {
        let ids = cluster.lab.nbctl(&["get", "NB_Global", ".", "external_ids"]).unwrap();
        ids.contains("=\"n1@n1@n1\"").then_some(())
    });
    cluster.lab.kill("c1").unwrap();
    assert!(registered("Chassis").contains("n1"));
    cluster.lead("c2");

    for paused in ["n2", "n3"] {
        chassis.pause(paused).unwrap();
    }
    cluster.delete("node", &["n2"]);
    cluster.annotate("node", "n3", &[("k8s.ovn.org/node-chassis-id", "n5")]);
    let nb_cfg_lag = || cluster.metric("ovnkube_controller_nb_cfg_lag_seconds");
    until("a missing acknowledgement is measured", || (nb_cfg_lag() > 0.0).then_some(()));
    let left: BTreeSet<String> = ["n4", "n5"].map(Into::into).into();
    for table in ["Chassis", "Chassis_Private"] {
        until(&format!("{table} has only the nodes' chassis"), || (registered(table) == left).then_some(()));
    }
    assert_eq!(cluster.columns("Gateway_Chassis", &["chassis_name"]), rows(&[["n4"], ["n5"]]));
    until("nothing is quarantined", || cluster.quarantined().is_empty().then_some(()));
    until("all acknowledgements have arrived", || (nb_cfg_lag() == 0.0).then_some(()));
    chassis.stop().unwrap();
}
