//! Controller and agents select the same Services and endpoints, for random objects in any order.
//!
//! ```text
//!  random history ─┬─▶ Store, desired ──▶ load balancers, resolved with each node's template values ─┐
//!                  └─▶ NodeServices of each node, other order ──▶ exposures ─────────────────────────┴─▶ equal
//! ```
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use netmodel::{Family, Masquerade};
use objects::{NodeFacts, ObjectKey, ObjectKind, Protocol, ServiceFacts, SliceFacts};
use ovsdb::datum::Atom;
use serde_json::{Value, json};
use topology::ClusterSettings;
use topology::allocation::Allocator;
use topology::contribution::{Aliases, Contribution};
use topology::desired::{Inputs, desired};
use topology::identity::{Owner, row_uuid};
use topology::maps;
use topology::services::{ListenAddress, NodeServices};
use topology::store::Store;
use truth::random::{Options, Rng, api_server_slice, expose, pods, services};

const HISTORIES: u64 = 400;
const STEPS: usize = 14;

const KINDS: [ObjectKind; 3] = [ObjectKind::Node, ObjectKind::Service, ObjectKind::EndpointSlice];

#[derive(Debug, Clone)]
enum Event {
    Put(Value),
    Delete(ObjectKey),
}

/// Objects as an API server has them, and their events by kind.
struct Api {
    objects: BTreeMap<(&'static str, ObjectKey), Value>,
    events: BTreeMap<&'static str, Vec<Event>>,
    clock: usize,
}

fn kind_of(object: &Value) -> ObjectKind {
    KINDS.into_iter().find(|kind| object["kind"] == kind.name()).unwrap()
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

impl Api {
    fn put(&mut self, mut object: Value) {
        let (kind, key) = (kind_of(&object).name(), key_of(&object));
        let known = self.objects.get(&(kind, key.clone())).map(|known| known["metadata"].clone());
        self.clock += 1;
        let made = known.unwrap_or_else(|| {
            // Some have the same creation time.
            json!({"uid": format!("u{}", self.clock), "creationTimestamp": format!("{:04}", self.clock / 3)})
        });
        for field in ["uid", "creationTimestamp"] {
            object["metadata"][field] = made[field].clone();
        }
        self.objects.insert((kind, key), object.clone());
        self.events.entry(kind).or_default().push(Event::Put(object));
    }

    fn delete(&mut self, kind: ObjectKind, key: &ObjectKey) {
        if self.objects.remove(&(kind.name(), key.clone())).is_some() {
            self.events.entry(kind.name()).or_default().push(Event::Delete(key.clone()));
        }
    }

    fn of(&self, kind: ObjectKind) -> Vec<Value> {
        self.objects.iter().filter(|((known, _), _)| *known == kind.name()).map(|(_, object)| object.clone()).collect()
    }
}

/// The agent's annotations of a node.
fn annotate(node: &mut Value, more: &[&str]) {
    let own = node["status"]["addresses"].as_array().unwrap().iter();
    let own = own.map(|entry| entry["address"].as_str().unwrap());
    let cidrs: Vec<String> = own.chain(more.iter().copied()).map(|address| format!("{address}/24")).collect();
    let name = node["metadata"]["name"].clone();
    node["metadata"]["annotations"] = json!({
        "k8s.ovn.org/node-chassis-id": format!("chassis-{}", name.as_str().unwrap()),
        "k8s.ovn.org/host-cidrs": json!(cidrs).to_string(),
    });
}

/// One random change of a Service, a slice, a node's addresses or the API servers' addresses.
fn step(rng: &mut Rng, api: &mut Api, alive: &[Value]) {
    let nodes = api.of(ObjectKind::Node);
    let mut known: Vec<Value> = api.of(ObjectKind::Service);
    match rng.below(10) {
        0..=3 if !known.is_empty() => {
            expose(rng, &mut known, &nodes);
            api.put(rng.pick(&known).clone());
        }
        4 if !known.is_empty() => api.delete(ObjectKind::Service, &key_of(rng.pick(&known))),
        5 | 6 => {
            for mut object in services(rng, alive) {
                if object["kind"] == "Service" {
                    expose(rng, std::slice::from_mut(&mut object), &nodes);
                }
                if rng.percent(50) {
                    api.put(object);
                }
            }
        }
        7 => {
            let slices = api.of(ObjectKind::EndpointSlice);
            if !slices.is_empty() {
                api.delete(ObjectKind::EndpointSlice, &key_of(rng.pick(&slices)));
            }
        }
        8 => {
            let mut node = rng.pick(&nodes).clone();
            let more = *rng.pick(&["198.51.100.7", "203.0.113.7", "2001:db8:1::7"]);
            annotate(&mut node, if rng.percent(60) { std::slice::from_ref(&more) } else { &[] });
            api.put(node);
        }
        _ => api.put(api_server_slice(rng)),
    }
}

/// Interleaves the events of all kinds randomly: watches are not ordered.
fn mixed(rng: &mut Rng, events: &BTreeMap<&'static str, Vec<Event>>) -> Vec<(ObjectKind, Event)> {
    let mut queues: Vec<(ObjectKind, std::vec::IntoIter<Event>)> = KINDS
        .into_iter()
        .map(|kind| (kind, events.get(kind.name()).cloned().unwrap_or_default().into_iter()))
        .collect();
    let mut mixed = Vec::new();
    while !queues.is_empty() {
        let place = rng.below(queues.len());
        match queues[place].1.next() {
            Some(event) => mixed.push((queues[place].0, event)),
            None => drop(queues.remove(place)),
        }
    }
    mixed
}

fn feed_store(store: &mut Store, kind: ObjectKind, event: &Event) {
    match (kind, event) {
        (ObjectKind::Node, Event::Put(object)) => drop(store.put_node(NodeFacts::parse(&object.to_string()).unwrap())),
        (ObjectKind::Service, Event::Put(object)) => {
            let facts = ServiceFacts::parse(&object.to_string()).unwrap();
            assert_eq!(facts.broken, None, "{object}");
            store.put_service(facts);
        }
        (_, Event::Put(object)) => drop(store.put_slice(SliceFacts::parse(&object.to_string()).unwrap())),
        (ObjectKind::Node, Event::Delete(key)) => drop(store.remove_node(&key.name, None)),
        (ObjectKind::Service, Event::Delete(key)) => drop(store.remove_service(key, None)),
        (_, Event::Delete(key)) => drop(store.remove_slice(key, None)),
    }
}

fn feed_agent(agent: &mut NodeServices, kind: ObjectKind, event: &Event) {
    match (kind, event) {
        (ObjectKind::Node, Event::Put(object)) => agent.put_node(NodeFacts::parse(&object.to_string()).unwrap()),
        (ObjectKind::Service, Event::Put(object)) => {
            agent.put_service(ServiceFacts::parse(&object.to_string()).unwrap())
        }
        (_, Event::Put(object)) => agent.put_slice(SliceFacts::parse(&object.to_string()).unwrap()),
        (_, Event::Delete(key)) => agent.remove(kind, key, None),
    };
}

/// What a gateway router serves under an address and port: the Service, and the endpoints of clients that keep their
/// address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    service: ObjectKey,
    local: Option<BTreeSet<SocketAddr>>,
}

type Entries = BTreeMap<(SocketAddr, Protocol), Entry>;

/// The entries of a node's gateway router, from the controller's rows.
fn of_controller(store: &Store, settings: &ClusterSettings, node: &NodeFacts) -> Entries {
    let allocator = Allocator::new(settings).unwrap();
    let aliases = Aliases::default();
    let given = Inputs { settings, store, allocator: &allocator, aliases: &aliases };
    let mut entries = Entries::new();
    for service in store.services() {
        let made = desired(&Owner::Service(service.key.clone()), given).unwrap();
        let variables = variables(&made, node, store, settings);
        for row in made.rows.iter().filter(|row| row.id.table == "Load_Balancer") {
            if !on_routers(&made, row.id.uuid) {
                continue;
            }
            let protocol = Protocol::ALL.into_iter().find(|one| row.values["protocol"].to_string() == one.ovn_name());
            let keeps = row.values["options"].get_str("skip_snat").as_deref() == Some("true");
            for (vip, backends) in row.values["vips"].pairs() {
                // Every chassis has a value for every variable, else ovn-controller logs warnings.
                let vip = resolved(&vip.to_string(), &variables);
                if vip.ip().is_unspecified() {
                    continue;
                }
                let backends = resolved_list(&backends.to_string(), &variables);
                let nowhere = |one: &&SocketAddr| {
                    settings.masquerade_address(Masquerade::Blackhole, Family::of(one.ip())) != Some(one.ip())
                };
                let local = keeps.then(|| backends.iter().filter(nowhere).copied().collect());
                let entry = Entry { service: (*service.key).clone(), local };
                let before = entries.insert((vip, protocol.unwrap()), entry);
                assert_eq!(before, None, "{vip} is served twice");
            }
        }
    }
    entries
}

fn on_routers(made: &Contribution, balancer: ovsdb::uuid::Uuid) -> bool {
    let groups = ["clusterLBGroup", "clusterRouterLBGroup"]
        .map(|name| row_uuid("Load_Balancer_Group", "Cluster", "cluster", name));
    let joins = |atom: &Atom| matches!(atom, Atom::Uuid(uuid) if *uuid == balancer);
    made.members.iter().any(|member| joins(&member.atom) && groups.contains(&member.column.row.uuid))
}

fn host_addresses(node: &NodeFacts, family: Family) -> Vec<IpAddr> {
    let said = node.host_addresses.valid().map(AsRef::as_ref).unwrap_or_default();
    let mut own: Vec<IpAddr> = said.iter().copied().filter(|address: &IpAddr| family.matches(*address)).collect();
    own.sort_unstable();
    own.dedup();
    own
}

fn variables(
    made: &Contribution,
    node: &NodeFacts,
    store: &Store,
    settings: &ClusterSettings,
) -> BTreeMap<String, String> {
    let chassis = node.chassis.as_ref().unwrap();
    let row = row_uuid("Chassis_Template_Var", "Node", chassis, "variables");
    let own = made.members.iter().filter(|member| member.column.row.uuid == row).map(|member| {
        let (name, value) = maps::pair(&member.atom);
        (name.to_string(), value.to_string())
    });
    let mut variables: BTreeMap<String, String> = own.collect();
    for family in settings.families() {
        let own = host_addresses(node, family);
        let most = store.nodes().map(|node| host_addresses(node, family).len()).max().unwrap_or_default();
        for n in 0..most {
            let unused = family.unspecified().to_string();
            let address = own.get(n).map_or_else(|| unused.clone(), ToString::to_string);
            variables.insert(format!("NODEIP_{family}_{n}"), address);
        }
    }
    variables
}

fn resolved(vip: &str, variables: &BTreeMap<String, String>) -> SocketAddr {
    let Some(name) = vip.strip_prefix('^') else { return vip.parse().unwrap() };
    let (name, port) = name.rsplit_once(':').unwrap();
    SocketAddr::new(variables[name].parse().unwrap(), port.parse().unwrap())
}

fn resolved_list(backends: &str, variables: &BTreeMap<String, String>) -> Vec<SocketAddr> {
    let text = match backends.strip_prefix('^') {
        Some(name) => variables[name].as_str(),
        None => backends,
    };
    text.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect()
}

/// Compares both for a node; returns the number of addresses, and of those with local endpoints only.
fn compare(store: &Store, settings: &ClusterSettings, agent: &NodeServices, node: &NodeFacts) -> (usize, usize) {
    let served = of_controller(store, settings, node);
    let cluster_ips: BTreeSet<(ObjectKey, IpAddr)> = store
        .services()
        .flat_map(|service| {
            let ips = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter());
            ips.map(|ip| ((*service.key).clone(), *ip))
        })
        .collect();
    let inside = |socket: &SocketAddr, entry: &Entry| cluster_ips.contains(&(entry.service.clone(), socket.ip()));
    let expected: BTreeMap<_, _> = served
        .iter()
        .filter(|((socket, _), entry)| !inside(socket, entry))
        .map(|(key, entry)| (*key, entry.local.clone()))
        .collect();
    let mut found = BTreeMap::new();
    for exposure in agent.exposures(settings) {
        let addresses = match exposure.listen {
            ListenAddress::Node(family) => host_addresses(node, family),
            ListenAddress::Address(address) => vec![address],
        };
        for address in addresses {
            let key = (SocketAddr::new(address, exposure.port), exposure.protocol);
            // A gateway router reaches its own host by the masquerade address.
            let stands = |own: IpAddr| settings.masquerade_address(Masquerade::Host, Family::of(own)).unwrap();
            let targets = exposure.endpoints.iter().map(|(address, port)| {
                let own = host_addresses(node, Family::of(*address)).contains(address);
                SocketAddr::new(if own { stands(*address) } else { *address }, *port)
            });
            let local = exposure.preserves_source.then(|| targets.collect::<BTreeSet<_>>());
            assert_eq!(found.insert(key, local), None, "{key:?} is exposed twice");
            // The host's traffic goes to the same Service.
            if let (Some((address, port)), Some(own)) = (exposure.host_target, served.get(&key)) {
                let socket = (SocketAddr::new(address, port), exposure.protocol);
                assert_eq!(served.get(&socket).map(|entry| &entry.service), Some(&own.service), "{socket:?}");
            }
        }
    }
    assert_eq!(found, expected, "node {}: agent (left) and controller (right) differ", node.name);
    (found.len(), found.values().flatten().count())
}

