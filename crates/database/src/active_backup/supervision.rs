//! What a member reports besides its readiness: findings in log, Events, metrics and `ovnkube db status`; and the space on its
//! disk. Checked beside the member: a disk that hangs must not delay the renewal of the Lease.

use std::convert::Infallible;
use std::time::{Duration, Instant, SystemTime};

use daemon::Warnings;
use kubernetes::{Api, ObjectReference};
use telemetry::StatusPage;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::assess;
use crate::checks::command;
use crate::clock::ClockWatch;
use crate::disk_check::DiskCheck;
use crate::finding::{Finding, FindingKind, Findings, Source};
use crate::image::Image;
use crate::inspect;
use crate::manager_status::{KnownPeers, ManagerStatus};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::process::ProcessWatch;
use crate::report::Reporter;

/// Interval of checks of the clock and of reports.
const PERIOD: Duration = Duration::from_secs(5);
/// Disk and process are checked once in this many checks.
const SLOW_PERIOD: u32 = 6;
/// A member that is neither active nor a backup with current data for this long is reported: a failover is shorter.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// What the server is for its clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// Neither of the others.
    #[default]
    Waiting,
    /// It accepts writes.
    Active,
    /// It has a copy of all data of the active one, and follows its changes.
    Backup,
}

impl Role {
    /// As `ovnkube db status` shows it.
    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::Backup => "backup",
        }
    }
}

/// What the member says about itself.
#[derive(Debug, Clone, Default)]
pub(super) struct MemberState {
    /// The running server; none while none runs.
    pub(super) server: Option<RunningServer>,
    /// Why no server runs, and the finding that is its cause if it has a name.
    pub(super) down: Option<(String, Option<Finding>)>,
    pub(super) role: Role,
    /// Why it is neither active nor a backup with current data.
    pub(super) idle: Option<String>,
    /// Version of the file's schema.
    pub(super) schema: Option<String>,
    /// What is wrong with the schema.
    pub(super) schema_finding: Option<Finding>,
}

/// A server that can be checked.
#[derive(Debug, Clone)]
pub(super) struct RunningServer {
    pub(super) process: u32,
    pub(super) warnings: Warnings,
}

/// Since when a member has been idle.
#[derive(Debug, Default)]
struct IdleSince(Option<Instant>);

impl IdleSince {
    /// The finding of a member that has been idle for long; `why` is none while it is not.
    fn observe(&mut self, why: Option<&str>, now: Instant) -> Option<Finding> {
        let Some(why) = why else {
            self.0 = None;
            return None;
        };
        let since = *self.0.get_or_insert(now);
        (now.saturating_duration_since(since) >= IDLE_LIMIT).then(|| {
            let message = format!(
                "this server has been neither active nor a backup with current data for more than {} s: {why}; see \
                 docs/runbooks/databases.md, section Active and backups",
                IDLE_LIMIT.as_secs()
            );
            Finding::new(FindingKind::NotReplicating, message)
        })
    }
}

/// The checks beside a member.
pub(super) struct Supervisor {
    options: Options,
    state: watch::Receiver<MemberState>,
    reporter: Reporter,
    metrics: Metrics,
    findings: Findings,
    status: ManagerStatus,
    clock: ClockWatch,
    disk: DiskCheck,
    idle: IdleSince,
    process: Option<(u32, ProcessWatch)>,
}

impl Supervisor {
    pub(super) fn new(
        options: &Options,
        image: &Image,
        api: &Api,
        (page, pod): (StatusPage, Option<ObjectReference>),
        metrics: Metrics,
        state: watch::Receiver<MemberState>,
    ) -> Self {
        let status = ManagerStatus {
            member: options.member.clone(),
            host: options.host.clone(),
            status_port: options.status_port,
            peers: KnownPeers::of(options),
            server_version: image.server.map(|version| version.to_string()),
            image_schema: image.schema.map(|version| version.to_string()),
            ..ManagerStatus::default()
        };
        Self {
            reporter: Reporter::new(api, options, page, pod),
            options: options.clone(),
            state,
            metrics,
            findings: Findings::default(),
            status,
            clock: ClockWatch::new(Instant::now(), SystemTime::now()),
            disk: DiskCheck::default(),
            idle: IdleSince::default(),
            process: None,
        }
    }

