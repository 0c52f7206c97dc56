//! Processes that are known by pid *and* start time, so that a recycled pid is never mistaken for one of ours.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

/// A process, named so that it cannot be confused with a later one of the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid, as the machine itself sees it.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl ProcessId {
    /// The identity of a process that runs now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: Stat::read(pid)?.started })
    }

    /// Whether this very process still runs (a zombie does not).
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }

    /// The state letter of `/proc/PID/stat` (`R`, `S`, `T`, …), if it still runs.
    pub fn state(self) -> Option<char> {
        Stat::read(self.pid).filter(|stat| stat.started == self.started).map(|stat| stat.state)
    }

    /// Resident memory in KiB, if it still runs.
    pub fn resident_kib(self) -> Option<u64> {
        if !self.is_alive() {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok())
    }

    /// A handle that cannot be confused with another process, unless this one is gone.
    pub fn open(self) -> Option<ProcessHandle> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let descriptor = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Only after the handle is held is the pid safe from reuse, so look now.
        self.is_alive().then_some(ProcessHandle { descriptor })
    }
}

/// A held process: signals reach it or nobody.
#[derive(Debug)]
pub struct ProcessHandle {
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// Sends a signal; a process that is gone already is no error.
    pub fn signal(&self, signal: Signal) {
        // The one possible failure is that it has ended, which is what callers want anyway.
        let _ = rustix::process::pidfd_send_signal(&self.descriptor, signal);
    }

    /// Waits for its end; false if it still runs after `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        wait_readable(&[self.descriptor.as_fd()], Instant::now() + limit).is_some()
    }

    /// The descriptor that becomes readable when the process ends.
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Waits until one of the descriptors is readable (or hung up) and tells which; `None` at the deadline.
pub fn wait_readable(descriptors: &[std::os::fd::BorrowedFd<'_>], deadline: Instant) -> Option<usize> {
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut watched: Vec<PollFd<'_>> =
            descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match rustix::event::poll(&mut watched, Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => {
                if let Some(ready) = watched.iter().position(|fd| !fd.revents().is_empty()) {
                    return Some(ready);
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// The lines that a program prints, as they come, also if they are no UTF-8.
pub(crate) fn lines_of(output: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).trim().to_owned())
}

struct Stat {
    state: char,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name may hold spaces and parentheses: fields count from the last one.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { state, started })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not_it() {
        let me = ProcessId::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(me.resident_kib().unwrap() > 0);
        let stranger = ProcessId { started: me.started + 1, ..me };
        assert!(!stranger.is_alive());
        assert!(stranger.open().is_none());
    }

    #[test]
    fn the_end_of_a_process_is_an_event() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let handle = ProcessId::of(child.id()).unwrap().open().unwrap();
        assert!(!handle.wait(Duration::ZERO));
        handle.signal(Signal::KILL);
        assert!(handle.wait(Duration::from_secs(30)));
        child.wait().unwrap();
    }
}
