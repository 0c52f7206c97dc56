//! What the pure core says of every pair of pods, and of the way out, is what `ovn-trace` finds in the database that the
//! controller wrote.

use std::net::IpAddr;
use std::time::Duration;

use ovn_schema::northbound;
use ovsdb::client::{Client, Config, TableMonitor};
use topology::engine::Observed;
use topology::identity::PodKey;
use topology::objects::{NamespaceFacts, NodeFacts, PodFacts};
use topology::plan::TABLES;
use topology::reach::{Exit, leaves, reach};
use topology::store::ObjectKind;
use topology::{ClusterSettings, Engine};

use crate::cluster::{Cluster, PATIENCE, Wish, pod};

/// The cluster's router answers with this address and MAC on a node's switch.
fn router_of(own: IpAddr) -> netmodel::Mac {
    let IpAddr::V4(own) = own else { panic!("{own}") };
    let [a, b, c, _] = own.octets();
    netmodel::Mac::for_address(IpAddr::from([a, b, c & 0xfe, 1]))
}

/// All objects of a kind, each as text.
fn items(cluster: &Cluster, what: &[&str]) -> Vec<String> {
    cluster.get(what)["items"].as_array().unwrap().iter().map(ToString::to_string).collect()
}

/// The pure core, fed with the cluster's objects and its northbound database.
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
        client.connected(PATIENCE).await.unwrap();
        client.snapshot()
    });
    engine.promote(&snapshot, false, Duration::ZERO).unwrap();
    engine
}

/// What becomes of an echo request of a pod, as `ovn-trace` sees it.
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

/// The ports that a packet is put out of, behind all switches and routers.
fn outputs(trace: &str) -> Vec<&str> {
    let lines = trace.lines().map(str::trim);
    lines.filter_map(|line| line.strip_prefix("output(\"")?.split_once('"').map(|(port, _)| port)).collect()
}

#[test]
fn every_pair_and_the_way_out_are_as_the_core_says() {
    let cluster = Wish::new("trace").nodes(2).start();
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
    let given = engine.given().unwrap();
    for from in names {
        let own = cluster.network_of("default", from);
        let from_key = PodKey::new("default", from);
        for to in names.into_iter().filter(|to| *to != from) {
            let path = reach(given, &from_key, &PodKey::new("default", to), false).unwrap();
            assert_eq!(path.routed, from[1..] != to[1..], "{from} to {to}");
            let target = cluster.network_of("default", to);
            let next = if path.routed { router_of(own.address()) } else { target.mac };
            let told = trace(&cluster, from, target.address(), next);
            assert_eq!(outputs(&told), [path.port.as_str()], "{from} to {to}:\n{told}");
            assert_eq!(told.contains("ip.ttl--"), path.routed, "{from} to {to}:\n{told}");
        }
        let outside: IpAddr = "198.51.100.7".parse().unwrap();
        let Some(Exit::Gateway { router, source, next_hops }) = leaves(given, &from_key, outside) else {
            panic!("{from} does not leave")
        };
        let [IpAddr::V4(next_hop)] = next_hops[..] else { panic!("{next_hops:?}") };
        let told = trace(&cluster, from, outside, router_of(own.address()));
        let node = router.strip_prefix("GR_").unwrap();
        // The next hop is asked for its MAC, and the packet goes the same way.
        assert_eq!(
            outputs(&told),
            [format!("br-ex_{node}"), format!("br-ex_{node}")],
            "{from} to the outside:\n{told}"
        );
        let asked = format!("arp.tpa = {:#x};", u32::from(next_hop));
        assert!(told.contains(&asked), "{from} is not sent to {next_hop}:\n{told}");
        let translated = told.lines().any(|line| line.contains("ct_snat") && line.contains(&source.to_string()));
        assert!(translated, "{from} does not leave as {source}:\n{told}");
    }
}
