//! Compares the core's answers with the documentation's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use reachability::evaluator::{Destination, Evaluation, Evaluator, Step, Verdict};
use truth::random::{Rng, ServiceTuple, Tuple, service_tuples, tuples};
use truth::{Family, Service, TrafficEnd};

use crate::world::{World, destination, options, party, protocol};

const CLUSTERS: u64 = 400;
const TUPLES: usize = 250;
const SERVICE_TUPLES: usize = 60;

/// Verdicts so far.
#[derive(Default)]
struct Counts {
    yes: usize,
    no: usize,
    some: usize,
}

impl Counts {
    fn add(&mut self, answer: &Evaluation) {
        match answer.verdict {
            Verdict::Yes => self.yes += 1,
            Verdict::No => self.no += 1,
            Verdict::Partial => self.some += 1,
        }
    }

    fn all(&self) -> usize {
        self.yes + self.no + self.some
    }
}

fn told(chain: &[Step]) -> String {
    chain.iter().map(|step| format!("    {} {}: {}\n", step.object, step.field, step.says)).collect()
}

fn shown(answer: &Evaluation) -> String {
    let cases = answer.cases.iter().map(|case| {
        let word = if case.yes { "yes" } else { "no" };
        format!("    {word}: {}\n{}", case.what, told(&case.chain))
    });
    format!("{:?}\n{}{}", answer.verdict, told(&answer.chain), cases.collect::<String>())
}

/// Compares both for a packet; the destination's address determines the family.
fn check(world: &World, evaluator: &Evaluator<'_>, tuple: &Tuple, counts: &mut Counts) -> Result<(), String> {
    let Tuple { from, to, family, .. } = tuple;
    let said = tuple.verdict(&world.documented);
    let address = world.address(to, *family).ok_or_else(|| format!("{tuple:?}: there is no such address"))?;
    let destination = destination(address, tuple.protocol, tuple.port);
    let answer = evaluator.evaluate(&party(from), &destination);
    let wrong = |found: &str| {
        let why = said.why.join("\n    ");
        let word = if said.allowed { "allowed" } else { "denied" };
        let objects = world.related_objects(&[from, to]);
        format!("{tuple:?}\n  documentation: {word}\n    {why}\n  can: {found}\n{objects}")
    };
    let answer = answer.map_err(|why| wrong(&why.to_string()))?;
    counts.add(&answer);
    let expected = if said.allowed { Verdict::Yes } else { Verdict::No };
    if answer.verdict == expected { Ok(()) } else { Err(wrong(&shown(&answer))) }
}

/// The endpoints of an answer, and whether each is reached.
fn endpoints(answer: &Evaluation) -> BTreeMap<SocketAddr, bool> {
    let mut found = BTreeMap::new();
    let mut note = |chain: &[Step], yes: bool| {
        for step in chain.iter().filter(|step| step.object.starts_with("EndpointSlice ")) {
            found.insert(step.says.split(' ').next().unwrap().parse().unwrap(), yes);
        }
    };
    note(&answer.chain, answer.verdict == Verdict::Yes);
    for case in &answer.cases {
        note(&case.chain, case.yes);
    }
    found
}

/// Compares both for a packet to a Service.
fn check_service(
    world: &World,
    evaluator: &Evaluator<'_>,
    tuple: &ServiceTuple,
    counts: &mut Counts,
) -> Result<(), String> {
    let ServiceTuple { from, service: (namespace, name), family, .. } = tuple;
    // A headless Service has no address.
    let Some(address) = world.service_address((namespace, name), *family) else { return Ok(()) };
    let documented = &world.documented;
    let said = documented.service(from, (namespace, name), tuple.protocol, tuple.port, *family);
    let destination = destination(address, tuple.protocol, tuple.port);
    let mut expected = BTreeMap::new();
    if let Service::Endpoints(endpoints) = &said {
        for endpoint in endpoints {
            // An unallocated cluster address is unreachable, whatever policies allow.
            let nobody = matches!(endpoint.place, TrafficEnd::External(_));
            let verdict = documented.verdict(from, &endpoint.place, tuple.protocol, endpoint.port, *family);
            expected.insert(SocketAddr::new(endpoint.address, endpoint.port), verdict.allowed && !nobody);
        }
    }
    let verdict = match (expected.values().any(|yes| *yes), expected.values().all(|yes| *yes)) {
        (true, true) => Verdict::Yes,
        (true, false) => Verdict::Partial,
        (false, _) => Verdict::No,
    };
    let wrong = |found: &str| {
        let mut places = vec![from];
        if let Service::Endpoints(endpoints) = &said {
            places.extend(endpoints.iter().map(|endpoint| &endpoint.place));
        }
        let own = TrafficEnd::pod(namespace, "");
        places.push(&own);
        let objects = world.related_objects(&places);
        format!("{tuple:?}\n  documentation: {said:?}, {expected:?}\n  can: {found}\n{objects}")
    };
    let answer = evaluator.evaluate(&party(from), &destination).map_err(|why| wrong(&why.to_string()))?;
    counts.add(&answer);
    if (answer.verdict, endpoints(&answer)) == (verdict, expected.clone()) {
        Ok(())
    } else {
        Err(wrong(&shown(&answer)))
    }
}

