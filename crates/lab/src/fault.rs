//! Faults on request. Each returns what it did only once it has been *seen* to happen, and can be undone.

use std::path::Component;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::process::ProcessId;
use crate::record::Record;
use crate::underlay::FABRIC;
use crate::view;

/// A component that was killed and is gone.
#[derive(Debug, Clone)]
pub struct Killed {
    /// The component.
    pub component: String,
    /// The process that is no more.
    pub process: ProcessId,
}

impl std::fmt::Display for Killed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "killed {} (pid {}) with SIGKILL; it is gone", self.component, self.process.pid)
    }
}

/// Kills a component with SIGKILL and waits until it is gone.
pub fn kill(record: &Record, component: &str) -> Result<Killed> {
    let process = record.component(component)?.process;
    let handle =
        process.open().ok_or_else(|| Error::Invalid(format!("{component} does not run; it cannot be killed")))?;
    handle.signal(Signal::KILL);
    if !handle.wait(Duration::from_secs(30)) {
        return Err(Error::Invalid(format!("{component} (pid {}) survived SIGKILL for 30 s", process.pid)));
    }
    Ok(Killed { component: component.to_owned(), process })
}

/// Asks a component to end with SIGTERM; it may take its time.
pub fn terminate(record: &Record, component: &str) -> Result<()> {
    let process = record.component(component)?.process;
    let handle =
        process.open().ok_or_else(|| Error::Invalid(format!("{component} does not run; it cannot be ended")))?;
    handle.signal(Signal::TERM);
    Ok(())
}

/// A component that stands still.
#[derive(Debug, Clone)]
pub struct Paused {
    /// The component.
    pub component: String,
    process: ProcessId,
}

impl std::fmt::Display for Paused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stopped {} (pid {}) with SIGSTOP; its state is T", self.component, self.process.pid)
    }
}

/// Stops a component with SIGSTOP: it keeps its sockets and answers nobody.
pub fn pause(record: &Record, component: &str) -> Result<Paused> {
    let process = record.component(component)?.process;
    signal_until(component, process, Signal::STOP, |state| state == 'T')?;
    Ok(Paused { component: component.to_owned(), process })
}

/// Lets a stopped component go on.
pub fn resume(record: &Record, component: &str) -> Result<()> {
    signal_until(component, record.component(component)?.process, Signal::CONT, |state| state != 'T')
}

impl Paused {
    /// Lets it go on.
    pub fn resume(self) -> Result<()> {
        signal_until(&self.component, self.process, Signal::CONT, |state| state != 'T')
    }
}

/// A stop takes effect when the last thread has noticed; that has no event, but takes microseconds.
fn signal_until(component: &str, process: ProcessId, signal: Signal, reached: impl Fn(char) -> bool) -> Result<()> {
    let handle = process
        .open()
        .ok_or_else(|| Error::Invalid(format!("{component} does not run; it cannot be stopped or continued")))?;
    handle.signal(signal);
    for _ in 0..1000 {
        match process.state() {
            Some(state) if reached(state) => return Ok(()),
            None => break,
            // Waiting for its end is waiting for a millisecond, unless it does end.
            Some(_) if handle.wait(Duration::from_millis(1)) => break,
            Some(_) => {}
        }
    }
    Err(Error::Invalid(format!("{component} (pid {}) did not take the signal", process.pid)))
}

/// A fault of the underlay: packets that the switch drops, counted.
#[derive(Debug, Clone)]
pub struct Drops {
    what: String,
    table: String,
    fabric: Machine,
}

impl std::fmt::Display for Drops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (rule {} on the switch)", self.what, self.table)
    }
}

/// Cuts two machines off from each other, both ways.
pub fn partition(record: &Record, one: &str, other: &str) -> Result<Drops> {
    record.machine(one)?;
    record.machine(other)?;
    if [one, other].contains(&FABRIC) {
        return Err(Error::Invalid(format!("{FABRIC} is the switch itself and cannot be cut off; name two machines")));
    }
    if one == other {
        return Err(Error::Invalid(format!("{one} cannot be cut off from itself; name two machines")));
    }
    let rules = format!(
        "iifname \"{one}\" oifname \"{other}\" counter drop\niifname \"{other}\" oifname \"{one}\" counter drop\n"
    );
    Drops::install(record, format!("cut {one} off from {other}"), &rules)
}

