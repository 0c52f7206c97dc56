//! Writing on three raft members: our client interleaved with the bare one, one transaction at a time.

use std::cell::Cell;
use std::time::Instant;

use anyhow::{Context, Result};
use bench::{Contender, Figure, Goal, RUNS, Sample, interleave, ratio};
use lab::{Database, Databases, Lab, LabSpec, Ovn};
use ovsdb::operation::Condition;
use ovsdb::transaction::Transaction;

use crate::child::{bare, number};
use crate::rows::{BATCH, config, connect, make_switch, ports};

const ROWS: usize = 10_000;

pub(crate) fn figures() -> Result<Vec<Figure>> {
    let ovn = Ovn { databases: Databases::Raft, ..Ovn::default() };
    let lab = Lab::start(LabSpec::for_test("bench-ovsdb")?.ovn(ovn))?;
    // It would compile each batch into flows, on the cores that are measured.
    lab.kill("northd")?;
    let remotes = lab.record().endpoints.northbound.context("the lab has no northbound database")?;
    let run = Cell::new(0);
    let ours = || {
        run.set(run.get() + 1);
        our_rate(&remotes, &format!("ours-{}", run.get()))
    };
    let mut contenders: Vec<Contender<'_, anyhow::Error>> = vec![
        ("writes on raft, ours (rows/s)", Box::new(ours)),
        ("writes on raft, bare client (rows/s)", Box::new(|| bare_rate(&lab, &remotes))),
    ];
    let samples = interleave(RUNS, &mut contenders)?;
    samples.iter().for_each(|sample| println!("{sample}"));
    let [ours, bare] = samples.as_slice() else { anyhow::bail!("a sample is missing") };
    let goal = Some(Goal::AtLeast(0.9));
    Ok(vec![
        ratio("writes on three raft members against the bare client", ours, bare, goal),
        rate("writes on three raft members, ours", ours),
        rate("writes on three raft members, bare client", bare),
    ])
}

fn rate(name: &str, sample: &Sample) -> Figure {
    Figure::new(name, sample.median(), "rows/s")
}

/// Rows per second of our client, including building, serializing, sending and parsing.
fn our_rate(remotes: &str, switch: &str) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect(config(remotes)?).await?;
        let uuid = make_switch(&client, switch).await?;
        let numbers: Vec<usize> = (0..ROWS).collect();
        let start = Instant::now();
        for numbers in numbers.chunks(BATCH) {
            client.transact(&ports(switch, uuid, |_| switch.to_owned(), numbers)).await?;
        }
        let seconds = start.elapsed().as_secs_f64();
        // Ports are removed with their switch.
        let mut transaction = Transaction::new();
        transaction.delete("Logical_Switch", vec![Condition::uuid(uuid)]);
        client.transact(&transaction).await?;
        Ok(ROWS as f64 / seconds)
    })
}

/// Rows per second of the bare client through the leader, as it reports.
fn bare_rate(lab: &Lab, remotes: &str) -> Result<f64> {
    let leader = lab.raft_leader(Database::Northbound)?.replace("nb-", "/db-");
    let remote = remotes.split(',').find(|remote| remote.contains(&leader));
    let remote = remote.context("the leader is not among the remotes")?;
    let (rows, batch) = (ROWS.to_string(), BATCH.to_string());
    let said = bare(&["write", "--remote", remote, "--rows", &rows, "--batch", &batch, "--delete"])?;
    number(&said, "rows_per_second")
}
