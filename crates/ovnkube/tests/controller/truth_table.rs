//! The truth table on real components: for random clusters, the documentation (`truth`), the core (`reachability`) and
//! `ovn-trace` over a real northd's flows agree about every packet.
//!
//! `TRUTH_SEED=n` checks one cluster: `docs/truth-table.md`. The rows insertion from the core without an API server, so that a
//! cluster is written in one transaction; other tests check that a controller writes the same rows.

use std::collections::BTreeSet;
use std::net::IpAddr;

use lab::{Databases, Lab, LabSpec, Ovn};
use netmodel::Mac;
use objects::ObjectKey;
use ovn_schema::northbound;
use ovsdb::client::{Client, Config};
use ovsdb::operation::RowValues;
use ovsdb::replica::Table;
use ovsdb::transaction::{Row, Transaction};
use reachability::evaluator::{Evaluator, Verdict};
use serde_json::Value;
use topology::plan::TABLES;
use truth::random::{Rng, ServiceTuple, Tuple, service_tuples, tuples};
use truth::{Family, Service, TrafficEnd};

use self::world::{World, destination, options, party};
use crate::cluster::{Cluster, TIMEOUT};
use crate::tracer::{Packet, Tracer, disagreement};

#[path = "../../../reachability/tests/truth_table/world.rs"]
mod world;

const CLUSTERS: u64 = 20;
const TUPLES: usize = 125;
const SERVICE_TUPLES: usize = 100;

/// Replaces all northbound rows by those of a world.
fn write_world(lab: &Lab, world: &World) {
    let (mut deletion, mut insertion) = (Transaction::new(), Transaction::new());
    let snapshot = world.preview.snapshot();
    for table in TABLES.into_iter().filter(|table| *table != "NB_Global") {
        deletion.delete(table, Vec::new());
        for view in snapshot.table(table).into_iter().flat_map(Table::iter) {
            let fields = view.row.fields();
            let values: RowValues =
                fields.map(|(place, value)| (view.schema.columns[place].name.clone(), value.clone())).collect();
            insertion.insert_with_uuid(table, view.uuid, Row(values));
        }
    }
    // northd 25.03 aborts if a row is deleted and inserted at once: use two transactions.
    for transaction in [deletion, insertion] {
        write(lab, &transaction);
        lab.nbctl(&["--wait=sb", "sync"]).unwrap();
    }
}

fn write(lab: &Lab, transaction: &Transaction) {
    let remotes = lab.record().endpoints.northbound.clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let remotes = remotes.split(',').map(|remote| remote.parse().unwrap()).collect();
        let client = Client::start(Config::new(remotes, northbound::DATABASE.name));
        client.connected(TIMEOUT).await.unwrap();
        client.transact_within(transaction, TIMEOUT).await.unwrap();
    });
}

/// Panics with the seed and how to replay it.
fn failed<T>(seed: u64, why: &str) -> T {
    panic!("seed {seed} (replay it with TRUTH_SEED={seed}): {why}")
}

/// Where a packet enters, and its source.
struct Start {
    datapath: String,
    inport: String,
    mac: Mac,
    address: IpAddr,
    /// The router's MAC on that switch.
    router: Mac,
    /// The switch's node; empty outside.
    node: String,
}

/// Finds ports of a world.
struct Map<'a>(&'a World);

