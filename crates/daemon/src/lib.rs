//! Daemons of OVN and Open vSwitch as child processes: ovsdb-server, ovn-northd.
//!
//! ```text
//!   Daemon::spawn ──▶ Running ──wait──▶ Exit: the program ended, or hung and was killed
//!                        │ stderr ──▶ our log, with the daemon's levels
//!                        └ stop ──▶ `exit` by its control socket, then SIGKILL
//! ```
//!
//! A daemon that does not reply at its control socket is not necessarily stuck: while it computes it uses CPU. Only one that
//! does neither is killed. One that has not created its socket yet has more time; one whose socket was deleted is left alone.

mod log;
mod warnings;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ovsdb::client::control_command;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub use crate::warnings::Warnings;

/// Interval of liveness checks.
const PROBE_PERIOD: Duration = Duration::from_secs(5);
/// How long a daemon may use no CPU before its control socket exists: it may wait for a slow disk, from which it reads its file.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A daemon of Open vSwitch or OVN with a control socket, to run as a child process.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// Name in log lines, e.g. `ovn-northd`.
    pub name: &'static str,
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: PathBuf,
    /// They must keep it in the foreground, logging to standard error.
    pub arguments: Vec<String>,
    /// Where the daemon is asked for replies, and to exit.
    pub control: Control,
    /// How long it may neither reply nor use CPU before it is killed; two minutes at least until it has created its socket.
    pub hung_after: Duration,
}

/// Where a daemon has its control socket.
#[derive(Debug, Clone)]
pub enum Control {
    /// At a path that its arguments name.
    Path(PathBuf),
    /// At OVN's default, `<directory>/<name>.<pid>.ctl`.
    Default(PathBuf),
}

/// Why a daemon does not run any more.
#[derive(Debug)]
pub enum Exit {
    /// By itself, or by a signal of another process.
    Ended(io::Result<ExitStatus>),
    /// It did not answer its control socket, and was killed.
    Hung,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(Ok(status)) => status.fmt(f),
            Self::Ended(Err(error)) => error.fmt(f),
            Self::Hung => f.write_str("hung (no reply, no CPU use) and was killed"),
        }
    }
}

/// A running daemon; killed on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: &'static str,
    process: u32,
    control: PathBuf,
    log: Option<JoinHandle<()>>,
    warnings: Warnings,
    hung: watch::Receiver<bool>,
    probe: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.probe.abort();
    }
}

impl Daemon {
    /// Starts it. Its log goes to ours.
    pub fn spawn(&self) -> io::Result<Running> {
        let mut command = Command::new(&self.program);
        let mut child =
            command.args(&self.arguments).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let process = child.id().unwrap_or_default();
        let control = match &self.control {
            Control::Path(path) => path.clone(),
            Control::Default(directory) => directory.join(format!("{}.{process}.ctl", self.name)),
        };
        let warnings = Warnings::default();
        let log = child.stderr.take().map(|stderr| tokio::spawn(log::copy(self.name, stderr, warnings.clone())));
        // A task of its own: a caller may cancel `wait` as often as it likes.
        let (hung_sender, hung) = watch::channel(false);
        let (socket, hung_after) = (control.clone(), self.hung_after);
        let probe = tokio::spawn(async move {
            until_hung(process, socket, hung_after).await;
            hung_sender.send_replace(true);
        });
        Ok(Running { child, name: self.name, process, control, log, warnings, hung, probe })
    }
}

impl Running {
    /// Process ID; valid until [`Running::wait`] returns.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Path of its control socket; the daemon creates it a moment after the start.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Warnings and errors in its log.
    pub fn warnings(&self) -> Warnings {
        self.warnings.clone()
    }

    /// Waits until it ends; kills it if it hangs. Can be called again if it was cancelled.
    pub async fn wait(&mut self) -> Exit {
        let ended = tokio::select! {
            ended = self.child.wait() => Some(ended),
            Ok(true) = async { self.hung.wait_for(|hung| *hung).await.map(|hung| *hung) } => None,
        };
        let exit = match ended {
            Some(ended) => Exit::Ended(ended),
            None => {
                let error = "it neither replies nor uses CPU";
                tracing::error!(program = self.name, pid = self.process, error, "daemon hangs; killing it");
                self.kill().await;
                Exit::Hung
            }
        };
        self.clean_up().await;
        exit
    }

