//! Keeps the units running: observes them, and carries out what `hostovs::units` decides.

use std::time::Duration;

use backoff::{Backoff, Retries};
use hostovs::units::{Action, CANDIDATES, Daemon, Decision, Layout, LayoutError, Observation, Supervisor};
use telemetry::{Condition, Heartbeat, Telemetry};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::metrics::Metrics;
use crate::systemd::{Systemd, SystemdError};

/// Signals say when units change; this is for what has none.
const PERIOD: Duration = Duration::from_secs(10);
/// systemd or D-Bus may restart without being reported.
const GRACE: Duration = Duration::from_secs(5);
/// The loop ends each turn within this time, whatever systemd does.
const STALLED_AFTER: Duration = Duration::from_secs(180);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

pub(crate) struct Supervision {
    /// Configured; none to detect it.
    unit: Option<String>,
    bus: Option<String>,
    supervisor: Supervisor,
    start: Instant,
    condition: Condition,
    heartbeat: Heartbeat,
    metrics: Metrics,
    /// Process of the unit of ovs-vswitchd; none if systemd was not asked yet.
    process: watch::Sender<Option<u32>>,
    /// What was logged last.
    reported: Vec<String>,
}

impl Supervision {
    pub(crate) fn new(
        unit: Option<String>,
        bus: Option<String>,
        telemetry: &Telemetry,
        metrics: Metrics,
        process: watch::Sender<Option<u32>>,
    ) -> Self {
        let health = telemetry.health();
        Self {
            unit,
            bus,
            supervisor: Supervisor::default(),
            start: Instant::now(),
            condition: health.condition("units"),
            heartbeat: health.heartbeat("supervision", STALLED_AFTER),
            metrics,
            process,
            reported: Vec::new(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut retries = Retries::without_jitter(BACKOFF);
        let mut last_contact = Instant::now();
        loop {
            self.heartbeat.beat();
            let result = match Systemd::connect(self.bus.as_deref()).await {
                Ok(mut systemd) => self.follow(&mut systemd, &mut last_contact, &mut retries).await,
                Err(error) => Err(error.into()),
            };
            let Err(error) = result else { continue };
            if last_contact.elapsed() >= GRACE || matches!(error, FollowError::Layout(_)) {
                self.condition.not_ready(error.to_string());
            }
            self.report(vec![error.to_string()]);
            sleep(retries.next_delay()).await;
        }
    }

    /// Follows the units until the connection is lost.
    async fn follow(
        &mut self,
        systemd: &mut Systemd,
        last_contact: &mut Instant,
        retries: &mut Retries,
    ) -> Result<(), FollowError> {
        let layout = self.layout(systemd).await?;
        loop {
            self.heartbeat.beat();
            let seen = observe(systemd, &layout).await?;
            (*last_contact, _) = (Instant::now(), retries.reset());
            let decision = self.supervisor.decide(&layout, &seen, self.start.elapsed());
            self.show(&layout, &seen, &decision);
            for action in &decision.actions {
                self.act(systemd, action).await;
            }
            let wake = decision.wake.map_or(PERIOD, |wake| wake.saturating_sub(self.start.elapsed()).min(PERIOD));
            tokio::select! {
                changed = systemd.changed() => changed?,
                () = sleep_until(Instant::now() + wake) => {}
            }
        }
    }

    async fn layout(&self, systemd: &Systemd) -> Result<Layout, FollowError> {
        if let Some(unit) = &self.unit {
            return Ok(Layout::with_umbrella(unit)?);
        }
        let mut present = Vec::new();
        for unit in CANDIDATES {
            if systemd.unit(unit).await?.load != hostovs::units::Load::NotFound {
                present.push(unit);
            }
        }
        Ok(Layout::detect(|unit| present.contains(&unit))?)
    }

    async fn act(&mut self, systemd: &Systemd, action: &Action) {
        let (verb, unit) = match action {
            Action::Enable(unit) => ("enable", unit),
            Action::ResetFailed(unit) => ("reset-failed", unit),
            Action::Start(unit) => ("start", unit),
        };
        match systemd.act(action).await {
            Ok(()) => {
                tracing::info!(unit, action = verb, "asked systemd to act on a unit of Open vSwitch");
                self.metrics.acted(verb, unit);
            }
            Err(error) => tracing::warn!(unit, action = verb, %error, "systemd refused to act on a unit; trying again"),
        }
    }

    fn show(&mut self, layout: &Layout, seen: &Observation, decision: &Decision) {
        for unit in layout.units() {
            self.metrics.set_active(unit, seen.units.get(unit).is_some_and(hostovs::units::UnitState::is_active));
        }
        let switch = seen.units.get(layout.unit(Daemon::Vswitchd)).map_or(0, |unit| unit.main_process);
        self.process.send_if_modified(|process| process.replace(switch) != Some(switch));
        let findings: Vec<String> = decision.findings.iter().map(ToString::to_string).collect();
        if findings.is_empty() {
            self.condition.ready();
        } else {
            self.condition.not_ready(findings.join("; "));
        }
        self.report(findings);
    }

    /// Logs what is new.
    fn report(&mut self, findings: Vec<String>) {
        // Times until the next attempt change; the same problem is logged once per attempt.
        for finding in findings.iter().filter(|finding| !self.reported.contains(finding)) {
            tracing::warn!(error = finding, "a unit of Open vSwitch is not as it should be");
        }
        if findings.is_empty() && !self.reported.is_empty() {
            tracing::info!("the units of Open vSwitch run");
        }
        self.reported = findings;
    }
}

async fn observe(systemd: &Systemd, layout: &Layout) -> Result<Observation, SystemdError> {
    let mut seen = Observation { stopping: systemd.is_stopping().await?, ..Observation::default() };
    for unit in layout.units() {
        seen.units.insert(unit.to_owned(), systemd.unit(unit).await?);
    }
    Ok(seen)
}
