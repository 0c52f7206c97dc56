//! The core's answers about pod pairs and egress agree with `ovn-trace` over the controller's rows.

use std::net::IpAddr;
use std::time::Duration;

use objects::{NamespaceFacts, NodeFacts, ObjectKind, PodFacts, PodKey};
use ovn_schema::northbound;
use ovsdb::client::{Client, Config, TableMonitor};
use reachability::trace::{Exit, egress, reach};
use topology::engine::Observed;
use topology::plan::TABLES;
use topology::{ClusterSettings, Engine};

use crate::cluster::{Cluster, ClusterSpec, TIMEOUT, pod};

/// The MAC of the cluster router on the switch of an address.
fn router_of(own: IpAddr) -> netmodel::Mac {
    let IpAddr::V4(own) = own else { panic!("{own}") };
    let [a, b, c, _] = own.octets();
    netmodel::Mac::for_address(IpAddr::from([a, b, c & 0xfe, 1]))
}

/// All objects of a kind as JSON.
fn items(cluster: &Cluster, what: &[&str]) -> Vec<String> {
    cluster.get(what)["items"].as_array().unwrap().iter().map(ToString::to_string).collect()
}

/// The core, with the cluster's objects and northbound database.
fn core(cluster: &Cluster) -> Engine {
    let cluster_subnets = vec!["10.128.0.0/14/23".parse().unwrap()];
    let mut engine = Engine::new(ClusterSettings::new(cluster_subnets, vec!["172.30.0.0/16".parse().unwrap()]));
    let nodes = items(cluster, &["nodes"]).into_iter().map(|text| Observed::Node(NodeFacts::parse(&text).unwrap()));
    let namespaces = items(cluster, &["namespaces"]);
    let namespaces = namespaces.iter().map(|text| Observed::Namespace(NamespaceFacts::parse(text).unwrap()));
    let pods = items(cluster, &["pods", "-A"]).into_iter().map(|text| Observed::Pod(PodFacts::parse(&text).unwrap()));
    for observed in nodes.chain(namespaces).chain(pods) {
        engine.observe(observed, Duration::ZERO);
    }
    for kind in [ObjectKind::Node, ObjectKind::Namespace, ObjectKind::Pod] {
        engine.observe(Observed::Listed(kind), Duration::ZERO);
    }
    let remotes = cluster.lab.record().endpoints.northbound.clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let snapshot = runtime.block_on(async {
        let mut config =
            Config::new(remotes.split(',').map(|remote| remote.parse().unwrap()).collect(), northbound::DATABASE.name);
        for table in TABLES {
            config = config.monitor(TableMonitor::new(table));
        }
        let client = Client::start(config);
        client.connected(TIMEOUT).await.unwrap();
        client.snapshot()
    });
    engine.promote(&snapshot, false, Duration::ZERO).unwrap();
    engine
}

/// `ovn-trace` of a pod's ICMP echo request.
fn trace(cluster: &Cluster, from: &str, to: IpAddr, next: netmodel::Mac) -> String {
    let network = cluster.network_of("default", from);
    let packet = format!(
        "inport == \"default_{from}\" && eth.src == {} && eth.dst == {next} && ip4.src == {} && ip4.dst == {to} && \
         ip.ttl == 64 && icmp4.type == 8",
        network.mac,
        network.address()
    );
    let switch = format!("n{}", &from[1..2]);
    cluster.lab.machine("control").unwrap().run(&["ovn-trace", "--minimal", &switch, &packet]).unwrap()
}

/// The ports at which a trace delivers the packet.
fn outputs(trace: &str) -> Vec<&str> {
    let lines = trace.lines().map(str::trim);
    lines.filter_map(|line| line.strip_prefix("output(\"")?.split_once('"').map(|(port, _)| port)).collect()
}

#[test]
fn ovn_trace_agrees_with_the_core_on_pod_pairs_and_egress() {
    let cluster = ClusterSpec::new("trace").nodes(2).start();
    cluster.controller("c1");
    cluster.wait_leader("c1");
    for node in 1..=2 {
        cluster.add_node(node);
    }
    let names = ["a1", "b1", "a2", "b2"];
    for name in names {
        cluster.apply(&pod("default", name, &format!("n{}", &name[1..2])));
    }
    for name in names {
        cluster.network_of("default", name);
    }
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();

    let engine = core(&cluster);
    let given = engine.inputs().unwrap();
    for from in names {
        let own = cluster.network_of("default", from);
        let from_key = PodKey::new("default", from);
        for to in names.into_iter().filter(|to| *to != from) {
            let path = reach(given, &from_key, &PodKey::new("default", to), netmodel::Family::V4).unwrap();
            assert_eq!(path.routed, from[1..] != to[1..], "{from} to {to}");
            let target = cluster.network_of("default", to);
            let next = if path.routed { router_of(own.address()) } else { target.mac };
            let output = trace(&cluster, from, target.address(), next);
            assert_eq!(outputs(&output), [path.port.as_str()], "{from} to {to}:\n{output}");
            assert_eq!(output.contains("ip.ttl--"), path.routed, "{from} to {to}:\n{output}");
        }
        let outside: IpAddr = "198.51.100.7".parse().unwrap();
        let Some(Exit::Gateway { router, source, next_hops }) = egress(given, &from_key, outside) else {
            panic!("{from} has no egress path")
        };
        let [IpAddr::V4(next_hop)] = next_hops[..] else { panic!("{next_hops:?}") };
        let output = trace(&cluster, from, outside, router_of(own.address()));
        let node = router.strip_prefix("GR_").unwrap();
        // The ARP request for the next hop and the packet leave by the same port.
        assert_eq!(
            outputs(&output),
            [format!("br-ex_{node}"), format!("br-ex_{node}")],
            "{from} to the outside:\n{output}"
        );
        let arp = format!("arp.tpa = {:#x};", u32::from(next_hop));
        assert!(output.contains(&arp), "{from} is not sent to {next_hop}:\n{output}");
        let translated = output.lines().any(|line| line.contains("ct_snat") && line.contains(&source.to_string()));
        assert!(translated, "{from} is not translated to {source}:\n{output}");
    }
}