fn play(seed: u64) -> (usize, usize, usize) {
    use truth::Family::{V4, V6};
    const FAMILIES: [&[truth::Family]; 3] = [&[V4, V6], &[V4], &[V6]];
    let mut rng = Rng::new(seed);
    let families = FAMILIES[usize::try_from(seed % 3).unwrap()];
    let networks = |family: &truth::Family| match family {
        V4 => ("10.128.0.0/14/23", "10.96.0.0/16"),
        V6 => ("fd01::/48/64", "fd96::/112"),
    };
    let wanted = || families.iter().map(networks);
    let mut settings = ClusterSettings::new(
        wanted().map(|(pods, _)| pods.parse().unwrap()).collect(),
        // In some clusters the setting is stale: cluster IPs are outside the range.
        wanted().filter(|_| !seed.is_multiple_of(5)).map(|(_, services)| services.parse().unwrap()).collect(),
    );
    settings.features = ovn_schema::northbound::DATABASE.check(&ovn_schema::northbound::schema()).features();
    let objects = pods(&mut rng, Options { families, admin: false, services: true });
    let alive: Vec<Value> = objects.iter().filter(|object| object["status"]["phase"] != "Succeeded").cloned().collect();
    let mut api = Api { objects: BTreeMap::new(), events: BTreeMap::new(), clock: 0 };
    for mut node in objects.into_iter().filter(|object| object["kind"] == "Node") {
        annotate(&mut node, &[]);
        api.put(node);
    }
    api.put(api_server_slice(&mut rng));
    let mut store = Store::default();
    let names = ["n1", "n2"];
    let mut agents = names.map(NodeServices::new);
    let (mut all, mut local, mut refused) = (0, 0, 0);
    for _ in 0..STEPS {
        for _ in 0..rng.between(1, 3) {
            step(&mut rng, &mut api, &alive);
        }
        for (kind, event) in mixed(&mut rng, &api.events) {
            feed_store(&mut store, kind, &event);
        }
        for agent in &mut agents {
            if rng.percent(20) {
                // It missed the events, and lists everything.
                for kind in KINDS {
                    agent.relisting(kind);
                    for object in api.of(kind) {
                        feed_agent(agent, kind, &Event::Put(object));
                    }
                    agent.listed(kind);
                }
                continue;
            }
            for (kind, event) in mixed(&mut rng, &api.events) {
                feed_agent(agent, kind, &event);
            }
        }
        api.events.clear();
        for (agent, name) in agents.iter().zip(names) {
            let (one, two) = compare(&store, &settings, agent, store.node(name).unwrap());
            all += one;
            local += two;
        }
        let allocator = Allocator::new(&settings).unwrap();
        let given = Inputs { settings: &settings, store: &store, allocator: &allocator, aliases: &Aliases::default() };
        let refusal =
            |service: &ServiceFacts| desired(&Owner::Service(service.key.clone()), given).unwrap().refusal.is_some();
        refused += store.services().filter(|service| refusal(service)).count();
    }
    (all, local, refused)
}

#[test]
fn agents_expose_what_the_controller_serves() {
    let seeds = match std::env::var("SERVICES_SEED") {
        Ok(seed) => seed.parse().unwrap()..seed.parse::<u64>().unwrap() + 1,
        Err(_) => 0..HISTORIES,
    };
    let whole = seeds.end - seeds.start == HISTORIES;
    let (mut all, mut local, mut refused) = (0, 0, 0);
    for seed in seeds {
        let played = std::panic::catch_unwind(|| play(seed));
        let Ok(played) = played else { panic!("seed {seed} (replay it with SERVICES_SEED={seed})") };
        all += played.0;
        local += played.1;
        refused += played.2;
    }
    println!("{all} addresses were compared, {local} of them with endpoints of one node; {refused} refusals");
    // None is rare, so that each is really compared.
    assert!(!whole || (all > 20_000 && local > 5_000 && refused > 2_000), "{all} {local} {refused}");
}