    /// Asks it to exit; kills it if it still runs after `limit`.
    pub async fn stop(&mut self, limit: Duration) {
        let asked = async {
            control_command(&self.control, "exit", &[]).await?;
            self.child.wait().await
        };
        let failure = match timeout(limit, asked).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("it still runs after {} s", limit.as_secs())),
        };
        if let Some(error) = failure {
            tracing::warn!(
                program = self.name,
                pid = self.process,
                error,
                "daemon did not exit on request; killing it"
            );
            self.kill().await;
        }
        self.clean_up().await;
    }

    /// Kills it: it must not do anything any more.
    pub async fn kill_now(&mut self) {
        self.kill().await;
        self.clean_up().await;
    }

    async fn kill(&mut self) {
        // It may have ended by itself meanwhile.
        let _ = self.child.start_kill();
        let _ = self.child.wait().await;
    }

    async fn clean_up(&mut self) {
        // A killed process leaves its socket behind.
        let _ = std::fs::remove_file(&self.control);
        if let Some(log) = self.log.take() {
            // Ends when the pipe is closed.
            let _ = log.await;
        }
    }
}

/// Returns when the daemon hangs.
async fn until_hung(process: u32, socket: PathBuf, hung_after: Duration) {
    let mut silence = Silence::new(hung_after);
    loop {
        sleep(PROBE_PERIOD).await;
        let answers =
            timeout(PROBE_PERIOD, control_command(&socket, "version", &[])).await.is_ok_and(|answer| answer.is_ok());
        let control = match (answers, socket.exists()) {
            (true, _) => Probed::Answers,
            (false, true) => Probed::Silent,
            (false, false) => Probed::NoSocket,
        };
        if silence.observe(control, cpu_time(process), Instant::now()) {
            return;
        }
    }
}

/// What a probe of the control socket found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probed {
    Answers,
    Silent,
    NoSocket,
}

/// How long a daemon has neither replied nor used CPU.
#[derive(Debug)]
struct Silence {
    hung_after: Duration,
    /// Whether the control socket was ever there: one that was deleted later says nothing about the daemon.
    had_socket: bool,
    /// Since when, and the CPU time until then.
    since: Option<(Instant, Option<Duration>)>,
}

impl Silence {
    fn new(hung_after: Duration) -> Self {
        Self { hung_after, had_socket: false, since: None }
    }

    /// Takes a probe; returns whether the daemon hangs.
    fn observe(&mut self, probed: Probed, used: Option<Duration>, now: Instant) -> bool {
        self.had_socket |= probed != Probed::NoSocket;
        if probed == Probed::Answers || probed == Probed::NoSocket && self.had_socket {
            self.since = None;
            return false;
        }
        let limit = if self.had_socket { self.hung_after } else { self.hung_after.max(START_LIMIT) };
        match self.since {
            Some((since, before)) if before == used => now.saturating_duration_since(since) >= limit,
            _ => {
                self.since = Some((now, used));
                false
            }
        }
    }
}

/// The user and system CPU time of a process; none if there is none.
pub fn cpu_time(process: u32) -> Option<Duration> {
    /// Linux reports times to programs in hundredths of a second, whatever its own clock.
    const TICKS: u64 = 100;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the command name, which may contain anything: words 12 and 13.
    let (_, rest) = text.rsplit_once(')')?;
    let ticks: Vec<u64> = rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    (ticks.len() == 2).then(|| Duration::from_millis(ticks.iter().sum::<u64>() * 1000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_parsed() {
        assert!(cpu_time(std::process::id()).is_some_and(|used| used < Duration::from_secs(3600)));
        assert_eq!(cpu_time(0), None);
    }

    /// A daemon that is probed every 5 s and whose CPU time does not change; the seconds after which it hangs.
    fn hangs_after(probes: impl Fn(u64) -> Probed) -> Option<u64> {
        let (mut silence, start) = (Silence::new(Duration::from_secs(15)), Instant::now());
        let used = Some(Duration::from_secs(1));
        (5..600).step_by(5).find(|second| silence.observe(probes(*second), used, start + Duration::from_secs(*second)))
    }

    #[test]
    fn a_daemon_without_reply_and_cpu_use_hangs_also_before_it_created_its_socket() {
        assert_eq!(hangs_after(|_| Probed::Answers), None);
        assert_eq!(hangs_after(|_| Probed::Silent), Some(20));
        assert_eq!(hangs_after(|_| Probed::NoSocket), Some(125), "it may read a large file from a slow disk");
        let starts = |second| if second < 60 { Probed::NoSocket } else { Probed::Answers };
        assert_eq!(hangs_after(starts), None);
        let deleted = |second| if second < 60 { Probed::Answers } else { Probed::NoSocket };
        assert_eq!(hangs_after(deleted), None, "a deleted socket says nothing about the daemon");
    }

    #[test]
    fn a_daemon_that_uses_cpu_is_busy() {
        let (mut silence, start) = (Silence::new(Duration::from_secs(15)), Instant::now());
        for second in (5..600).step_by(5) {
            let used = Some(Duration::from_secs(second));
            let control = if second < 300 { Probed::NoSocket } else { Probed::Silent };
            assert!(!silence.observe(control, used, start + Duration::from_secs(second)), "{second}");
        }
    }
}
