//! Runs thousands of seeds; every kind of fault must have occurred.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ovsdb::schema::DatabaseSchema;

use crate::scenario::Scenario;
use crate::support::faults::Fault;
use crate::support::schema::schema;

/// `make soak` runs more.
const SEEDS: u64 = 3_000;
const STEPS: usize = 210;

struct Outcome {
    events: usize,
    faults: BTreeMap<Fault, usize>,
}

fn run(schema: &DatabaseSchema, seed: u64) -> Outcome {
    let mut scenario = Scenario::new(schema, seed);
    scenario.run(STEPS);
    Outcome { events: scenario.events, faults: scenario.faults.count }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn the_network_converges_under_random_faults() {
    let schema = schema();
    if let Some(seed) = number("SIMULATION_SEED") {
        run(&schema, seed);
        return;
    }
    let seeds = number("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let work = || {
            let mut outcomes = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return outcomes;
                }
                match std::panic::catch_unwind(|| run(&schema, seed)) {
                    Ok(scenario) => outcomes.push(scenario),
                    Err(panic) => {
                        eprintln!("seed {seed} failed; replay it with SIMULATION_SEED={seed}");
                        std::panic::resume_unwind(panic);
                    }
                }
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    report(&outcomes);
}

fn median(mut numbers: Vec<usize>) -> usize {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Prints the faults, and fails if a kind never occurred.
fn report(outcomes: &[Outcome]) {
    let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
    for (fault, count) in outcomes.iter().flat_map(|outcome| &outcome.faults) {
        *counts.entry(*fault).or_default() += count;
    }
    println!("{} seeds", outcomes.len());
    for fault in Fault::ALL {
        println!("  {fault:?}: {}", counts.get(&fault).copied().unwrap_or(0));
        assert!(counts.contains_key(&fault), "{fault:?} never occurred");
    }
    let events = median(outcomes.iter().map(|outcome| outcome.events).collect());
    let faults = median(outcomes.iter().map(|outcome| outcome.faults.values().sum()).collect());
    let restarts =
        median(outcomes.iter().map(|outcome| outcome.faults.get(&Fault::Restart).copied().unwrap_or(0)).collect());
    println!("  in the median {events} events, {faults} faults, {restarts} restarts");
    assert!(events >= 200 && faults >= 3 && restarts >= 1);
}
