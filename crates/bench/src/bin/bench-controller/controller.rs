//! The measured controller: a release build in its own process, observed through /proc and its log.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use lab::Program;
use serde_json::Value;

use crate::object_watch::TIMEOUT;
use crate::world::World;

/// Metrics address of a controller, on its machine.
pub(crate) const METRICS: &str = "127.0.0.1:9102";

pub(crate) struct Controller {
    pub(crate) name: String,
    pub(crate) pid: u32,
    /// Seconds since 1970.
    started: f64,
}

/// Now, in seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Controller {
    /// Starts a controller; it may not lead yet on return.
    pub(crate) fn start(world: &World, name: &str) -> Result<Self> {
        Self::start_with(world, name, "off")
    }

    /// Starts a controller with metrics, and waits until it leads.
    pub(crate) fn measured(world: &World, name: &str) -> Result<Self> {
        let controller = Self::start_with(world, name, METRICS)?;
        controller.logged(world, "leading")?;
        Ok(controller)
    }

    fn start_with(world: &World, name: &str, metrics: &str) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("ovnkube");
        if !program.exists() {
            bail!("{} not found: run `make bench-controller`, which builds it", program.display());
        }
        let program = Program::new(name, program)
            .arguments(["controller", "--identity", name, "--metrics-bind-address", metrics])
            .arguments(["--nb-address", &world.northbound, "--sb-address", &world.southbound])
            // The Service network of the lab's API server.
            .arguments(["--k8s-service-cidrs", "10.96.0.0/16"]);
        world.lab.run(&program)?;
        let pid = world.lab.record().component(name)?.process.pid;
        Ok(Self { name: name.to_owned(), pid, started: started(pid)? })
    }

    /// Starts a controller and waits until it leads.
    pub(crate) fn lead(world: &World, name: &str) -> Result<Self> {
        let controller = Self::start(world, name)?;
        controller.logged(world, "leading")?;
        Ok(controller)
    }

    /// Starts a controller and waits for its initial resync.
    pub(crate) fn resynced(world: &World, name: &str) -> Result<Self> {
        let controller = Self::start(world, name)?;
        controller.logged(world, "resync complete")?;
        Ok(controller)
    }

    /// When its process started, in seconds since 1970.
    pub(crate) fn started(&self) -> f64 {
        self.started
    }

    /// Stops it gracefully, which releases the Lease.
    pub(crate) fn end(self, world: &World) -> Result<()> {
        let status = world.lab.terminate(&self.name, TIMEOUT)?;
        if !status.success() {
            bail!("{} ended with {status}", self.name);
        }
        Ok(())
    }

    /// CPU seconds so far, of all its threads, user and system.
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(bench::process_cpu_seconds(self.pid)?)
    }

    /// Peak resident memory, in MB (of 1,000,000 bytes).
    pub(crate) fn peak(&self) -> Result<f64> {
        Ok(bench::process_peak_megabytes(self.pid)?)
    }

    /// Time of the first log line with this text, in seconds since 1970; waits for it.
    pub(crate) fn logged(&self, world: &World, text: &str) -> Result<f64> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let log = world.lab.log(&self.name)?;
            // The last line may be half written.
            let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(line) = whole.lines().find(|line| line.contains(text)) {
                return time_of(line);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} did not log {text:?} within {TIMEOUT:?}", self.name)
    }

    /// Seconds from the start of its process to this log text.
    pub(crate) fn until(&self, world: &World, text: &str) -> Result<f64> {
        Ok(self.logged(world, text)? - self.started)
    }
}

/// The time of a line of a log in JSON.
fn time_of(line: &str) -> Result<f64> {
    let value: Value = serde_json::from_str(line).with_context(|| format!("log line {line:?} is not JSON"))?;
    let text = value["timestamp"].as_str().with_context(|| format!("log line {line:?} has no timestamp"))?;
    let time: jiff::Timestamp = text.parse()?;
    Ok(time.as_nanosecond() as f64 / 1e9)
}

/// When a process started, in seconds since 1970, to a hundredth.
fn started(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("cannot read /proc/{pid}: the process has exited"))?;
    let ticks = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse::<f64>().ok());
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let uptime: f64 = uptime.split_whitespace().next().context("/proc/uptime is empty")?.parse()?;
    Ok(now() - (uptime - ticks.with_context(|| format!("/proc/{pid}/stat has no start time"))? / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_of_a_process_and_time_of_a_log_line() {
        let age = now() - started(std::process::id()).expect("this process runs");
        // The kernel reports start times in hundredths of a second.
        assert!((-0.02..3600.0).contains(&age), "{age}");
        let time = time_of(r#"{"timestamp":"1970-01-01T00:00:01.500000Z","level":"INFO"}"#).expect("a time");
        assert!((time - 1.5).abs() < 1e-9);
        assert!(time_of("plain").is_err());
    }
}
