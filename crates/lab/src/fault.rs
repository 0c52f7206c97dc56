//! Fault injection. Each function returns when the fault is *observed* to be in effect, and each fault can be undone.

use std::path::Component;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::inspect;
use crate::machine::Machine;
use crate::process::ProcessId;
use crate::record::Record;
use crate::underlay::FABRIC;

/// A component that was killed, for the report of `lab fault kill`.
#[derive(Debug, Clone)]
pub struct Killed {
    pub component: String,
    /// Its last process, which is gone.
    pub process: ProcessId,
}

impl std::fmt::Display for Killed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "killed {} (pid {}) with SIGKILL; it is gone", self.component, self.process.pid)
    }
}

/// Sends SIGKILL to a component and waits until it is gone.
pub(crate) fn kill(record: &Record, component: &str) -> Result<Killed> {
    let process = record.component(component)?.process;
    let handle = process.open().ok_or_else(|| Error::Invalid(format!("{component} is not running; cannot kill it")))?;
    handle.signal(Signal::KILL);
    if !handle.wait(Duration::from_secs(30)) {
        return Err(Error::Invalid(format!("{component} (pid {}) survived SIGKILL for 30 s", process.pid)));
    }
    Ok(Killed { component: component.to_owned(), process })
}

/// Sends SIGTERM to a component; does not wait.
pub(crate) fn terminate(record: &Record, component: &str) -> Result<()> {
    let process = record.component(component)?.process;
    let handle =
        process.open().ok_or_else(|| Error::Invalid(format!("{component} is not running; cannot terminate it")))?;
    handle.signal(Signal::TERM);
    Ok(())
}

/// A component that got SIGSTOP.
#[derive(Debug, Clone)]
pub struct Paused {
    pub component: String,
    process: ProcessId,
}

impl std::fmt::Display for Paused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stopped {} (pid {}) with SIGSTOP; its state is T", self.component, self.process.pid)
    }
}

/// Sends SIGSTOP to a component: it keeps its sockets and answers nothing.
pub(crate) fn pause(record: &Record, component: &str) -> Result<Paused> {
    let process = record.component(component)?.process;
    signal_until(component, process, Signal::STOP, |state| state == 'T')?;
    Ok(Paused { component: component.to_owned(), process })
}

/// Sends SIGCONT to a stopped component.
pub(crate) fn resume(record: &Record, component: &str) -> Result<()> {
    signal_until(component, record.component(component)?.process, Signal::CONT, |state| state != 'T')
}

impl Paused {
    /// Sends SIGCONT.
    pub fn resume(self) -> Result<()> {
        signal_until(&self.component, self.process, Signal::CONT, |state| state != 'T')
    }
}

/// How long a process may take to stop: one that waits for a slow disk stops only afterwards.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// SIGSTOP takes effect when the last thread has stopped; there is no event for that, but usually it takes microseconds.
fn signal_until(component: &str, process: ProcessId, signal: Signal, reached: impl Fn(char) -> bool) -> Result<()> {
    let handle = process
        .open()
        .ok_or_else(|| Error::Invalid(format!("{component} is not running; cannot stop or continue it")))?;
    handle.signal(signal);
    let deadline = Instant::now() + STOP_LIMIT;
    while Instant::now() < deadline {
        match process.state() {
            Some(state) if reached(state) => return Ok(()),
            None => break,
            // A pause of one millisecond, unless the process exits.
            Some(_) if handle.wait(Duration::from_millis(1)) => break,
            Some(_) => {}
        }
    }
    Err(Error::Invalid(format!("{component} (pid {}) did not react to the signal", process.pid)))
}

/// nftables rules on the switch that drop packets and count them.
#[derive(Debug, Clone)]
pub struct DropRules {
    what: String,
    table: String,
    fabric: Machine,
}

impl std::fmt::Display for DropRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (rule {} on the switch)", self.what, self.table)
    }
}

/// Drops all packets between two machines.
pub(crate) fn partition(record: &Record, one: &str, other: &str) -> Result<DropRules> {
    let rules = format!("{}{}", drop_rule(record, one, other)?, drop_rule(record, other, one)?);
    DropRules::install(record, format!("cut {one} off from {other}"), &rules)
}

/// Drops all packets from one machine to another, but not those in the other direction.
pub(crate) fn partition_one_way(record: &Record, from: &str, to: &str) -> Result<DropRules> {
    DropRules::install(record, format!("drop packets from {from} to {to}"), &drop_rule(record, from, to)?)
}

fn drop_rule(record: &Record, from: &str, to: &str) -> Result<String> {
    record.machine(from)?;
    record.machine(to)?;
    if [from, to].contains(&FABRIC) {
        return Err(Error::Invalid(format!("cannot partition {FABRIC}: it is the switch itself; name two machines")));
    }
    if from == to {
        return Err(Error::Invalid(format!("cannot partition {from} from itself; name two machines")));
    }
    Ok(format!("iifname \"{from}\" oifname \"{to}\" counter drop\n"))
}