    /// Checks and reports for as long as it is polled.
    pub(super) async fn run(mut self) -> Infallible {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tick = 0_u32;
        loop {
            // A crash is reported at once, also if the server runs again at the next tick.
            let on_time = tokio::select! {
                _ = ticks.tick() => true,
                Ok(()) = self.state.changed() => false,
            };
            let state = self.state.borrow_and_update().clone();
            self.note(&state);
            if on_time {
                self.findings.set(Source::Clock, self.clock.check(Instant::now(), SystemTime::now()));
                // Also a new server: before, there may have been no file.
                let process = state.server.as_ref().map(|server| server.process);
                let is_new = process != self.process.as_ref().map(|(process, _)| *process);
                if is_new || tick.is_multiple_of(SLOW_PERIOD) {
                    self.check_server(&state).await;
                }
                tick = tick.wrapping_add(1);
            }
            self.reporter.publish(&mut self.findings, &self.metrics, &mut self.status);
        }
    }

    fn note(&mut self, state: &MemberState) {
        self.status.process = state.server.as_ref().map(|server| server.process);
        self.status.schema.clone_from(&state.schema);
        self.status.waiting_for.clone_from(&state.idle);
        self.findings.set(Source::Version, state.schema_finding.iter().cloned().collect());
        let down = state.down.as_ref().map(|(why, cause)| {
            let not_running = Finding::new(FindingKind::NotRunning, format!("the server does not run: {why}"));
            std::iter::once(not_running).chain(cause.clone()).collect::<Vec<_>>()
        });
        if state.server.is_none() {
            self.findings.server_ended();
            self.metrics.clear_status();
            self.status.clear_server();
        } else {
            self.status.set_role(state.role.name(), kubernetes::timestamp);
        }
        // While it does not run, that is what is reported.
        let idle = state.idle.as_deref().filter(|_| down.is_none());
        let idle = self.idle.observe(idle, Instant::now());
        self.findings.set(Source::Cluster, idle.into_iter().collect());
        self.findings.set(Source::Start, down.unwrap_or_default());
    }

    async fn check_server(&mut self, state: &MemberState) {
        let control = self.options.kind.control_socket(&self.options.run_directory);
        let running = state.server.as_ref();
        let found =
            self.disk.check(&self.options, running.map(|_| control.as_path()), &self.metrics, &mut self.status).await;
        self.findings.set(Source::Disk, found);
        let Some(server) = running else {
            self.process = None;
            return;
        };
        if self.process.as_ref().is_none_or(|(process, _)| *process != server.process) {
            self.process = Some((server.process, ProcessWatch::new(server.process)));
            // Freed memory is returned to the host after each compaction.
            if let Err(error) = command(&control, "ovsdb-server/memory-trim-on-compaction", &["on"]).await {
                tracing::debug!(%error, "cannot have ovsdb-server return freed memory after a compaction");
            }
        }
        let memory = command(&control, "memory/show", &[]).await.ok();
        self.status.clients = memory.as_deref().and_then(inspect::sessions);
        let Some((_, watch)) = &mut self.process else { return };
        let usage = watch.sample(&server.warnings.take(), None);
        self.metrics.set_usage(&usage);
        self.status.set_usage(&usage);
        let mut found = assess::usage(&usage);
        found.extend(watch.lost_ports(&[self.options.port]));
        self.findings.set(Source::Process, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_reported_after_a_minute_without_current_data() {
        let (mut idle, start) = (IdleSince::default(), Instant::now());
        assert_eq!(idle.observe(Some("connecting"), start), None);
        assert_eq!(idle.observe(Some("connecting"), start + IDLE_LIMIT / 2), None);
        let found = idle.observe(Some("no server is active"), start + IDLE_LIMIT).unwrap();
        assert_eq!(found.kind, FindingKind::NotReplicating);
        assert!(found.message.contains("no server is active"), "{found:?}");
        assert_eq!(idle.observe(None, start + IDLE_LIMIT), None);
        assert_eq!(idle.observe(Some("again"), start + 2 * IDLE_LIMIT), None, "the time starts again");
    }
}
