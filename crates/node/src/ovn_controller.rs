//! Evidence that ovn-controller applies the southbound database.
//!
//! | link | evidence | at most so old |
//! |---|---|---|
//! | ovn-controller's main loop | it responds on its control socket | [`PERIOD`] + 3 s |
//! | southbound server | `connection-status`: the server responded to an inactivity probe | two probes |
//! | southbound database to flows | `ovn-nb-cfg` of br-int, compared with the value that the controller expects | [`PERIOD`] |
//!
//! `connection-status` alone proves only that the server's socket is served. The controller sees which chassis have not
//! acknowledged an `nb_cfg` that northd has copied, and annotates their Nodes (decision 0021).
//!
//! An ovn-controller that stays disconnected although a server works may be waiting in its backoff; the agent ends that
//! ([`SouthboundReconnect`]). Or it may refuse a recreated southbound database, because it remembers the former cluster's
//! state; the agent makes it reset that state (decision 0024).

use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Retries};
use kubernetes::Recorder;
use objects::EXPECTED_NB_CFG;
use ovn_schema::release::{Release, warning};
use ovsdb::client::{Client, TlsFiles};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::daemon::Daemon;
use crate::host_settings;
use crate::node_status;
use crate::own_node::OwnNode;
use crate::readiness::{Part, State};
use crate::southbound_reconnect::SouthboundReconnect;
use crate::switch::rows;

/// Interval of checks while ready; otherwise they back off from the first to the longest delay. Not a `Backoff`: polls, which
/// start at the longest delay after a ready time.
const PERIOD: Duration = Duration::from_secs(1);
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
/// After this time without a connection the cluster state is reset, and again after as long. The command is harmless if the
/// database is merely unreachable.
const RESET_AFTER: Duration = Duration::from_secs(10);
const RESET: &str = "sb-cluster-state-reset";
/// Output of `connection-status`.
const CONNECTED: &str = "connected";
/// Keys of br-int that ovn-controller writes: the `nb_cfg` of its flows, and when it applied it, in milliseconds.
const NB_CFG: &str = "ovn-nb-cfg";
const NB_CFG_TIME: &str = "ovn-nb-cfg-ts";

/// The last change that ovn-controller applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Applied {
    number: i64,
    /// When, in milliseconds since 1970.
    at: Option<i64>,
}

impl Applied {
    fn read(switch: &Client) -> Self {
        let snapshot = switch.snapshot();
        let Some(bridge) = rows::bridge(&snapshot) else { return Self::default() };
        let number = |key: &str| rows::external_id(&bridge, key)?.parse().ok();
        Self { number: number(NB_CFG).unwrap_or(0), at: number(NB_CFG_TIME) }
    }
}

impl std::fmt::Display for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.at.and_then(kubernetes::timestamp_of_milliseconds) {
            // A time, not an age: a message that changes would be written to the API again and again.
            Some(at) => write!(f, "it last applied a change (nb_cfg {}) at {at}", self.number),
            None => write!(f, "it has applied no change yet"),
        }
    }
}

/// Since when ovn-controller has been disconnected.
#[derive(Debug, Default)]
struct Disconnected {
    /// Since when, or since the last reset.
    since: Option<Instant>,
    resets: u32,
}

impl Disconnected {
    /// True if the cluster state must be reset now.
    fn is_reset_due(&mut self, connection: &Result<String, String>, now: Instant) -> bool {
        // Without a response nothing is known of its connection, and it could not be reset.
        let Ok(connection) = connection else { return false };
        if connection.trim() == CONNECTED {
            *self = Self::default();
            return false;
        }
        let since = self.since.get_or_insert(now);
        let due = now.duration_since(*since) >= RESET_AFTER;
        if due {
            *since = now;
            self.resets += 1;
        }
        due
    }
}

/// Checks this node's ovn-controller.
#[derive(Debug)]
pub(crate) struct OvnController {
    pub(crate) part: Part,
    pub(crate) switch: Client,
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
    /// Files for the southbound database, to ask its servers as ovn-controller would.
    pub(crate) tls: Option<TlsFiles>,
    /// Whether the node's own certificate can be used; None if it has none of its own.
    pub(crate) certificate: Option<watch::Receiver<State>>,
    /// For Events on the Node of this name.
    pub(crate) recorder: Recorder,
    pub(crate) name: String,
}

impl OvnController {
    /// Updates its part of the readiness. Never returns.
    pub(crate) async fn follow(mut self) {
        let daemon = Daemon::ovn_controller();
        let mut retries = Retries::without_jitter(RETRY);
        let mut disconnected = Disconnected::default();
        let mut reconnect = SouthboundReconnect::new();
        let mut checked = None;
        loop {
            let answer = daemon.command("connection-status", &[]).await.map_err(|error| error.to_string());
            if disconnected.is_reset_due(&answer, Instant::now()) {
                match daemon.command(RESET, &[]).await {
                    // Repeated as long as it is disconnected, but not news again.
                    Ok(_) if disconnected.resets > 1 => {
                        tracing::debug!("reset ovn-controller's cluster state again ({RESET})");
                    }
                    Ok(_) => tracing::info!(
                        seconds = RESET_AFTER.as_secs(),
                        "ovn-controller is still disconnected from the southbound database; reset its cluster state ({RESET}), because it \
                         rejects a recreated database; repeating this every {RESET_AFTER:?} until it is connected"
                    ),
                    Err(error) => tracing::warn!(%error, "cannot reset ovn-controller's cluster state; retrying"),
                }
            }
            if answer.is_ok() {
                self.check_release(&daemon, &mut checked).await;
            }
            let expected = self.node.borrow_and_update().as_deref().and_then(expected);
            let remote = host_settings::remote(&self.switch.snapshot());
            let is_disconnected = answer.as_deref().is_ok_and(|answer| answer.trim() != CONNECTED);
            let certificate = self.certificate.as_ref().and_then(|state| state.borrow().clone().err());
            let state =
                assess(answer, Applied::read(&self.switch), expected, remote.as_deref(), certificate.as_deref());
            let pause = if state.is_ok() {
                retries.reset();
                PERIOD
            } else {
                retries.next_delay()
            };
            self.part.set(&state);
            if is_disconnected {
                reconnect.intervene(&self.switch, self.tls.as_ref()).await;
            } else {
                reconnect.reset();
            }
            // An annotation of the controller is checked at once.
            if timeout(pause, self.node.changed()).await.is_ok_and(|changed| changed.is_err()) {
                sleep(pause).await;
            }
        }
    }
}