impl Map<'_> {
    fn object(&self, kind: &str, namespace: &str, name: &str) -> &Value {
        let is = |object: &&Value| {
            let meta = &object["metadata"];
            object["kind"] == kind
                && meta["name"] == name
                && meta["namespace"].as_str().unwrap_or_default() == namespace
        };
        self.0.objects.iter().find(is).unwrap()
    }

    /// The pod, if it is on the cluster network; host-network pods count as their node.
    fn pod(&self, place: &TrafficEnd) -> Option<(ObjectKey, String)> {
        let TrafficEnd::Pod { namespace, name } = place else { return None };
        let key = ObjectKey::new(namespace, name);
        let own = self.0.inputs().allocator.pod(&key)?;
        Some((key, own.node.to_string()))
    }

    fn node(&self, place: &TrafficEnd) -> Option<String> {
        match place {
            TrafficEnd::Pod { namespace, name } => {
                Some(self.object("Pod", namespace, name)["spec"]["nodeName"].as_str().unwrap().to_owned())
            }
            TrafficEnd::Node(name) => Some(name.clone()),
            TrafficEnd::External(_) => None,
        }
    }

    /// The n-th addresses of a node's subnets.
    fn addresses(&self, node: &str, n: u128) -> Vec<IpAddr> {
        self.0.inputs().allocator.node(node).unwrap().subnets().filter_map(|subnet| subnet.nth(n)).collect()
    }

    fn start(&self, from: &TrafficEnd, family: Family) -> Start {
        let of_family =
            |addresses: Vec<IpAddr>| addresses.into_iter().find(|address| Family::of(*address) == family).unwrap();
        if let Some((key, node)) = self.pod(from) {
            let own = self.0.inputs().allocator.pod(&key).unwrap();
            let router = Mac::for_addresses(&self.addresses(&node, 1)).unwrap();
            let address = of_family(own.addresses().collect());
            return Start { datapath: node.clone(), inport: key.port_name(), mac: own.mac, address, router, node };
        }
        if let Some(node) = self.node(from) {
            let own = self.addresses(&node, 2);
            let router = Mac::for_addresses(&self.addresses(&node, 1)).unwrap();
            let mac = Mac::for_addresses(&own).unwrap();
            let inport = format!("k8s-{node}");
            return Start { datapath: node.clone(), inport, mac, address: of_family(own), router, node };
        }
        // Outside packets enter through a gateway router, which resolves neighbours; the trace starts behind it, at the
        // cluster router.
        let settings = self.0.inputs().settings;
        let joins: Vec<IpAddr> =
            settings.families().filter_map(|family| settings.router_join_address(family)).collect();
        Start {
            datapath: "ovn_cluster_router".to_owned(),
            inport: "rtoj-ovn_cluster_router".to_owned(),
            mac: "52:54:00:ff:ff:01".parse().unwrap(),
            address: self.0.address(from, family).unwrap(),
            router: Mac::for_addresses(&joins).unwrap(),
            // No pod is on the same switch.
            node: String::new(),
        }
    }

    /// The port at which the packet must be delivered.
    fn end(&self, start: &Start, to: &TrafficEnd) -> String {
        if let Some((key, _)) = self.pod(to) {
            return key.port_name();
        }
        match self.node(to) {
            Some(node) if node == start.node => format!("k8s-{node}"),
            _ => format!("br-ex_{}", start.node),
        }
    }

    /// The destination MAC.
    fn next(&self, start: &Start, to: &TrafficEnd) -> Mac {
        match self.pod(to) {
            Some((key, node)) if node == start.node => self.0.inputs().allocator.pod(&key).unwrap().mac,
            _ => start.router,
        }
    }
}

/// Compares all three for one packet.
fn check(world: &World, evaluator: &Evaluator<'_>, tracer: &mut Tracer, tuple: &Tuple) -> Result<(), String> {
    let Tuple { from, to, protocol, port, family } = tuple;
    let address = world.address(to, *family).unwrap();
    let said = tuple.verdict(&world.documented);
    let answer =
        evaluator.evaluate(&party(from), &destination(address, *protocol, *port)).map_err(|why| why.to_string())?;
    if (answer.verdict == Verdict::Yes) != said.allowed {
        return Err(format!("{tuple:?}: documentation {:?}, can {answer:?}", said.why));
    }
    let map = Map(world);
    let start = map.start(from, *family);
    let packet = Packet {
        inport: &start.inport,
        source: (start.mac, start.address),
        next: map.next(&start, to),
        destination: address,
        protocol: *protocol,
        port: *port,
    };
    match disagreement(tracer, &world.documented, tuple, &start.datapath, &packet, &map.end(&start, to)) {
        None => Ok(()),
        Some(why) => Err(format!("{why}\n{}", world.related_objects(&[from, to]))),
    }
}

