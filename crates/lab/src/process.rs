//! Processes identified by pid *and* start time, so that a reused pid is never mistaken for an earlier process.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

/// Identifies a process even if its pid is reused later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// In the host's PID namespace.
    pub pid: u32,
    /// Clock ticks since boot.
    pub started: u64,
}

impl ProcessId {
    /// `None` if no such process exists.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: Stat::read(pid)?.started })
    }

    /// Whether this process still runs; a zombie does not.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }

    /// The state letter of `/proc/PID/stat` (`R`, `S`, `T`, …), if the process exists.
    pub fn state(self) -> Option<char> {
        Stat::read(self.pid).filter(|stat| stat.started == self.started).map(|stat| stat.state)
    }

    /// Resident memory, if it still runs.
    pub(crate) fn resident_kib(self) -> Option<u64> {
        if !self.is_alive() {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok())
    }

    /// `None` if it has exited.
    pub fn open(self) -> Option<ProcessHandle> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let descriptor = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The pid cannot be reused any more now that the pidfd is open.
        self.is_alive().then_some(ProcessHandle { descriptor })
    }
}

/// A pidfd: signals cannot reach another process.
#[derive(Debug)]
pub struct ProcessHandle {
    descriptor: OwnedFd,
}

impl ProcessHandle {
    /// Sends a signal; does nothing if the process has exited.
    pub fn signal(&self, signal: Signal) {
        // The only possible failure is that it has exited.
        let _ = rustix::process::pidfd_send_signal(&self.descriptor, signal);
    }

    /// Waits for its exit; false if it still runs after `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        wait_readable(&[self.descriptor.as_fd()], Instant::now() + limit).is_some()
    }

    /// Becomes readable when the process exits.
    pub(crate) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Waits until a descriptor is readable (or hung up) and returns its index; `None` at the deadline.
pub(crate) fn wait_readable(descriptors: &[std::os::fd::BorrowedFd<'_>], deadline: Instant) -> Option<usize> {
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

/// The output of a program, line by line as it comes; invalid UTF-8 is replaced.
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
        // The command name may contain spaces and parentheses: fields are counted from the last one.
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
    fn a_process_with_another_start_time_is_not_alive() {
        let me = ProcessId::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(me.resident_kib().unwrap() > 0);
        let stranger = ProcessId { started: me.started + 1, ..me };
        assert!(!stranger.is_alive());
        assert!(stranger.open().is_none());
    }

    #[test]
    fn a_handle_waits_for_the_exit() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let handle = ProcessId::of(child.id()).unwrap().open().unwrap();
        assert!(!handle.wait(Duration::ZERO));
        handle.signal(Signal::KILL);
        assert!(handle.wait(Duration::from_secs(30)));
        child.wait().unwrap();
    }
}
