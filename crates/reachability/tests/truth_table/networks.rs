//! The answer for a network equals the answers for its addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netmodel::{Family, Prefix};
use objects::{ObjectKind, Protocol};
use reachability::evaluator::{Destination, Evaluation, Evaluator, Party, Verdict};
use serde_json::{Value, json};
use truth::TrafficEnd;
use truth::random::{Rng, tuples};

use crate::world::{World, options, party, protocol, single};

const CLUSTERS: u64 = 120;
const QUESTIONS: usize = 20;

/// Adds a Service for the first pod, with external addresses, a node port and source ranges.
fn add_service(world: &mut World, rng: &mut Rng) {
    let pod =
        world.objects.iter().find(|object| object["kind"] == "Pod" && !object["status"]["podIPs"].is_null()).unwrap();
    let (namespace, node) = (pod["metadata"]["namespace"].clone(), pod["spec"]["nodeName"].clone());
    let endpoint = pod["status"]["podIPs"][0]["ip"].as_str().unwrap().to_owned();
    let family = if endpoint.contains(':') { Family::V6 } else { Family::V4 };
    let [own, external, ingress, range] = match family {
        Family::V4 => ["10.96.200.99", "203.0.113.90", "203.0.113.91", "198.51.100.0/25"],
        Family::V6 => ["fd96::c899", "2001:db8:3::90", "2001:db8:3::91", "2001:db8:1::/65"],
    };
    let mut service = json!({"metadata": {"namespace": namespace, "name": "edge", "uid": "edge"},
        "spec": {"type": "LoadBalancer", "clusterIP": own, "clusterIPs": [own], "externalIPs": [external],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": ingress}]}}});
    if rng.percent(50) {
        service["spec"]["externalTrafficPolicy"] = json!("Local");
    }
    if rng.percent(50) {
        service["spec"]["loadBalancerSourceRanges"] = json!([range]);
    }
    let slice = json!({"metadata": {"namespace": namespace, "name": "edge-1", "uid": "edge-1",
            "labels": {"kubernetes.io/service-name": "edge"}},
        "addressType": family,
        "endpoints": [{"addresses": [endpoint], "nodeName": node}], "ports": [{"name": "", "protocol": "TCP", "port": 8080}]});
    for (kind, object) in [(ObjectKind::Service, service), (ObjectKind::EndpointSlice, slice)] {
        world.preview.put(kind, object.clone()).unwrap();
        world.objects.push(object);
    }
    world.preview.settle().unwrap();
}

/// All addresses and networks in a JSON value, also within strings such as annotations.
fn networks_in(value: &Value, found: &mut BTreeSet<Prefix>) {
    match value {
        Value::String(text) => {
            for word in text.split(|c: char| !(c.is_ascii_hexdigit() || ".:/".contains(c))) {
                found.extend(word.parse::<Prefix>());
                let host = word.split('/').next().unwrap_or_default();
                found.extend(host.parse().map(prefix_of));
            }
        }
        Value::Array(all) => all.iter().for_each(|one| networks_in(one, found)),
        Value::Object(all) => all.values().for_each(|one| networks_in(one, found)),
        _ => {}
    }
}

fn prefix_of(address: IpAddr) -> Prefix {
    Prefix::new(address, Family::of(address).bits()).unwrap()
}

/// All networks that affect this cluster.
fn relevant(world: &World) -> BTreeSet<Prefix> {
    let mut found = BTreeSet::new();
    world.objects.iter().for_each(|object| networks_in(object, &mut found));
    let inputs = world.inputs();
    found.extend(own_networks(world));
    for (name, own) in inputs.allocator.nodes() {
        found.extend(own.subnets());
        found.extend(own.subnets().filter_map(|subnet| subnet.nth(2)).map(prefix_of));
        let node = inputs.allocator.node(name).unwrap();
        found.extend(
            Family::BOTH.into_iter().filter_map(|family| inputs.settings.join_address(node.id, family)).map(prefix_of),
        );
    }
    for masquerade in &inputs.settings.masquerade {
        found.extend((0..8).filter_map(|place| masquerade.nth(place)).map(prefix_of));
    }
    let families: Vec<Family> = inputs.settings.families().collect();
    // The nodes' link.
    for text in ["172.18.0.0/24", "fd18::/64"] {
        found.insert(text.parse().unwrap());
    }
    found.retain(|prefix| families.contains(&prefix.family()));
    found
}

fn own_networks(world: &World) -> Vec<Prefix> {
    let settings = world.inputs().settings;
    let pods = settings.cluster.iter().map(|cidr| cidr.cidr);
    pods.chain(settings.services.iter().chain(&settings.join).chain(&settings.masquerade).copied()).collect()
}

fn step(address: IpAddr, up: bool) -> Option<IpAddr> {
    match address {
        IpAddr::V4(own) => {
            let own = u32::from(own);
            (if up { own.checked_add(1) } else { own.checked_sub(1) }).map(|next| IpAddr::V4(next.into()))
        }
        IpAddr::V6(own) => {
            let own = u128::from(own);
            (if up { own.checked_add(1) } else { own.checked_sub(1) }).map(|next| IpAddr::V6(next.into()))
        }
    }
}

/// Addresses at all boundaries in a network; without the cluster's own networks if it is larger than they are.
fn samples(network: Prefix, relevant: &BTreeSet<Prefix>, own: &[Prefix]) -> BTreeSet<IpAddr> {
    let mut samples: BTreeSet<IpAddr> = BTreeSet::from([network.network(), network.last()]);
    for prefix in relevant {
        for (address, up) in [(prefix.network(), false), (prefix.last(), true)] {
            samples.extend([Some(address), step(address, up)].into_iter().flatten());
        }
    }
    let inside = own.iter().any(|own| own.contains_prefix(network));
    samples.retain(|address| network.contains(*address) && (inside || !own.iter().any(|own| own.contains(*address))));
    samples
}

/// A network around a relevant one.
fn random_network(rng: &mut Rng, relevant: &[Prefix]) -> Prefix {
    let center = rng.pick(relevant).network();
    let lengths: &[u8] =
        if center.is_ipv6() { &[0, 32, 48, 64, 112, 120, 126] } else { &[0, 8, 14, 16, 23, 24, 28, 30] };
    Prefix::containing(center, *rng.pick(lengths)).unwrap()
}

/// The address ranges after a word in a case's text.
fn ranges(what: &str, word: &str) -> Option<Vec<(IpAddr, IpAddr)>> {
    let mut tokens = what.split(", ").skip_while(|token| !token.starts_with(word));
    let first = tokens.next()?.strip_prefix(word)?;
    let range = |token: &str| -> Option<(IpAddr, IpAddr)> {
        let (first, last) = token.split_once('-').unwrap_or((token, token));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    Some(std::iter::once(first).chain(tokens).map_while(range).collect())
}

/// Compares the answer with those of single addresses, and the ranges of its cases.
fn compare(
    evaluator: &Evaluator<'_>,
    ask: impl Fn(IpAddr) -> (Party, Destination),
    word: &str,
    addresses: &BTreeSet<IpAddr>,
    answer: &Result<Evaluation, String>,
) -> Result<(), String> {
    let mut verdicts = Vec::new();
    for address in addresses {
        let (from, to) = ask(*address);
        match (evaluator.evaluate(&from, &to), answer) {
            (Ok(one), _) => verdicts.push((*address, one.verdict)),
            (Err(_), Err(_)) => return Ok(()),
            (Err(why), Ok(answer)) => return Err(format!("{address}: {why}, but of all {:?}", answer.verdict)),
        }
    }
    let answer = answer.as_ref().map_err(|why| format!("{why}, but each address has an answer"))?;
    let is = |verdict| verdicts.iter().all(|(_, one)| *one == verdict);
    let expected = if is(Verdict::Yes) {
        Verdict::Yes
    } else if is(Verdict::No) {
        Verdict::No
    } else {
        Verdict::Partial
    };
    if answer.verdict != expected {
        return Err(format!("{:?}, but of its addresses {verdicts:?}", answer.verdict));
    }
    for (address, verdict) in verdicts {
        for case in &answer.cases {
            let Some(ranges) = ranges(&case.what, word) else { continue };
            let has = ranges.iter().any(|(first, last)| *first <= address && address <= *last);
            let contradicts = verdict == if case.yes { Verdict::No } else { Verdict::Yes };
            if has && contradicts {
                return Err(format!("{address} is {verdict:?}, but it is in {} ({})", case.what, case.yes));
            }
        }
    }
    Ok(())
}

fn check_seed(seed: u64, counts: &mut [usize; 4]) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut world = World::new(&mut rng, options(seed));
    add_service(&mut world, &mut rng);
    let evaluator = Evaluator::new(world.inputs());
    let relevant = relevant(&world);
    let centers: Vec<Prefix> = relevant.iter().copied().collect();
    let own = own_networks(&world);
    for tuple in tuples(&world.documented, &mut rng, QUESTIONS) {
        let network = random_network(&mut rng, &centers);
        let addresses = samples(network, &relevant, &own);
        let (port, protocol) = match rng.below(4) {
            0 => (80, Protocol::Tcp),
            1 => (30080, Protocol::Tcp),
            _ => (tuple.port, protocol(tuple.protocol)),
        };
        let to_network = matches!(tuple.from, TrafficEnd::Pod { .. });
        let ask = |prefix: Prefix| {
            let (from, to) = match to_network {
                true => (party(&tuple.from), Party::Network(prefix)),
                false => (Party::Network(prefix), party(&tuple.to)),
            };
            (from, Destination { party: to, protocol, port: Some(port) })
        };
        let (from, to) = ask(network);
        let answer = evaluator.evaluate(&from, &to).map_err(|why| why.to_string());
        counts[answer.as_ref().map_or(3, |answer| answer.verdict as usize)] += 1;
        let word = if to_network { "to " } else { "from " };
        compare(&evaluator, |address| ask(prefix_of(address)), word, &addresses, &answer)
            .map_err(|why| format!("{from} to {to}: {why}\n{}", world.related_objects(&[&tuple.from, &tuple.to])))?;
    }
    // Networks at both ends.
    let (from, to) = (random_network(&mut rng, &centers), random_network(&mut rng, &centers));
    let to = Destination { party: Party::Network(to), protocol: Protocol::Tcp, port: Some(80) };
    if let Ok(answer) = evaluator.evaluate(&Party::Network(from), &to) {
        let first = single(from.network());
        let part = evaluator.evaluate(&first, &to);
        let fits = part.is_ok_and(|part| answer.verdict == Verdict::Partial || part.verdict == answer.verdict);
        let inside = own.iter().any(|own| own.contains(from.network()) && !own.contains_prefix(from));
        if !fits && !inside {
            return Err(format!("{from} to {to}: {:?}", answer.verdict));
        }
    }
    Ok(())
}

#[test]
fn a_network_answer_covers_all_its_addresses() {
    let seeds = match std::env::var("TRUTH_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..CLUSTERS,
    };
    let alone = seeds.end - seeds.start == 1;
    let mut counts = [0; 4];
    for seed in seeds {
        if let Err(why) = check_seed(seed, &mut counts) {
            panic!("seed {seed} (replay it with TRUTH_SEED={seed}): {why}");
        }
    }
    println!("{} yes, {} no, {} some, {} undecided", counts[0], counts[1], counts[2], counts[3]);
    assert!(alone || counts[..3].iter().all(|count| *count > 100), "{counts:?}");
}
