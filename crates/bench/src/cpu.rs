//! CPU time from /proc, of this thread and of another process, and memory of another process.

use std::fs;

use crate::BenchError;

/// Ticks per second of /proc's counters (`USER_HZ`): 100 on every supported architecture,
/// whatever the kernel's own clock.
const TICKS: f64 = 100.0;

/// CPU seconds of the calling thread, in nanosecond resolution if the kernel has schedstats.
pub fn thread_cpu_seconds() -> Result<f64, BenchError> {
    // Nanoseconds; `stat` has hundredths of a second.
    read("/proc/thread-self/schedstat", schedstat_seconds).or_else(|_| read("/proc/thread-self/stat", stat_seconds))
}

/// CPU seconds of a process, user and system, of all its threads, ended ones included. Its children
/// are not counted.
pub fn process_cpu_seconds(pid: u32) -> Result<f64, BenchError> {
    read(&format!("/proc/{pid}/stat"), stat_seconds)
}

/// Peak resident memory of a process, in MB (of 1,000,000 bytes).
pub fn process_peak_megabytes(pid: u32) -> Result<f64, BenchError> {
    read(&format!("/proc/{pid}/status"), peak_megabytes)
}

/// Memory of a process in MB (of 1,000,000 bytes).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// All pages, shared ones included.
    pub resident: f64,
    /// Shared pages divided among the processes that share them.
    pub proportional: f64,
}

/// Memory of a process now.
pub fn process_memory(pid: u32) -> Result<Memory, BenchError> {
    read(&format!("/proc/{pid}/smaps_rollup"), memory)
}

fn memory(text: &str) -> Option<Memory> {
    Some(Memory { resident: megabytes(text, "Rss:")?, proportional: megabytes(text, "Pss:")? })
}

/// A line such as `Rss:  123 kB`.
fn megabytes(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB"))?;
    Some(line.trim().parse::<f64>().ok()? * 1024.0 / 1e6)
}

fn peak_megabytes(text: &str) -> Option<f64> {
    megabytes(text, "VmHWM:")
}

/// CPU seconds, user and system, of all children of this process that were waited for.
pub fn children_cpu_seconds() -> Result<f64, BenchError> {
    read("/proc/self/stat", |text| stat_seconds_from(text, 13))
}

fn read<T>(path: &str, parse: fn(&str) -> Option<T>) -> Result<T, BenchError> {
    let failed = |problem: String| BenchError::Cpu { path: path.to_owned(), problem };
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    parse(&text).ok_or_else(|| failed(format!("unexpected contents {:?}", text.trim())))
}

/// `<nanoseconds on CPU> <nanoseconds waiting> <time slices>`.
fn schedstat_seconds(text: &str) -> Option<f64> {
    let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
    // A kernel without these statistics reports 0.
    (nanoseconds > 0).then(|| nanoseconds as f64 / 1e9)
}

/// Fields 14 and 15 of `<pid> (<name>) <state> …`. The name may contain blanks and brackets, so count from its end.
fn stat_seconds(text: &str) -> Option<f64> {
    stat_seconds_from(text, 11)
}

/// Two fields at an offset after the name: those of children follow those of the process.
fn stat_seconds_from(text: &str, place: usize) -> Option<f64> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(place);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_a_name_with_blanks_and_brackets() {
        let text = "966 (a ) b) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1";
        assert_eq!(stat_seconds(text), Some(3.0));
        assert_eq!(stat_seconds_from("966 (c) R 1 2 3 4 5 6 7 8 9 10 250 50 100 25 20", 13), Some(1.25));
        assert_eq!(stat_seconds("966 (cut) R 1 2"), None);
        assert_eq!(stat_seconds(""), None);
    }

    #[test]
    fn peak_memory_is_read() {
        assert_eq!(peak_megabytes("VmPeak:\t 9 kB\nVmHWM:\t    1000 kB\nVmRSS:\t 1 kB\n"), Some(1.024));
        assert!(process_peak_megabytes(std::process::id()).expect("this process runs") > 0.0);
    }

    #[test]
    fn memory_now_is_read() {
        let used = memory("55 [rollup]\nRss:  2000 kB\nPss:  1000 kB\nPss_Dirty: 7 kB\n").unwrap();
        assert_eq!(used, Memory { resident: 2.048, proportional: 1.024 });
        assert!(process_memory(std::process::id()).expect("this process runs").resident > 0.0);
    }

    #[test]
    fn schedstat_counts_nanoseconds() {
        assert_eq!(schedstat_seconds("1500000000 7 2\n"), Some(1.5));
        assert_eq!(schedstat_seconds("0 0 0"), None);
    }

    #[test]
    fn this_process_has_a_cpu_time() {
        assert!(process_cpu_seconds(std::process::id()).expect("this process runs") >= 0.0);
        let before = thread_cpu_seconds().expect("this thread runs");
        let sum = (0..200_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        std::hint::black_box(sum);
        assert!(thread_cpu_seconds().expect("this thread runs") >= before);
    }

    #[test]
    fn an_error_names_the_missing_process() {
        let error = process_cpu_seconds(u32::MAX).expect_err("no such process").to_string();
        assert!(error.contains(&format!("/proc/{}/stat", u32::MAX)), "{error}");
    }
}