/// Loses so many percent of the packets from and to a machine, at random.
pub fn lose(record: &Record, machine: &str, percent: u8) -> Result<Drops> {
    record.machine(machine)?;
    if percent == 0 || percent > 100 {
        return Err(Error::Invalid(format!("{percent} % of packets cannot be lost; use 1 to 100")));
    }
    let random = if percent == 100 {
        "counter drop".to_owned()
    } else {
        format!("numgen random mod 100 < {percent} counter drop")
    };
    let rules = format!("iifname \"{machine}\" {random}\noifname \"{machine}\" {random}\n");
    Drops::install(record, format!("lose {percent} % of the packets from and to {machine}"), &rules)
}

impl Drops {
    fn install(record: &Record, what: String, rules: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let table = format!("fault_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let fabric = view::machine(record, FABRIC)?;
        let program = format!(
            "table bridge {table} {{\n chain forward {{\n type filter hook forward priority 0; policy accept;\n{rules} }}\n}}\n"
        );
        fabric.run_with_input(&["nft", "-f", "-"], &program)?;
        Ok(Self { what, table, fabric })
    }

    /// How many packets it has dropped so far: a test may require that it was more than none.
    pub fn dropped(&self) -> Result<u64> {
        let listing = self.fabric.run(&["nft", "list", "table", "bridge", &self.table])?;
        Ok(listing
            .split("packets ")
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .sum())
    }

    /// Undoes it.
    pub fn heal(self) -> Result<()> {
        self.fabric.run(&["nft", "delete", "table", "bridge", &self.table]).map(|_| ())
    }
}

/// Undoes every fault of the underlay, whoever made it; returns how many there were.
pub fn heal_all(record: &Record) -> Result<usize> {
    let fabric = view::machine(record, FABRIC)?;
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

/// The largest small disk: it lives in memory.
const MAX_DISK_MIB: u32 = 1024;

/// A small disk of its own at some path of a machine.
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

/// Puts a small file system (tmpfs) at a path of a machine; what the folder held is carried over.
pub fn small_disk(record: &Record, machine: &str, path: &str, mib: u32) -> Result<SmallDisk> {
    let plain = std::path::Path::new(path).components().all(|part| !matches!(part, Component::ParentDir));
    if !path.starts_with('/') || path.trim_matches('/').is_empty() || !plain {
        return Err(Error::Invalid(format!("{path:?} cannot be a small disk; name an absolute path below /")));
    }
    // For tmpfs a size of 0 is no limit at all, and what it holds is memory.
    if !(1..=MAX_DISK_MIB).contains(&mib) {
        return Err(Error::Invalid(format!("{mib} MiB is no size for a small disk; use 1 to {MAX_DISK_MIB}")));
    }
    let machine = view::machine(record, machine)?;
    let script = "set -e; mkdir -p \"$1\"; new=$(mktemp -d); mount -t tmpfs -o size=\"$2\"m tmpfs \"$new\"; cp -a \"$1\"/. \"$new\"/; mount --move \"$new\" \"$1\" 2>/dev/null || { mount --bind \"$new\" \"$1\"; umount -l \"$new\"; }";
    machine.run(&["bash", "-c", script, "small-disk", path, &mib.to_string()])?;
    Ok(SmallDisk { machine, path: path.to_owned() })
}

impl SmallDisk {
    /// Fills it to the last byte and returns how many bytes that took; none are free afterwards.
    pub fn fill(&self) -> Result<u64> {
        let script = "cat /dev/zero > \"$1/.filler\" 2>/dev/null; stat -c %s \"$1/.filler\"";
        let written = self.machine.run(&["bash", "-c", script, "fill", &self.path])?;
        if self.free()? > 0 {
            return Err(Error::Invalid(format!("{self} still has room after it was filled")));
        }
        written.trim().parse().map_err(|_| Error::Invalid(format!("cannot tell how much was written to {self}")))
    }

    /// Free bytes.
    pub fn free(&self) -> Result<u64> {
        let free = self.machine.run(&["stat", "-f", "-c", "%a %S", &self.path])?;
        let numbers: Vec<u64> = free.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Ok(numbers.iter().product())
    }

    /// Takes the filling out again.
    pub fn empty(&self) -> Result<()> {
        self.machine.run(&["rm", "-f", &format!("{}/.filler", self.path)]).map(|_| ())
    }
}