/// Drops a percentage of the packets from and to a machine, at random.
pub(crate) fn lose(record: &Record, machine: &str, percent: u8) -> Result<DropRules> {
    record.machine(machine)?;
    if percent == 0 || percent > 100 {
        return Err(Error::Invalid(format!("invalid percentage {percent}: use 1 to 100")));
    }
    let random = if percent == 100 {
        "counter drop".to_owned()
    } else {
        format!("numgen random mod 100 < {percent} counter drop")
    };
    let rules = format!("iifname \"{machine}\" {random}\noifname \"{machine}\" {random}\n");
    DropRules::install(record, format!("lose {percent} % of the packets from and to {machine}"), &rules)
}

impl DropRules {
    fn install(record: &Record, what: String, rules: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let table = format!("fault_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let fabric = inspect::machine(record, FABRIC)?;
        let program = format!(
            "table bridge {table} {{\n chain forward {{\n type filter hook forward priority 0; policy accept;\n{rules} }}\n}}\n"
        );
        fabric.run_with_input(&["nft", "-f", "-"], &program)?;
        Ok(Self { what, table, fabric })
    }

    /// How many packets were dropped so far, so that a test can check that the fault had an effect.
    pub fn dropped(&self) -> Result<u64> {
        let listing = self.fabric.run(&["nft", "list", "table", "bridge", &self.table])?;
        Ok(listing
            .split("packets ")
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .sum())
    }

    /// Lets all packets pass again.
    pub fn heal(self) -> Result<()> {
        self.fabric.run(&["nft", "delete", "table", "bridge", &self.table]).map(|_| ())
    }
}

/// Removes the rules of all partitions and losses, of every process; returns how many there were.
pub(crate) fn heal_all(record: &Record) -> Result<usize> {
    let fabric = inspect::machine(record, FABRIC)?;
    let listing = fabric.run(&["nft", "list", "tables", "bridge"])?;
    let tables: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.strip_prefix("table bridge "))
        .filter(|name| name.starts_with("fault_"))
        .collect();
    for table in &tables {
        fabric.run(&["nft", "delete", "table", "bridge", table])?;
    }
    Ok(tables.len())
}

/// Small disks are in memory.
const MAX_DISK_MIB: u32 = 1024;

/// A tmpfs on a machine, to be filled.
#[derive(Debug, Clone)]
pub struct SmallDisk {
    machine: Machine,
    path: String,
}

impl std::fmt::Display for SmallDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "small disk at {} on {}", self.path, self.machine.name)
    }
}

/// Mounts a tmpfs at a path of a machine; the content of the directory is copied.
pub(crate) fn small_disk(record: &Record, machine: &str, path: &str, mib: u32) -> Result<SmallDisk> {
    let plain = std::path::Path::new(path).components().all(|part| !matches!(part, Component::ParentDir));
    if !path.starts_with('/') || path.trim_matches('/').is_empty() || !plain {
        return Err(Error::Invalid(format!("invalid path {path:?} for a small disk: name an absolute path below /")));
    }
    // A tmpfs with size 0 has no limit.
    if !(1..=MAX_DISK_MIB).contains(&mib) {
        return Err(Error::Invalid(format!("invalid size of {mib} MiB for a small disk: use 1 to {MAX_DISK_MIB}")));
    }
    let machine = inspect::machine(record, machine)?;
    let script = "set -e; mkdir -p \"$1\"; new=$(mktemp -d); mount -t tmpfs -o size=\"$2\"m tmpfs \"$new\"; cp -a \"$1\"/. \"$new\"/; mount --move \"$new\" \"$1\" 2>/dev/null || { mount --bind \"$new\" \"$1\"; umount -l \"$new\"; }";
    machine.run(&["bash", "-c", script, "small-disk", path, &mib.to_string()])?;
    Ok(SmallDisk { machine, path: path.to_owned() })
}

impl SmallDisk {
    /// Fills it completely and returns the number of bytes written.
    pub fn fill(&self) -> Result<u64> {
        let script = "cat /dev/zero > \"$1/.filler\" 2>/dev/null; stat -c %s \"$1/.filler\"";
        let written = self.machine.run(&["bash", "-c", script, "fill", &self.path])?;
        if self.free()? > 0 {
            return Err(Error::Invalid(format!("{self} still has free space after it was filled")));
        }
        written.trim().parse().map_err(|_| Error::Invalid(format!("cannot read how much was written to {self}")))
    }

    /// In bytes.
    pub fn free(&self) -> Result<u64> {
        let free = self.machine.run(&["stat", "-f", "-c", "%a %S", &self.path])?;
        let numbers: Vec<u64> = free.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Ok(numbers.iter().product())
    }

    /// Deletes the file that fills it.
    pub fn empty(&self) -> Result<()> {
        self.machine.run(&["rm", "-f", &format!("{}/.filler", self.path)]).map(|_| ())
    }
}
