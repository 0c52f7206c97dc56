//! `bench-lab`: how long a lab takes to start, and what the bare client reaches on its databases.
//! Writes `target/bench/lab.json`.

use std::process::Command;

use anyhow::{Context, Result, bail};
use bench::{Contender, Figure, Goal, RUNS, interleave, timed};
use lab::directories::Directories;
use lab::{Artifacts, Cni, Database, Databases, Kubernetes, Lab, LabSpec, Ovn};

fn main() -> Result<()> {
    if let Some(argument) = std::env::args().nth(1) {
        bail!("unexpected argument {argument:?}: bench-lab takes no arguments");
    }
    // Supplies are built once and cached; the start is measured with a warm cache.
    let progress = lab::progress::Progress::to_stderr();
    Artifacts::ensure(&Directories::from_environment()?, &with_kubelets()?, &progress)?;

    let mut contenders: Vec<Contender<'_, anyhow::Error>> = vec![
        ("start, three nodes without kubelets", Box::new(|| start(without_kubelets()?))),
        ("start, two nodes with kubelets", Box::new(|| start(with_kubelets()?))),
        ("bare client, standalone", Box::new(|| bare_rate(Databases::Standalone))),
        ("bare client, three raft members", Box::new(|| bare_rate(Databases::Raft))),
    ];
    let samples = interleave(RUNS, &mut contenders)?;
    for sample in &samples {
        println!("{sample}");
    }
    let [quick, full, standalone, raft] = samples.as_slice() else { bail!("a sample is missing") };
    let figures = [
        bench::calibration()?,
        Figure::new("lab start: Kubernetes, OVN on raft, three nodes without kubelets", quick.median(), "s")
            .with_goal(Goal::AtMost(10.0)),
        Figure::new("lab start: what make up starts, two nodes with kubelets, warm cache", full.median(), "s")
            .with_goal(Goal::AtMost(60.0)),
        Figure::new("bare OVSDB client, standalone", standalone.median(), "rows/s"),
        Figure::new("bare OVSDB client, three raft members", raft.median(), "rows/s"),
        bench::ratio("bare OVSDB client, raft against standalone", raft, standalone, None),
    ];
    let path = bench::write_figures("lab", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    Ok(())
}

fn without_kubelets() -> Result<LabSpec> {
    Ok(LabSpec::for_test("bench")?.nodes(3).ovn(Ovn::default()).kubernetes(Kubernetes::default()))
}

fn with_kubelets() -> Result<LabSpec> {
    let kubernetes = Kubernetes { kubelets: true, cni: Cni::None, api_port: None };
    Ok(LabSpec::for_test("bench-up")?.nodes(2).ovn(Ovn::default()).kubernetes(kubernetes))
}

/// Seconds until everything is ready; without the removal.
fn start(spec: LabSpec) -> Result<f64> {
    let mut lab = None;
    let seconds = timed(|| {
        lab = Some(Lab::start(spec)?);
        Ok::<_, anyhow::Error>(())
    })?;
    drop(lab);
    Ok(seconds)
}

/// Rows per second that the bare client writes through the leader, as it reports.
fn bare_rate(databases: Databases) -> Result<f64> {
    let lab = Lab::start(LabSpec::for_test("bench-bare")?.ovn(Ovn { databases, ..Ovn::default() }))?;
    let record = lab.record();
    let remotes = record.endpoints.northbound.context("the lab has no northbound database")?;
    let remote = match databases {
        Databases::Standalone | Databases::Pods | Databases::ActiveBackup | Databases::Machines => remotes,
        Databases::Raft => {
            let leader = lab.raft_leader(Database::Northbound)?.replace("nb-", "/db-");
            let found = remotes.split(',').find(|remote| remote.contains(&leader));
            found.context("the leader is not among the remotes")?.to_owned()
        }
    };
    let bare = std::env::current_exe()?.with_file_name("bare-ovsdb");
    let output = Command::new(&bare).args(["write", "--remote", &remote]).output().with_context(|| {
        format!("cannot run {}; build it with `cargo build --release --package bench`", bare.display())
    })?;
    if !output.status.success() {
        bail!("bare-ovsdb failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    said["rows_per_second"].as_f64().context("bare-ovsdb did not report rows_per_second")
}
