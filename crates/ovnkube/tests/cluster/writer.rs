//! A client that writes rows, one after the other, while servers come and go.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::Machine;
use ovsdb::client::{Client, CommitError, Committer, Config, Remote, Resolution, SequenceCell, TableMonitor, TlsFiles};
use ovsdb::transaction::{Row, Transaction};

const LIMIT: Duration = Duration::from_secs(120);

/// What was written.
pub(crate) struct Written {
    /// Names of the rows whose commit was acknowledged.
    pub(crate) acknowledged: Vec<String>,
    /// Errors of writes that a server rejected, or that could not be sent within their limit.
    pub(crate) failed: Vec<String>,
    /// The longest time between two acknowledgements.
    pub(crate) longest_gap: Duration,
}

impl Written {
    /// No write failed, every acknowledged row exists once, and there are no others of this writer.
    pub(crate) fn assert_complete(&self, rows: &[String]) {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.starts_with("written-")) {
            *count.entry(row).or_default() += 1;
        }
        assert!(self.failed.is_empty(), "writes failed: {:?}", self.failed);
        let lost: Vec<&String> = self.acknowledged.iter().filter(|row| !count.contains_key(row.as_str())).collect();
        assert!(lost.is_empty(), "acknowledged, but not there: {lost:?}");
        let twice: Vec<_> = count.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "there more than once: {twice:?}");
        assert_eq!(count.len(), self.acknowledged.len(), "rows that were never acknowledged");
    }
}

pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    rows: Arc<AtomicUsize>,
    thread: JoinHandle<Written>,
}

impl Writer {
    /// Writes from a machine's network to the northbound servers at these addresses, until it is stopped.
    pub(crate) fn start(machine: Machine, addresses: &[IpAddr], tls: &TlsFiles) -> Self {
        let (stop, rows) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let remotes =
            addresses.iter().map(|address| format!("ssl:{address}:9641").parse::<Remote>().unwrap()).collect();
        let mut config = Config::new(remotes, "OVN_Northbound").monitor(TableMonitor::new("NB_Global"));
        config.tls = Some(tls.clone());
        let (stopped, counted) = (stop.clone(), rows.clone());
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(write(config, &stopped, &counted))
        };
        let thread = std::thread::spawn(move || machine.with_network(work).unwrap());
        Self { stop, rows, thread }
    }

    /// Number of rows that were acknowledged.
    pub(crate) fn rows(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    /// Waits until this many rows were acknowledged.
    pub(crate) fn await_rows(&self, rows: usize, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.rows() < rows {
            assert!(!self.thread.is_finished() && Instant::now() < deadline, "the writer does not write");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn write(config: Config, stopped: &AtomicBool, rows: &AtomicUsize) -> Written {
    let client = Client::start(config);
    client.connected(LIMIT).await.unwrap();
    let uuid = client.snapshot().table("NB_Global").unwrap().iter().next().unwrap().uuid;
    let cell = SequenceCell { table: "NB_Global".into(), uuid, column: "external_ids".into(), key: "writer".into() };
    let mut committer = Committer::take_over(client, cell, "writer", LIMIT).await.unwrap();
    let mut written = Written { acknowledged: Vec::new(), failed: Vec::new(), longest_gap: Duration::ZERO };
    let mut last = Instant::now();
    while !stopped.load(Ordering::Relaxed) {
        let name = format!("written-{}", written.acknowledged.len());
        let mut transaction = Transaction::new();
        transaction.insert("Logical_Switch", Row::new().text("name", &name));
        let committed = match committer.commit(&transaction, LIMIT).await {
            Ok(_) => true,
            Err(CommitError::Unresolved(_)) => committer.resolve(LIMIT).await.unwrap() == Some(Resolution::Committed),
            // Without effect: the same row again.
            Err(error @ (CommitError::Call(_) | CommitError::Refused(_))) => {
                written.failed.push(error.to_string());
                false
            }
            Err(error) => panic!("{error}"),
        };
        if committed {
            written.longest_gap = written.longest_gap.max(last.elapsed());
            last = Instant::now();
            written.acknowledged.push(name);
            rows.fetch_add(1, Ordering::Relaxed);
        }
        // About 50 rows a second: more load would only measure this machine.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    written
}
