//! Writes ports through our client as the controller does: computed row identity, one fenced transaction at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ovsdb::client::{
    CallError, Client, CommitError, Committer, Config, Remote, Resolution, SequenceCell, TableMonitor,
};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use tokio::time::sleep;

use crate::ledger::{Batch, Ledger, uuid};
use crate::verdict::Contents;

/// A batch of ten ports is due each time: 200 ports a second.
const PERIOD: Duration = Duration::from_millis(50);
/// Batches of one transaction, if the database was slow: as the controller, which then writes up to 200 objects at once.
const MOST: u64 = 20;
/// An election takes less; a longer wait is printed, to be compared with the logs of the members.
const NOTABLE: Duration = Duration::from_secs(4);
/// Short, so that some commits end in doubt and must be resolved.
const COMMIT_LIMIT: Duration = Duration::from_secs(1);
/// For one batch with all retries; far longer than any fault lasts.
const BATCH_LIMIT: Duration = Duration::from_secs(240);
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(20);
const DATABASE: &str = "OVN_Northbound";
const SEQUENCE: &str = "torture-sequence";

/// Runs in a thread of its own until it is told to finish.
pub(crate) struct Writer {
    ledger: Arc<Mutex<Ledger>>,
    finish: Arc<AtomicBool>,
    thread: JoinHandle<Result<String, String>>,
}

