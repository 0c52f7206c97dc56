//! Ten thousand writes with a fault every few hundred: no acknowledged write is lost or duplicated.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lab::{Databases, Lab};
use ovsdb::client::{Client, CommitError, Committer, Resolution};
use ovsdb::datum::Atom;
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::replica::Snapshot;
use ovsdb::transaction::{Row, Transaction};

use crate::basics::cell;
use crate::common::{AGAIN, TIMEOUT, await_leader, await_replica, config, connect, databases, machine_of};

const WRITES: usize = 10_000;
const BATCH: usize = 20;
const FAULT_EVERY: usize = 400;
/// Short, so that some commits end in doubt and must be resolved.
const LIMIT: Duration = Duration::from_millis(700);
/// For a batch with all retries; far longer than an election.
const BATCH_LIMIT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_writes_under_faults_happen_exactly_once() {
    let lab = databases("storm", Databases::Raft);
    let client = connect(config(&lab)).await;
    let mut committer = Committer::take_over(client.clone(), cell(&client), "storm", TIMEOUT).await.unwrap();
    let began_at: i64 = lab.nbctl(&["get", "NB_Global", ".", "nb_cfg"]).unwrap().trim().parse().unwrap();
    let mut faults: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut resent, mut doubts) = (0, 0);
    for first in (0..WRITES).step_by(BATCH) {
        let down = if first % FAULT_EVERY == FAULT_EVERY / 2 {
            Some(inject_fault(&lab, first / FAULT_EVERY, &mut faults))
        } else {
            None
        };
        let mut batch = Transaction::new();
        for write in first..first + BATCH {
            // Inserts without UUIDs: one sent twice would exist twice.
            batch.insert("Logical_Switch", Row::new().text("name", &format!("w{write}")));
        }
        if first > 0 {
            // A deletion of a row of the previous batch, which must not reappear.
            batch.delete("Logical_Switch", vec![Condition::equals("name", &format!("w{}", first - 1))]);
        }
        // A mutation applied twice shows in the sum.
        let one_more = Mutation::new("nb_cfg", Mutator::Add, Atom::Integer(1));
        batch.mutate("NB_Global", vec![], vec![one_more]);
        let deadline = Instant::now() + BATCH_LIMIT;
        let again = async |error: &CommitError| {
            assert!(Instant::now() < deadline, "write {first} failed for {BATCH_LIMIT:?}: {error}");
            tokio::time::sleep(AGAIN).await;
        };
        loop {
            match committer.commit(&batch, LIMIT).await {
                Ok(committed) => {
                    resent += committed.sent - 1;
                    break;
                }
                Err(error @ CommitError::Call(_)) => again(&error).await,
                Err(error @ CommitError::Unresolved(_)) => {
                    again(&error).await;
                    doubts += 1;
                    let resolution = loop {
                        match committer.resolve(LIMIT).await {
                            Ok(resolution) => break resolution,
                            Err(error @ (CommitError::Unresolved(_) | CommitError::Call(_))) => again(&error).await,
                            Err(error) => panic!("write {first}: {error}"),
                        }
                    };
                    if resolution == Some(Resolution::Committed) {
                        break;
                    }
                }
                Err(error) => panic!("write {first}: {error}"),
            }
        }
        if let Some(heal) = down {
            heal(&lab);
        }
    }
    println!("faults: {faults:?}; retried: {resent}; in doubt: {doubts}");
    assert!(faults.len() >= 4 && faults.values().sum::<u32>() >= 20, "{faults:?}");
    verify(&lab, &client).await;
    let expected = began_at + i64::try_from(WRITES / BATCH).unwrap();
    // A leader that was stopped or cut off a moment ago still says that it leads, and shows what it had.
    let counted = lab::poll(TIMEOUT, || {
        let sum: i64 = lab.nbctl(&["get", "NB_Global", ".", "nb_cfg"]).unwrap().trim().parse().unwrap();
        assert!(sum <= expected, "mutations were duplicated: {sum} instead of {expected}");
        if sum == expected { Ok(()) } else { Err(sum) }
    });
    counted.unwrap_or_else(|sum| panic!("mutations were lost: {sum} instead of {expected}"));
}

type Heal = Box<dyn FnOnce(&Lab)>;

/// Injects the next fault; returns how to undo it.
fn inject_fault(lab: &Lab, turn: usize, faults: &mut BTreeMap<&'static str, u32>) -> Heal {
    let leader = await_leader(lab);
    let follower = ["nb-1", "nb-2", "nb-3"].into_iter().find(|member| *member != leader).unwrap().to_owned();
    let (kind, heal): (&'static str, Heal) = match turn % 5 {
        0 => {
            lab.kill(&leader).unwrap();
            ("leader killed", Box::new(move |lab| lab.restart(&leader).unwrap()))
        }
        1 => {
            lab.kill(&follower).unwrap();
            ("follower killed", Box::new(move |lab| lab.restart(&follower).unwrap()))
        }
        2 => {
            let paused = lab.pause(&leader).unwrap();
            ("leader stopped", Box::new(move |_| paused.resume().unwrap()))
        }
        3 => {
            let alone = machine_of(&leader);
            let others = ["db-1", "db-2", "db-3"].into_iter().filter(|name| *name != alone);
            let cuts: Vec<_> = others.map(|other| lab.partition(&alone, other).unwrap()).collect();
            ("leader cut off", Box::new(move |_| cuts.into_iter().for_each(|cut| cut.heal().unwrap())))
        }
        _ => {
            let machine = lab.machine(&machine_of(&leader)).unwrap();
            machine
                .run(&["ovn-appctl", "-t", "/run/ovn/ovnnb_db.ctl", "ovsdb-server/compact", "OVN_Northbound"])
                .unwrap();
            ("leadership handed on", Box::new(|_| ()))
        }
    };
    *faults.entry(kind).or_default() += 1;
    heal
}

/// The database has each write exactly once, less those that were deleted, and the replica is the database.
async fn verify(lab: &Lab, client: &Client) {
    let mut expected: Vec<String> = (0..WRITES).map(|write| format!("w{write}")).collect();
    expected.retain(|name| {
        let number: usize = name[1..].parse().unwrap();
        number + 1 == WRITES || !(number + 1).is_multiple_of(BATCH)
    });
    expected.sort();
    // A leader that was stopped or cut off a moment ago still says that it leads, and shows what it had.
    let found = lab::poll(TIMEOUT, || {
        let listing = lab.nbctl(&["--bare", "--columns=name", "list", "logical_switch"]).unwrap();
        let mut found: Vec<String> = listing.lines().filter(|line| !line.is_empty()).map(String::from).collect();
        found.sort();
        if found == expected { Ok(()) } else { Err(found) }
    });
    if let Err(found) = found {
        assert_eq!(found.len(), expected.len(), "writes were lost or duplicated");
        assert_eq!(found, expected);
    }
    let replica = |snapshot: &Snapshot| {
        let mut names: Vec<String> =
            snapshot.table("Logical_Switch").unwrap().iter().map(|row| row.text("name").unwrap()).collect();
        names.sort();
        names
    };
    await_replica(client, "what the database has", |snapshot| replica(snapshot) == expected).await;
}