/// Compares all three for a packet to a Service. The trace follows one endpoint; it may end only at allowed ones, and must
/// be delivered if all are allowed. Returns false if the trace cannot tell.
fn check_service(
    world: &World,
    evaluator: &Evaluator<'_>,
    tracer: &mut Tracer,
    tuple: &ServiceTuple,
) -> Result<bool, String> {
    let ServiceTuple { from, service: (namespace, name), protocol, port, family } = tuple;
    let Some(address) = world.service_address((namespace, name), *family) else { return Ok(false) };
    let map = Map(world);
    // Template variables have values on a chassis only, which a trace does not have.
    let local = map.object("Service", namespace, name)["spec"]["internalTrafficPolicy"] == "Local";
    let documented = &world.documented;
    let said = documented.service(from, (namespace, name), *protocol, *port, *family);
    let Service::Endpoints(endpoints) = &said else { return Ok(false) };
    let places: Vec<&TrafficEnd> = endpoints.iter().map(|endpoint| &endpoint.place).collect();
    let on_hosts = places.iter().any(|place| matches!(place, TrafficEnd::Node(_)));
    // Hairpin traffic is not visible in a trace.
    if local || on_hosts || places.contains(&from) {
        return Ok(false);
    }
    let start = map.start(from, *family);
    let verdicts: Vec<(String, bool)> = endpoints
        .iter()
        .map(|endpoint| {
            let verdict = documented.verdict(from, &endpoint.place, *protocol, endpoint.port, *family);
            (map.end(&start, &endpoint.place), verdict.allowed)
        })
        .collect();
    let allowed: BTreeSet<String> = verdicts.iter().filter(|(_, yes)| *yes).map(|(port, _)| port.clone()).collect();
    let all = verdicts.iter().all(|(_, yes)| *yes);
    let expected = match (all, allowed.is_empty()) {
        (true, _) => Verdict::Yes,
        (false, true) => Verdict::No,
        (false, false) => Verdict::Partial,
    };
    let answer =
        evaluator.evaluate(&party(from), &destination(address, *protocol, *port)).map_err(|why| why.to_string())?;
    let packet = Packet {
        inport: &start.inport,
        source: (start.mac, start.address),
        next: start.router,
        destination: address,
        protocol: *protocol,
        port: *port,
    };
    let outcome = tracer.trace(&start.datapath, &packet.flow());
    let arrived_right = outcome.delivered.is_subset(&allowed) && !(all && outcome.dropped);
    if answer.verdict == expected && arrived_right {
        return Ok(true);
    }
    let objects = world.related_objects(&[&[from][..], &places[..]].concat());
    Err(format!("{tuple:?}: {said:?}, allowed {allowed:?}, can {answer:?}\n{}\n{objects}", outcome.text))
}

#[test]
fn documentation_core_and_traces_agree() {
    let seed = std::env::var("TRUTH_SEED").ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = seed.map_or(0..CLUSTERS, |seed| seed..seed + 1);
    let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("truth").unwrap().ovn(ovn)).unwrap();
    let cluster = Cluster { lab, arguments: Vec::new() };
    let mut tracer = None;
    let (mut asked, mut of_services) = (0, 0);
    for seed in seeds.clone() {
        let mut rng = Rng::new(seed);
        let world = World::new(&mut rng, options(seed));
        write_world(&cluster.lab, &world);
        let tracer = match &mut tracer {
            Some(tracer) => {
                Tracer::refresh(tracer);
                tracer
            }
            none => none.insert(Tracer::start(&cluster, "truth")),
        };
        let evaluator = Evaluator::new(world.inputs());
        // Traffic to itself never leaves the pod.
        for tuple in tuples(&world.documented, &mut rng, TUPLES).iter().filter(|tuple| tuple.from != tuple.to) {
            check(&world, &evaluator, tracer, tuple).unwrap_or_else(|why| failed(seed, &why));
            asked += 1;
        }
        for tuple in &service_tuples(&world.documented, &mut rng, SERVICE_TUPLES) {
            let traced = check_service(&world, &evaluator, tracer, tuple).unwrap_or_else(|why| failed(seed, &why));
            of_services += usize::from(traced);
        }
    }
    println!("{asked} packets, and {of_services} to Services");
    assert!(seed.is_some() || (asked >= 2000 && of_services >= 100), "{asked} and {of_services} are too few");
}
