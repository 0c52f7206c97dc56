//! The test: starts members and writer, injects faults, compares what the members have, and reports.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::inject::Injector;
use crate::ledger::{self, Ledger};
use crate::members::{COUNT, LIMIT, Members, machine};
use crate::schedule::Schedule;
use crate::verdict;
use crate::writer::{Writer, contents};

/// The seed of the short form; any other one works as well.
const SEED: u64 = 15;
/// The short form ends with its last fault; this only bounds a run on a busy machine.
const SHORT_SECONDS: u64 = 900;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

#[test]
fn no_acknowledged_write_is_lost_or_duplicated_under_faults() {
    let seed = variable("TORTURE_SEED").unwrap_or(SEED);
    let seconds = variable("TORTURE_SECONDS").unwrap_or(SHORT_SECONDS);
    let mut members = Members::start();
    let points = members.points();
    let (mut schedule, faults) = match variable("TORTURE_FAULTS") {
        Some(faults) => (Schedule::all(seed, points), usize::try_from(faults).unwrap()),
        None => {
            let schedule = Schedule::short(seed, points);
            let kinds = schedule.kinds();
            (schedule, kinds)
        }
    };
    let kinds = schedule.kinds();
    println!("{}; TORTURE_SEED={seed}: {faults} faults of {kinds} kinds in at most {seconds} s", members.version());

    let writer = Writer::start(&members.remotes());
    assert!(writer.await_transactions(20, LIMIT), "nothing could be written: {:?}", writer.finish().0);
    let begun = Instant::now();
    let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
    let mut injector = Injector { members: &mut members, writer: &writer, follower_writes: 0 };
    for number in 1..=faults {
        if begun.elapsed() >= Duration::from_secs(seconds) {
            println!("the time is over");
            break;
        }
        let fault = schedule.next();
        println!("{:6.1} s  fault {number}: {fault}", begun.elapsed().as_secs_f64());
        writer.ledger().begin(fault.kind());
        injector.inject(fault);
        *counts.entry(fault.kind()).or_default() += 1;
    }
    let lasted = begun.elapsed();
    let (ended, ledger) = writer.finish();
    let sequence = ended.unwrap_or_else(|error| panic!("{error}\n{}", members.describe()));
    report(&counts, &ledger, lasted);

    let expected = ledger.expected();
    for member in 0..COUNT {
        let found = members.block_on(contents(&members.remote(member), &sequence, LIMIT));
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", machine(member)));
        let problems = verdict::differences(&found, &expected, ledger.batches());
        assert!(problems.is_empty(), "{} (TORTURE_SEED={seed}): {}", machine(member), problems.join("; "));
    }
    (0..COUNT).for_each(|member| members.terminate(member));
    let checked = members.check_files();
    assert!(checked.is_ok(), "ovsdb-tool check-cluster (TORTURE_SEED={seed}): {checked:?}");
    assert_eq!(verdict::too_few(&counts, kinds, faults), None);
    println!("0 acknowledged writes lost, 0 duplicated; check-cluster is clean");
}

fn report(counts: &BTreeMap<&'static str, u32>, ledger: &Ledger, lasted: Duration) {
    let total: u32 = counts.values().sum();
    let ports = ledger.batches() * ledger::PORTS;
    println!("{:50} {:>6} {:>18}", "fault", "number", "longest write gap");
    for (kind, count) in counts {
        let gap = ledger.gaps().get(kind).copied().unwrap_or_default();
        println!("{kind:50} {count:6} {:16.1} s", gap.as_secs_f64());
    }
    println!(
        "{total} faults in {:.0} s; {ports} ports acknowledged in {} transactions ({:.0} a second); {} in doubt, {} retried",
        lasted.as_secs_f64(),
        ledger.transactions(),
        ports as f64 / lasted.as_secs_f64(),
        ledger.in_doubt,
        ledger.resent
    );
}
