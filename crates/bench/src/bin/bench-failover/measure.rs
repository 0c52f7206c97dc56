//! Runs the faults under the prober, and writes the figures.

use std::time::Duration;

use anyhow::{Result, anyhow};
use bench::{Figure, Goal};
use lab::probe::{self, Prober, Protocol, Workload};

use crate::cluster::{self, Cluster, Times, WORKERS};
use crate::fault::{Fault, quantile};
use crate::northd;
use crate::options::Options;
use crate::samples::Samples;

/// Packets per second of the prober; few, because it shares the CPUs with what is measured.
const RATE: u32 = 100;

pub(crate) fn run(options: &Options) -> Result<()> {
    let samples = options.append.as_deref().map(|path| Samples::open(path, &options.commits)).transpose()?;
    let mut figures = vec![bench::calibration()?];
    if options.kills == 0 {
        for fault in &options.faults {
            figures.extend(accumulated(*fault, samples.as_ref())?);
        }
        print!("{}", bench::table(&figures));
        return Ok(());
    }
    if options.northd {
        figures.extend(northd::figures(options.kills)?);
        bench::write_figures("failover", &figures)?;
    }
    if !options.faults.is_empty() {
        measure_faults(options, samples.as_ref(), &mut figures)?;
    }
    print!("{}", bench::table(&figures));
    println!("written to {}", bench::write_figures("failover", &figures)?.display());
    Ok(())
}

/// The figures of all samples that count.
fn accumulated(fault: Fault, samples: Option<&Samples>) -> Result<Vec<Figure>> {
    let Some(samples) = samples else { return Ok(Vec::new()) };
    let (times, lost) = samples.of(fault)?;
    Ok(if times.is_empty() { Vec::new() } else { figures(fault, &times, lost) })
}

fn measure_faults(options: &Options, samples: Option<&Samples>, figures: &mut Vec<Figure>) -> Result<()> {
    let lab = cluster::start()?;
    let mut cluster = Cluster::new(&lab)?;
    let workload = Workload::create_on(&lab.record(), &WORKERS.map(str::to_owned))?;
    let prober = Prober::start(&workload.plan(RATE)?)?;
    for fault in &options.faults {
        eprintln!("{}", fault.title());
        figures.extend(measure(&mut cluster, &prober, *fault, options.kills, samples)?);
        // What was measured is kept, even if a later fault ends the run.
        bench::write_figures("failover", figures)?;
    }
    Ok(())
}

fn measure(
    cluster: &mut Cluster<'_>,
    prober: &Prober,
    fault: Fault,
    kills: usize,
    samples: Option<&Samples>,
) -> Result<Vec<Figure>> {
    let mut times = Vec::new();
    let mut failure = None;
    let report = probe::observe(prober, fault.title(), || {
        failure = repeat(cluster, fault, kills, &mut times, samples).err();
        Ok(())
    })?;
    if let Some(error) = failure {
        return Err(anyhow!("{}: {error:#}", fault.title()));
    }
    let established = || report.paths.iter().filter(|path| path.protocol == Protocol::TcpEstablished);
    // Reset or closed, or still silent a minute after the last fault.
    let reset: u64 = established().map(|path| path.fault.reset).sum();
    let silent = established().filter(|path| report.unrecovered.contains(&path.name())).count();
    let lost = reset + silent as u64;
    let Some(samples) = samples else { return Ok(figures(fault, &times, lost)) };
    samples.add_lost(fault, lost)?;
    accumulated(fault, Some(samples))
}

fn repeat(
    cluster: &mut Cluster<'_>,
    fault: Fault,
    kills: usize,
    times: &mut Vec<Times>,
    samples: Option<&Samples>,
) -> Result<()> {
    for number in 1..=kills {
        let (measured, injected) = cluster.measure(fault)?;
        let [wired, ready] = [measured.wired, measured.ready].map(|time| time.as_secs_f64());
        eprintln!("  {number} of {kills}: wired after {wired:.2} s, Ready after {ready:.2} s");
        samples.map_or(Ok(()), |samples| samples.add(fault, &measured))?;
        times.push(measured);
        cluster.recover(injected)?;
    }
    Ok(())
}

/// Quantiles of the times, and the lost connections.
fn figures(fault: Fault, times: &[Times], lost: u64) -> Vec<Figure> {
    let unit = format!("s, of {}", times.len());
    let mut figures = Vec::new();
    for (what, choose) in [("wired", (|times| times.wired) as fn(&Times) -> Duration), ("Ready", |times| times.ready)] {
        let chosen: Vec<Duration> = times.iter().map(choose).collect();
        for (name, share) in [("p50", 0.5), ("p95", 0.95), ("max", 1.0)] {
            let name = format!("pod {what}, {}, {name}", fault.title());
            let figure = Figure::new(name, quantile(&chosen, share), &unit);
            figures.push(match fault.goal().filter(|_| what == "wired" && share == 0.95) {
                Some(goal) => figure.with_goal(Goal::AtMost(goal)),
                None => figure,
            });
        }
    }
    let connections = format!("established connections lost, {}", fault.title());
    figures.push(Figure::new(connections, lost as f64, "connections").with_goal(Goal::AtMost(0.0)));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_and_a_lost_connection_are_not_ok() {
        let times = [1, 2, 9]
            .map(|seconds| Times { wired: Duration::from_secs(seconds), ready: Duration::from_secs(seconds + 1) });
        let missed: Vec<String> = figures(Fault::NbLeader, &times, 1)
            .iter()
            .filter(|figure| !figure.ok())
            .map(|figure| format!("{} {} {}", figure.name(), figure.value(), figure.unit()))
            .collect();
        assert_eq!(
            missed,
            [
                "pod wired, NB leader killed, p95 9 s, of 3",
                "established connections lost, NB leader killed 1 connections"
            ]
        );
        assert!(figures(Fault::None, &times, 0).iter().all(Figure::ok));
    }
}
