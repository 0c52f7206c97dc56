//! CPU and memory of the server, from `/proc`, and the memory that is left.

use std::time::{Duration, Instant};

use crate::assess::{self, BUSY_CPU, LogWarning, Usage, log_line};
use crate::finding::Finding;

/// Follows the use of resources of one process.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    process: u32,
    /// When the CPU time was read, and what it was.
    last: Option<(Instant, Duration)>,
    busy_intervals: u32,
    /// Whether a port could not be opened since the process started.
    listen_failed: bool,
}

impl ProcessWatch {
    pub(crate) fn new(process: u32) -> Self {
        Self { process, last: None, busy_intervals: 0, listen_failed: false }
    }

    /// Use since the last sample; `warnings` are the lines of its log since then.
    pub(crate) fn sample(&mut self, warnings: &[String], election_timer: Option<Duration>) -> Usage {
        let now = Instant::now();
        let used = daemon::cpu_time(self.process).unwrap_or_default();
        let cpu = self.last.map_or(0.0, |(at, before)| {
            used.saturating_sub(before).as_secs_f64() / now.duration_since(at).as_secs_f64().max(0.001)
        });
        self.last = Some((now, used));
        self.busy_intervals = if cpu >= BUSY_CPU { self.busy_intervals + 1 } else { 0 };
        let mut longest_step = Duration::ZERO;
        for warning in warnings.iter().filter_map(|line| log_line(line)) {
            match warning {
                LogWarning::ListenFailed => self.listen_failed = true,
                LogWarning::Busy(took) => longest_step = longest_step.max(took),
            }
        }
        Usage {
            cpu,
            busy_intervals: self.busy_intervals,
            resident: resident(self.process).unwrap_or(0),
            available: available(),
            longest_step,
            election_timer,
        }
    }

    /// The ports that the server could not open, if its log said so and another process still has one of them.
    pub(crate) fn lost_ports(&mut self, ports: &[u16]) -> Option<Finding> {
        if !self.listen_failed {
            return None;
        }
        let lost = ports.iter().filter(|port| listens(self.process, **port) == Some(false));
        let lost: Vec<String> = lost.map(u16::to_string).collect();
        self.listen_failed = !lost.is_empty();
        if lost.is_empty() {
            return None;
        }
        assess::failure(&format!("the server cannot listen on port {}: Address already in use", lost.join(" and ")))
    }
}

/// The first number of the line that starts with `key`, in bytes: `MemAvailable:   123 kB`.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|number| number * 1024)
}

fn resident(process: u32) -> Option<u64> {
    kilobytes(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?, "VmRSS:")
}

/// Memory that is left: of the container's limit, if it has one, and of the host.
fn available() -> Option<u64> {
    let host = kilobytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let read = |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    // Version 2, and version 1.
    let room = left_of_limit(read("memory.max"), read("memory.stat"), ["anon ", "shmem "]).or_else(|| {
        let (limit, used) = (read("memory/memory.limit_in_bytes"), read("memory/memory.stat"));
        left_of_limit(limit, used, ["total_rss ", "total_shmem "])
    });
    Some(room.map_or(host, |room| room.min(host)))
}

/// What is left of a cgroup's limit; none without one. The total use includes cached pages of files, among them the database
/// that was just written: the kernel drops these before it kills a process, so only what it cannot drop counts.
fn left_of_limit(limit: Option<String>, statistics: Option<String>, used: [&str; 2]) -> Option<u64> {
    let limit: u64 = limit?.trim().parse().ok()?;
    let statistics = statistics?;
    let bytes = |key| statistics.lines().find_map(|line| line.strip_prefix(key))?.trim().parse::<u64>().ok();
    // Kernels before 4.0 do not count shared memory.
    Some(limit.saturating_sub(bytes(used[0])?).saturating_sub(bytes(used[1]).unwrap_or(0)))
}

/// Whether the process itself listens on a port; none if that cannot be known.
pub(crate) fn listens(process: u32, port: u16) -> Option<bool> {
    let tables = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/{process}/net/{name}")));
    let inodes: Vec<String> = tables.iter().flatten().flat_map(|text| listeners(text, port)).collect();
    let mut own = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
    Some(own.any(|entry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        inodes.iter().any(|inode| target.to_str() == Some(&format!("socket:[{inode}]")))
    }))
}

/// Inodes of the sockets that listen on a port, in a table of `/proc/net`.
fn listeners(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 9 && row[1].ends_with(&port) && row[3] == LISTEN)
        .map(|row| row[9].to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens_is_true_only_for_the_process_that_has_the_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listens(std::process::id(), port), Some(true));
        drop(listener);
        assert_eq!(listens(std::process::id(), port), Some(false));
        assert_eq!(listens(0, port), None);
    }

    #[test]
    fn a_port_that_another_process_has_is_reported_until_the_server_has_it() {
        let mut watch = ProcessWatch::new(std::process::id());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (used, free) = (listener.local_addr().unwrap().port(), 1);
        assert_eq!(watch.lost_ports(&[free]), None, "its log says nothing");
        let failed = ["ovsdb_jsonrpc_server: ptcp:1: listen failed: Address already in use".to_owned()];
        watch.sample(&failed, None);
        let found = watch.lost_ports(&[used, free]).unwrap();
        assert!(found.message.contains("cannot listen on port 1:"), "{found:?}");
        assert_eq!(watch.lost_ports(&[used]), None);
        assert_eq!(watch.lost_ports(&[free]), None, "it listened since");
    }

    #[test]
    fn cached_pages_of_files_are_left_to_the_server() {
        let text = |text: &str| Some(text.to_owned());
        let statistics = text("anon 104857600\nfile 943718400\nkernel 1048576\nshmem 1048576\nactive_anon 1\n");
        let keys = ["anon ", "shmem "];
        // A limit of 1 GB, all of which is used: 900 MB by the cache.
        assert_eq!(left_of_limit(text("1073741824\n"), statistics.clone(), keys), Some((1024 - 100 - 1) << 20));
        assert_eq!(left_of_limit(text("max\n"), statistics.clone(), keys), None);
        assert_eq!(left_of_limit(None, statistics, keys), None);
        let old = text("cache 5\nrss 1\ntotal_cache 900\ntotal_rss 300\n");
        assert_eq!(left_of_limit(text("1000"), old, ["total_rss ", "total_shmem "]), Some(700));
    }

    #[test]
    fn use_and_memory_are_measured() {
        let mut watch = ProcessWatch::new(std::process::id());
        let lines = ["timeval: Unreasonably long 1500ms poll interval (1ms user, 1ms system)".to_owned()];
        let usage = watch.sample(&lines, None);
        assert!(usage.resident > 1 << 20 && usage.available.is_some_and(|bytes| bytes > 1 << 20), "{usage:?}");
        assert_eq!(usage.longest_step, Duration::from_millis(1500));
        assert_eq!(watch.sample(&[], None).longest_step, Duration::ZERO);
    }
}
