//! Commit latency against the sync latency of the disk: one raft member on a disk in memory, on this machine's disk, and
//! on a slow one.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench::{Figure, Goal};
use lab::{Lab, LabSpec, Program};
use ovsdb::client::{Client, Config, Remote};
use ovsdb::transaction::{Row, Transaction};

use crate::quantile::Quantiles;
use crate::slow_disk::SlowDisk;

/// Transactions and syncs of one sample.
const SAMPLES: usize = 200;
/// Writes per second of the slow disk: each takes 25 ms.
const SLOW_WRITES: u32 = 40;

/// Median sync and commit of one disk, in milliseconds.
struct Latency {
    sync: f64,
    commit: f64,
}

pub(crate) fn figures() -> Result<Vec<Figure>> {
    let lab = Lab::start(LabSpec::for_test("bench-sync")?)?;
    let root = PathBuf::from(format!("/proc/{}/root", lab.machine("control")?.init().pid));
    let mut figures = Vec::new();
    let mut add_figures = |disk: &str, latency: &Latency| {
        let Latency { sync, commit } = latency;
        eprintln!("  {disk}: sync {sync:.2} ms, commit {commit:.2} ms");
        figures.push(Figure::new(format!("commit: sync of 4 KiB, {disk}, median"), *sync, "ms"));
        figures.push(Figure::new(format!("commit: one raft member, {disk}, median"), *commit, "ms"));
    };
    // Nothing is synced there: what a commit takes without the disk.
    let memory = measure(&lab, &root, "memory", "/tmp/memory", None)?;
    add_figures("in memory", &memory);
    let disk = measure(&lab, &root, "disk", "/var/lib/disk", None)?;
    add_figures("disk of this machine", &disk);
    let directory = lab::directories::Directories::from_environment()?.lab(lab.name());
    match SlowDisk::create(&directory, SLOW_WRITES) {
        Ok(slow) => {
            let machine = lab.machine("control")?;
            machine.run(&["mkdir", "-p", "/mnt/slow"])?;
            machine.run(&["mount", slow.device(), "/mnt/slow"])?;
            let latency = measure(&lab, &root, "slow", "/mnt/slow/db", Some(&slow));
            lab.kill("slow").ok();
            machine.run(&["umount", "/mnt/slow"])?;
            let latency = latency?;
            add_figures("slow disk", &latency);
            let syncs = (latency.commit - memory.commit) / latency.sync;
            figures.push(
                Figure::new("commit: syncs of the slow disk in each commit", syncs, "").with_goal(Goal::AtMost(2.5)),
            );
        }
        Err(error) => eprintln!("  no slow disk: {error:#}"),
    }
    Ok(figures)
}

/// Runs a member in a directory of the control machine, and measures it and its disk.
fn measure(lab: &Lab, root: &Path, name: &str, directory: &str, slow: Option<&SlowDisk>) -> Result<Latency> {
    let machine = lab.machine("control")?;
    machine.run(&["mkdir", "-p", directory, "/run/ovn"])?;
    let here = root.join(directory.trim_start_matches('/'));
    let sync = std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            if let Some(slow) = slow {
                slow.throttle_this_thread()?;
            }
            sync_latency(&here)
        });
        measured.join().map_err(|_| anyhow::anyhow!("the measurement of the disk panicked"))?
    })?;
    let (file, socket) = (format!("{directory}/nb.db"), format!("/run/ovn/{name}.sock"));
    let schema = "/usr/share/ovn/ovn-nb.ovsschema";
    machine.run(&["ovsdb-tool", "create-cluster", &file, schema, "tcp:127.0.0.1:6643"])?;
    let remote = format!("--remote=punix:{socket}");
    let program = Program::new(name, "ovsdb-server").arguments(["-vconsole:warn", "-vsyslog:off", "--unixctl=none"]);
    lab.run(&program.arguments([&remote, &file]))?;
    if let Some(slow) = slow {
        slow.throttle(lab.record().component(name)?.process.pid)?;
    }
    let socket = root.join(socket.trim_start_matches('/'));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let commit = runtime.block_on(commit_latency(Remote::Unix(socket)))?;
    lab.kill(name)?;
    Ok(Latency { sync, commit })
}

fn sync_latency(directory: &Path) -> Result<f64> {
    let path = directory.join("sync-test");
    let mut file = std::fs::File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut times = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(milliseconds(start));
    }
    Ok(Quantiles::of(times).median())
}

async fn commit_latency(remote: Remote) -> Result<f64> {
    let mut config = Config::new(vec![remote], "OVN_Northbound");
    config.leader_only = false;
    let client = Client::start(config);
    client.connected(Duration::from_secs(60)).await?;
    let mut times = Vec::with_capacity(SAMPLES);
    for number in 0..SAMPLES {
        let mut transaction = Transaction::new();
        transaction.insert("Address_Set", Row::new().text("name", &format!("set{number}")));
        let start = Instant::now();
        client.transact(&transaction).await?;
        times.push(milliseconds(start));
    }
    Ok(Quantiles::of(times).median())
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