impl OvnController {
    /// Reports known vulnerabilities of ovn-controller's release, once for each process of it.
    async fn check_release(&self, daemon: &Daemon, checked: &mut Option<u32>) {
        let Ok(process) = daemon.process().await else { return };
        if *checked == Some(process) {
            return;
        }
        let Ok(output) = daemon.command("version", &[]).await else { return };
        *checked = Some(process);
        let Some(release) = Release::of_output(&output).ok() else { return };
        if let Some(warning) = warning("ovn-controller", release) {
            tracing::warn!(release = %release, "{warning}");
            let uid = self.node.borrow().as_ref().map(|node| node.uid.clone()).unwrap_or_default();
            self.recorder.record(node_status::node_event(&self.name, &uid, "OvnReleaseVulnerable", &warning));
        }
    }
}

fn expected(node: &OwnNode) -> Option<i64> {
    node.annotations.get(EXPECTED_NB_CFG)?.parse().ok()
}

/// Names the broken link, the last evidence and the remedy.
fn assess(
    connection: Result<String, String>,
    applied: Applied,
    expected: Option<i64>,
    southbound: Option<&str>,
    certificate: Option<&str>,
) -> State {
    let connection = connection.map_err(|why| format!("{why}; {applied}"))?;
    match connection.trim() {
        CONNECTED => {}
        other => {
            let Some(southbound) = southbound else {
                return Err("ovn-controller is not connected: this agent has not set the address of the southbound database yet (external_ids:ovn-remote)"
                    .into());
            };
            // Without a usable certificate no server accepts it, wherever it is.
            if let Some(certificate) = certificate {
                return Err(format!(
                    "ovn-controller is not connected to the southbound database {southbound}, and this node needs another \
                     certificate: {certificate}; {applied}"
                ));
            }
            return Err(format!(
                "ovn-controller is not connected to the southbound database {southbound} (it says {other:?}); {applied}; check that the \
                 address is right ([ovnsouth] address) and that this node reaches it; see ovn-controller's log"
            ));
        }
    }
    match expected.filter(|expected| *expected > applied.number) {
        None => Ok(()),
        Some(expected) => Err(format!(
            "ovn-controller is connected to the southbound database but has not applied nb_cfg {expected}; {applied}; see its \
             log and ovn-appctl -t ovn-controller inc-engine/show-stats; restart it if it does not catch up"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disconnected_ovn_controller_is_reset_repeatedly() {
        let mut disconnected = Disconnected::default();
        let (start, answer) = (Instant::now(), |text: &str| Ok(text.to_owned()));
        let mut due = |answer: Result<String, String>, second| {
            disconnected.is_reset_due(&answer, start + Duration::from_secs(second))
        };
        assert!(!due(answer("connected"), 0) && !due(answer("not connected"), 50));
        assert!(!due(answer("not connected"), 59) && !due(Err("hung".into()), 60));
        assert!(due(answer("not connected\n"), 61) && !due(answer("not connected"), 62));
        assert!(due(answer("not connected"), 71) && !due(answer("connected\n"), 90));
        assert!(!due(answer("not connected"), 91));
    }

    #[test]
    fn the_broken_link_is_named_with_the_last_evidence() {
        let applied = Applied { number: 112, at: Some(1_794_841_073_357) };
        let assess = |answer: Result<&str, &str>, expected| {
            let answer = answer.map(str::to_owned).map_err(str::to_owned);
            assess(answer, applied, expected, Some("tcp:192.0.2.1:6642"), None)
        };
        assert_eq!(assess(Ok("connected\n"), None), Ok(()));
        assert_eq!(assess(Ok("connected\n"), Some(112)), Ok(()));
        let evidence = "it last applied a change (nb_cfg 112) at 2026-11-16T14:57:53Z";
        for (answer, expected, link) in [
            (Ok("connected"), Some(113), "has not applied nb_cfg 113"),
            (Ok("not connected"), None, "is not connected to the southbound database tcp:192.0.2.1:6642"),
            (Err("ovn-controller (process 7) is hung"), Some(1), "is hung"),
        ] {
            let why = assess(answer, expected).unwrap_err();
            assert!(why.contains(link) && why.contains(evidence), "{why}");
        }
    }

    #[test]
    fn a_certificate_is_blamed_while_ovn_controller_is_disconnected() {
        let assess = |answer: &str| {
            assess(Ok(answer.to_owned()), Applied::default(), None, Some("ssl:192.0.2.1:6642"), Some("it was revoked"))
        };
        let why = assess("not connected").unwrap_err();
        assert!(why.contains("this node needs another certificate: it was revoked"), "{why}");
        // A connection lasts longer than its certificate.
        assert_eq!(assess("connected"), Ok(()));
    }
}
