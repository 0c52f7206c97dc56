//! Process metrics, read from `/proc` at scrape time.

use std::fs;
use std::path::{Path, PathBuf};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// `USER_HZ`: 100 on every supported Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads the values at scrape time; one that cannot be read is omitted.
#[derive(Debug)]
pub(crate) struct ProcessCollector {
    proc: PathBuf,
}

impl Default for ProcessCollector {
    fn default() -> Self {
        Self { proc: "/proc".into() }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Gauge)?)
        };
        let stat = fs::read_to_string(self.proc.join("self/stat")).unwrap_or_default();
        gauge(
            "process_start_time_seconds",
            "Start time of the process since the Unix epoch, in seconds",
            start_time(&stat, &self.proc),
        )?;
        gauge("process_resident_memory_bytes", "Resident memory of the process, in bytes", resident_bytes(&self.proc))?;
        gauge("process_open_fds", "Open file descriptors of the process", open_descriptors(&self.proc))?;
        if let Some(seconds) = processor_seconds(&stat) {
            let help = "User and system processor time spent by the process, in seconds";
            let kind = prometheus_client::metrics::MetricType::Counter;
            ConstCounter::new(seconds).encode(encoder.encode_descriptor("process_cpu_seconds", help, None, kind)?)?;
        }
        Ok(())
    }
}

/// Field of `/proc/self/stat` by its number in proc(5), from 3 on.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    // The second field is the command in brackets, which may contain spaces and brackets: count from its end.
    let (_, after_command) = stat.rsplit_once(')')?;
    after_command.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn start_time(stat: &str, proc: &Path) -> Option<f64> {
    let after_boot = stat_field(stat, 22)? / TICKS_PER_SECOND;
    let boot = number_after(&fs::read_to_string(proc.join("stat")).ok()?, "btime ")?;
    Some(boot + after_boot)
}

fn processor_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) / TICKS_PER_SECOND)
}

fn resident_bytes(proc: &Path) -> Option<f64> {
    let kibibytes = number_after(&fs::read_to_string(proc.join("self/status")).ok()?, "VmRSS:")?;
    Some(kibibytes * 1024.0)
}

fn open_descriptors(proc: &Path) -> Option<f64> {
    let count = fs::read_dir(proc.join("self/fd")).ok()?.count();
    // Reading the directory opens one itself.
    u32::try_from(count.saturating_sub(1)).ok().map(f64::from)
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_does_not_shift_the_fields() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 3 0 777 1 1";
        assert_eq!(processor_seconds(stat), Some(4.0));
        assert_eq!(stat_field(stat, 22), Some(777.0));
        assert_eq!(stat_field("", 22), None);
    }

    #[test]
    fn values_are_read_from_the_real_proc() {
        let proc = Path::new("/proc");
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(start_time(&stat, proc).unwrap() > 1.0e9);
        assert!(resident_bytes(proc).unwrap() > 4096.0);
        assert!(open_descriptors(proc).unwrap() >= 1.0);
        assert!(processor_seconds(&stat).is_some());
    }

    #[test]
    fn without_proc_all_values_are_omitted() {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(ProcessCollector { proc: "/nonexistent".into() }));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert_eq!(text, "# EOF\n");
    }
}