/// All queries for a seed's cluster.
fn check_seed(seed: u64) -> Result<(Counts, Counts), String> {
    let mut rng = Rng::new(seed);
    let world = World::new(&mut rng, options(seed));
    let evaluator = Evaluator::new(world.inputs());
    let (mut pods, mut services) = (Counts::default(), Counts::default());
    for tuple in tuples(&world.documented, &mut rng, TUPLES) {
        check(&world, &evaluator, &tuple, &mut pods)?;
    }
    for tuple in service_tuples(&world.documented, &mut rng, SERVICE_TUPLES) {
        check_service(&world, &evaluator, &tuple, &mut services)?;
    }
    Ok((pods, services))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn the_core_agrees_with_the_api_documentation() {
    let seeds = match number("TRUTH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TRUTH_CLUSTERS").unwrap_or(CLUSTERS),
    };
    let next = AtomicU64::new(seeds.start);
    let sums = Mutex::new((Counts::default(), Counts::default()));
    let failures = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !failures.lock().unwrap().is_empty() {
                        return;
                    }
                    match check_seed(seed) {
                        Ok((pods, services)) => {
                            let mut sums = sums.lock().unwrap();
                            for (sum, one) in [(0, pods), (1, services)] {
                                let sum = if sum == 0 { &mut sums.0 } else { &mut sums.1 };
                                sum.yes += one.yes;
                                sum.no += one.no;
                                sum.some += one.some;
                            }
                        }
                        Err(why) => drop(failures.lock().unwrap().insert(seed, why)),
                    }
                }
            });
        }
    });
    if let Some((seed, why)) = failures.into_inner().unwrap().into_iter().next() {
        panic!("seed {seed} (replay it with TRUTH_SEED={seed}): {why}");
    }
    let (pods, services) = sums.into_inner().unwrap();
    println!("{} questions: {} yes, {} no", pods.all(), pods.yes, pods.no);
    println!("{} about Services: {} yes, {} no, {} some", services.all(), services.yes, services.no, services.some);
    if seeds.end - seeds.start == CLUSTERS {
        assert_eq!(pods.all(), 100_000);
        // No verdict is rare, so that each is really tested.
        assert!(pods.yes.min(pods.no) > 20_000 && services.yes.min(services.no).min(services.some) > 500);
    }
}

/// A query by name is answered for both families.
#[test]
fn a_pod_name_is_evaluated_for_both_families() {
    let mut told = [0; 3];
    for seed in (0..120).step_by(3) {
        let mut rng = Rng::new(seed);
        let world = World::new(&mut rng, options(seed));
        let evaluator = Evaluator::new(world.inputs());
        for tuple in tuples(&world.documented, &mut rng, 50) {
            let (TrafficEnd::Pod { .. }, TrafficEnd::Pod { .. }) = (&tuple.from, &tuple.to) else { continue };
            let of = |family| Tuple { family, ..tuple.clone() }.verdict(&world.documented).allowed;
            let expected = match (of(Family::V4), of(Family::V6)) {
                (true, true) => Verdict::Yes,
                (false, false) => Verdict::No,
                _ => Verdict::Partial,
            };
            let (party, protocol) = (self::party(&tuple.to), protocol(tuple.protocol));
            let destination = Destination { party, protocol, port: Some(tuple.port) };
            let answer = evaluator.evaluate(&self::party(&tuple.from), &destination);
            let answer = match answer {
                Ok(answer) => answer,
                Err(why) => panic!("seed {seed}: {tuple:?}: {why}"),
            };
            assert_eq!(answer.verdict, expected, "seed {seed}: {tuple:?}: {}", shown(&answer));
            told[expected as usize] += 1;
        }
    }
    assert!(told.iter().all(|count| *count > 0), "{told:?}");
}