impl Writer {
    /// Starts writing to the leader of these servers.
    pub(crate) fn start(remotes: &str) -> Self {
        let (ledger, finish) = (Arc::new(Mutex::new(Ledger::default())), Arc::new(AtomicBool::new(false)));
        let remotes = Remote::parse_list(remotes).unwrap();
        let (shared, told) = (ledger.clone(), finish.clone());
        let thread = std::thread::spawn(move || runtime().block_on(write(remotes, shared, told)));
        Self { ledger, finish, thread }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Waits until this many more transactions are acknowledged; false if the writer ended or the time is over.
    pub(crate) fn await_transactions(&self, more: u64, limit: Duration) -> bool {
        let (target, deadline) = (self.ledger().transactions() + more, Instant::now() + limit);
        while self.ledger().transactions() < target {
            if self.thread.is_finished() || Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(RETRY);
        }
        true
    }

    /// Lets the batch in flight end; returns the last sequence value and the ledger, or why the writer gave up.
    pub(crate) fn finish(self) -> (Result<String, String>, Ledger) {
        self.finish.store(true, Ordering::SeqCst);
        let ended = self.thread.join().unwrap_or_else(|_| Err("the writer panicked".into()));
        (ended, std::mem::take(&mut lock(&self.ledger)))
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn config(remotes: Vec<Remote>) -> Config {
    let mut config = Config::new(remotes, DATABASE)
        .monitor(TableMonitor::new("NB_Global").columns(&["nb_cfg", "external_ids"]))
        .monitor(TableMonitor::new("Logical_Switch").columns(&["name"]))
        .monitor(TableMonitor::new("Logical_Switch_Port").columns(&["name"]));
    // As the controller.
    config.probe_interval = Duration::from_secs(5);
    config
}

fn cell(client: &Client) -> Result<SequenceCell, String> {
    let row = client.snapshot().table("NB_Global").and_then(|table| table.iter().next().map(|row| row.uuid));
    let uuid = row.ok_or("the new database has no row in NB_Global")?;
    Ok(SequenceCell { table: "NB_Global".into(), uuid, column: "external_ids".into(), key: SEQUENCE.into() })
}

async fn write(remotes: Vec<Remote>, ledger: Arc<Mutex<Ledger>>, finish: Arc<AtomicBool>) -> Result<String, String> {
    let client = Client::start(config(remotes));
    client.connected(CONNECT_LIMIT).await.map_err(|error| error.to_string())?;
    let taken = Committer::take_over(client.clone(), cell(&client)?, "torture", CONNECT_LIMIT).await;
    let mut committer = taken.map_err(|error| error.to_string())?;
    let begun = Instant::now();
    while !finish.load(Ordering::SeqCst) {
        let first = lock(&ledger).next();
        // The ports come whether or not the last ones are written.
        let due = begun.elapsed().as_millis() / PERIOD.as_millis();
        let number = u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(first.0).min(MOST);
        if number == 0 {
            sleep(PERIOD / 5).await;
            continue;
        }
        let batches: Vec<Batch> = (first.0..first.0 + number).map(Batch).collect();
        let sent = begun.elapsed();
        commit(&mut committer, &transaction(&batches), &ledger)
            .await
            .map_err(|error| format!("batch {}: {error}", first.0))?;
        let acknowledged = begun.elapsed();
        if acknowledged - sent >= NOTABLE {
            println!(
                "{:6.1} s  a write waited for {:.1} s",
                acknowledged.as_secs_f64(),
                (acknowledged - sent).as_secs_f64()
            );
        }
        lock(&ledger).acknowledge(number, acknowledged);
    }
    Ok(committer.sequence().unwrap_or_default().to_owned())
}

/// Repeats a transaction until the database has it, exactly once.
async fn commit(committer: &mut Committer, batch: &Transaction, ledger: &Mutex<Ledger>) -> Result<(), String> {
    let deadline = Instant::now() + BATCH_LIMIT;
    let retry = async |error: CommitError| {
        sleep(RETRY).await;
        if Instant::now() < deadline { Ok(()) } else { Err(format!("not written within {BATCH_LIMIT:?}: {error}")) }
    };
    loop {
        match committer.commit(batch, COMMIT_LIMIT).await {
            Ok(committed) => {
                lock(ledger).resent += u64::from(committed.sent - 1);
                return Ok(());
            }
            Err(error @ CommitError::Call(_)) => retry(error).await?,
            Err(error @ CommitError::Unresolved(_)) => {
                lock(ledger).in_doubt += 1;
                retry(error).await?;
                let resolution = loop {
                    match committer.resolve(COMMIT_LIMIT).await {
                        Ok(resolution) => break resolution,
                        Err(error @ (CommitError::Unresolved(_) | CommitError::Call(_))) => retry(error).await?,
                        Err(error) => return Err(error.to_string()),
                    }
                };
                if resolution == Some(Resolution::Committed) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The operations of these batches.
fn transaction(batches: &[Batch]) -> Transaction {
    let mut transaction = Transaction::new();
    batches.iter().for_each(|batch| add_batch(&mut transaction, *batch));
    // A batch that takes effect twice shows in the sum.
    let number = Atom::Integer(batches.len().try_into().unwrap_or(i64::MAX));
    transaction.mutate("NB_Global", vec![], vec![Mutation::new("nb_cfg", Mutator::Add, number)]);
    transaction
}

fn add_batch(transaction: &mut Transaction, batch: Batch) {
    let (switch, is_new) = batch.switch();
    if is_new {
        let row = Row::new().text("name", &format!("switch-{switch}"));
        transaction.insert_with_uuid("Logical_Switch", uuid(1, switch, 0), row);
    }
    let ports = batch.ports();
    for (name, port) in &ports {
        transaction.insert_with_uuid("Logical_Switch_Port", *port, Row::new().text("name", name));
    }
    change_ports(transaction, switch, Mutator::Insert, ports.into_iter().map(|(_, port)| port));
    if let Some(old) = batch.deletes() {
        // A port without a switch is removed by the server.
        let ports = old.ports().into_iter().skip(1).map(|(_, port)| port);
        change_ports(transaction, old.switch().0, Mutator::Delete, ports);
    }
}

fn change_ports(transaction: &mut Transaction, switch: u64, how: Mutator, ports: impl Iterator<Item = Uuid>) {
    let mutation = Mutation::new("ports", how, Datum::set(ports.map(Atom::Uuid)));
    transaction.mutate("Logical_Switch", vec![Condition::uuid(uuid(1, switch, 0))], vec![mutation]);
}

/// A switch that is written through one server, which may be a follower. The server may crash meanwhile.
pub(crate) async fn write_switch(remote: &str, number: u64, limit: Duration) -> Result<String, CallError> {
    let mut config = config(Remote::parse_list(remote).unwrap());
    config.leader_only = false;
    let client = Client::start(config);
    let name = format!("follower-{number}");
    let mut transaction = Transaction::new();
    transaction.insert_with_uuid("Logical_Switch", uuid(3, number, 0), Row::new().text("name", &name));
    match client.transact_within(&transaction, limit).await {
        // An earlier attempt had taken effect.
        Err(CallError::Refused(refusal)) if refusal.error.error == "duplicate uuid" => Ok(name),
        outcome => outcome.map(|_| name),
    }
}

/// What one server has, as soon as it has the last commit.
pub(crate) async fn contents(remote: &str, sequence: &str, limit: Duration) -> Result<Contents, String> {
    let mut config = config(Remote::parse_list(remote).unwrap());
    config.leader_only = false;
    let client = Client::start(config);
    client.connected(limit).await.map_err(|error| error.to_string())?;
    let cell = cell(&client)?;
    let mut changes = client.subscribe();
    let caught_up = async {
        while cell.value_in(&client.snapshot()).as_deref() != Some(sequence) {
            changes.next().await;
        }
    };
    tokio::time::timeout(limit, caught_up)
        .await
        .map_err(|_| format!("its sequence value is {:?} and not {sequence}", cell.value_in(&client.snapshot())))?;
    let snapshot = client.snapshot();
    let tables = ["Logical_Switch", "Logical_Switch_Port"].into_iter().filter_map(|table| snapshot.table(table));
    let names = tables.flat_map(|table| table.iter().filter_map(|row| row.text("name")).collect::<Vec<_>>()).collect();
    let global = snapshot.table("NB_Global").and_then(|table| table.iter().next()?.integer("nb_cfg"));
    Ok(Contents { names, counter: global.unwrap_or_default() })
}
