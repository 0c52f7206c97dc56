//! Loading a replica of a large database: time, CPU and memory, interleaved with other clients.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use bench::{Contender, Figure, Goal, RUNS, interleave, per_calibration, ratio};
use lab::Lab;
use serde_json::{Value, json};

use crate::child::{bare, cpu_here, cpu_on, number};
use crate::rows::{PORTS, SERVICES, SWITCHES, TABLES, connect, replica_config};

const MIB: f64 = 1024.0 * 1024.0;

/// The hidden mode: loads the replica and reports the costs as one line of JSON.
pub(crate) fn load(remote: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (before, cpu) = (memory("VmRSS")?, bench::thread_cpu_seconds()?);
        let start = Instant::now();
        let client = connect(replica_config(remote)?).await?;
        let seconds = start.elapsed().as_secs_f64();
        // The runtime has one thread: this one's CPU time is the client's.
        let cpu = bench::thread_cpu_seconds()? - cpu;
        let (after, peak) = (memory("VmRSS")?, memory("VmHWM")?);
        let snapshot = client.snapshot();
        let rows: usize = snapshot.tables().map(ovsdb::replica::Table::len).sum();
        let said = json!({"rows": rows, "seconds": seconds, "cpu_seconds": cpu,
            "grown_bytes": after - before, "peak_bytes": peak - before});
        println!("{said}");
        Ok(())
    })
}

/// A line of this process's memory, in bytes.
fn memory(key: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    kib(&status, key)
}

fn kib(status: &str, key: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    Ok(number.with_context(|| format!("{key} is not in {status:?}"))? * 1024.0)
}

/// Resident memory of the `ovn-nbctl` daemon with the whole database loaded, in bytes.
pub(crate) fn nbctl_daemon(lab: &Lab, remote: &str) -> Result<f64> {
    // A command with little output, so that its output does not grow the daemon's heap.
    let script = format!(
        "set -e; f=/tmp/bench-nbctl.pid; s=$(ovn-nbctl --db={remote} --detach --pidfile=$f)
         OVN_NB_DAEMON=$s ovn-nbctl --timeout=60 ls-list >/dev/null; cat /proc/$(cat $f)/status; ovs-appctl -t $s exit"
    );
    kib(&lab.machine("control")?.run(&["bash", "-c", &script])?, "VmRSS")
}

pub(crate) fn figures(lab: &Lab, remote: &str, tables: &str, empty_daemon: f64) -> Result<Vec<Figure>> {
    let control = lab.machine("control")?;
    let ours = || our_load(remote).map(|(said, _)| said);
    let read = || bare(&["read", "--remote", remote, "--method", "monitor_cond_since", "--tables", tables]);
    let bytes = number(&read()?, "bytes")?;
    let expected = PORTS + SERVICES + SWITCHES;
    for said in [ours()?, read()?] {
        if number(&said, "rows")? != expected as f64 {
            bail!("{expected} rows were to be read, not those of {said}");
        }
    }
    println!(
        "the reply to the replica's monitor has {:.1} MiB and {expected} rows of {}",
        bytes / MIB,
        TABLES.join(", ")
    );

    let (time, bare_time) = by_turns(
        ("replica load, ours (s)", &|| number(&ours()?, "seconds")),
        ("replica load, bare read (s)", &|| number(&read()?, "seconds")),
    )?;
    // The whole database at once: of other tables it has next to nothing, and a dump of each table starts thrice.
    let dump = format!("ovsdb-client dump {remote} {} >/dev/null", crate::rows::DATABASE);
    let (cpu, dump_cpu) = by_turns(
        ("replica load CPU, ours (s)", &|| our_load(remote).map(|(_, cpu)| cpu)),
        ("replica load CPU, ovsdb-client dump (s)", &|| cpu_on(&control, &dump).map(|(_, cpu)| cpu)),
    )?;
    let (memory, daemon) = by_turns(
        ("replica memory, ours (bytes)", &|| number(&ours()?, "grown_bytes")),
        ("replica memory, ovn-nbctl daemon (bytes)", &|| Ok(nbctl_daemon(lab, remote)? - empty_daemon)),
    )?;
    let peak = number(&ours()?, "peak_bytes")?;
    Ok(vec![
        ratio("replica load time against the bare read", &time, &bare_time, Some(Goal::AtMost(1.5))),
        Figure::new("replica load time, 25,000 ports", time.median(), "s"),
        ratio("replica load CPU against ovsdb-client dump", &cpu, &dump_cpu, Some(Goal::AtMost(1.0))),
        Figure::new("replica load CPU, 25,000 ports", cpu.median(), "s"),
        Figure::new("replica load CPU, 25,000 ports", per_calibration(cpu.median())?, "calibrations"),
        Figure::new("replica memory against its JSON", memory.median() / bytes, "×").with_goal(Goal::AtMost(1.5)),
        ratio("replica memory against ovn-nbctl daemon", &memory, &daemon, Some(Goal::AtMost(1.0))),
        Figure::new("replica memory, 25,000 ports", memory.median() / MIB, "MiB"),
        Figure::new("replica memory at its peak while loading, against its JSON", peak / bytes, "×"),
    ])
}

type Run<'a> = (&'a str, &'a dyn Fn() -> Result<f64>);

/// Two contenders by turns, their samples printed.
fn by_turns(one: Run<'_>, two: Run<'_>) -> Result<(bench::Sample, bench::Sample)> {
    let mut contenders: Vec<Contender<'_, anyhow::Error>> = vec![(one.0, Box::new(one.1)), (two.0, Box::new(two.1))];
    let samples = interleave(RUNS, &mut contenders)?;
    samples.iter().for_each(|sample| println!("{sample}"));
    let [one, two] = samples.try_into().map_err(|_| anyhow::anyhow!("a sample is missing"))?;
    Ok((one, two))
}

/// Our load in a process of its own: its output, and its CPU seconds as the shell counts them.
fn our_load(remote: &str) -> Result<(Value, f64)> {
    let (said, cpu) = cpu_here(&format!("'{}' load {remote}", std::env::current_exe()?.display()))?;
    Ok((serde_json::from_str(&said)?, cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t     20 kB\nVmRSS:\t      12 kB\n";
        assert_eq!(kib(status, "VmRSS").expect("a number"), 12.0 * 1024.0);
        assert!(kib(status, "VmSwap").is_err());
    }
}
