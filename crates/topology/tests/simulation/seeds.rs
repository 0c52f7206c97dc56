//! Thousands of seeds, and what they did: every kind of fault must have struck.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ovsdb::schema::DatabaseSchema;

use crate::story::Story;
use crate::support::faults::Fault;
use crate::support::schema::schema;

const SEEDS: u64 = 10_000;
const STEPS: usize = 210;

struct Told {
    events: usize,
    faults: BTreeMap<Fault, usize>,
}

fn play(schema: &DatabaseSchema, seed: u64) -> Told {
    let mut story = Story::new(schema, seed);
    story.play(STEPS);
    Told { events: story.events, faults: story.faults.count }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn whatever_goes_wrong_the_network_is_right_in_the_end() {
    let schema = schema();
    if let Some(seed) = number("SIMULATION_SEED") {
        play(&schema, seed);
        return;
    }
    let seeds = number("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let told: Vec<Told> = std::thread::scope(|scope| {
        let work = || {
            let mut told = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return told;
                }
                match std::panic::catch_unwind(|| play(&schema, seed)) {
                    Ok(story) => told.push(story),
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
    report(&told);
}

fn median(mut numbers: Vec<usize>) -> usize {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Every kind of fault is counted, printed and required.
fn report(told: &[Told]) {
    let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
    for (fault, count) in told.iter().flat_map(|told| &told.faults) {
        *counts.entry(*fault).or_default() += count;
    }
    println!("{} seeds", told.len());
    for fault in Fault::ALL {
        println!("  {fault:?}: {}", counts.get(&fault).copied().unwrap_or(0));
        assert!(counts.contains_key(&fault), "{fault:?} never struck");
    }
    let events = median(told.iter().map(|told| told.events).collect());
    let faults = median(told.iter().map(|told| told.faults.values().sum()).collect());
    let restarts = median(told.iter().map(|told| told.faults.get(&Fault::Restart).copied().unwrap_or(0)).collect());
    println!("  in the median {events} events, {faults} faults, {restarts} restarts");
    assert!(events >= 200 && faults >= 3 && restarts >= 1);
}
