//! Whether ovn-controller provably applies what the southbound database has.
//!
//! | link | evidence | at most so old |
//! |---|---|---|
//! | ovn-controller's main loop | it answers on its control socket | [`PERIOD`] + 3 s |
//! | southbound server | `connection-status`: the server answered an inactivity probe | two probes |
//! | what is in SB reaches the flows | `ovn-nb-cfg` of br-int, against the number that the controller expects | [`PERIOD`] |
//!
//! `connection-status` alone proves only that the server's socket is served. The controller sees which chassis have not
//! repeated an `nb_cfg` that northd has passed on, and writes it onto those Nodes (decision 0021).
//!
//! An ovn-controller that stays disconnected may refuse a southbound database that was created anew, because it remembers
//! how far the former cluster was. It is made to forget that (decision 0024).

use std::sync::Arc;
use std::time::Duration;

use ovsdb::client::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use topology::objects::EXPECTED_NB_CFG;

use crate::daemon::Daemon;
use crate::own_node::OwnNode;
use crate::readiness::{Part, State};
use crate::switch::rows;

/// How often it is asked while all is well; sooner while something waits for it.
const PERIOD: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_millis(200);
const LATER: Duration = Duration::from_secs(2);
/// An ovn-controller that has been disconnected for so long forgets the cluster that it knew, and again after as long. The
/// command does no harm where the database is only out of reach.
const FORGETS_CLUSTER: Duration = Duration::from_secs(10);
const RESET: &str = "sb-cluster-state-reset";
/// Keys of br-int that ovn-controller writes: the `nb_cfg` that its flows have, and when that was, in milliseconds.
const NB_CFG: &str = "ovn-nb-cfg";
const NB_CFG_TIME: &str = "ovn-nb-cfg-ts";

/// What ovn-controller has applied last.
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
            // A time and not an age: a message that grows older would be written again and again.
            Some(at) => write!(f, "it last applied a change (nb_cfg {}) at {at}", self.number),
            None => write!(f, "it has applied no change yet"),
        }
    }
}

/// For how long ovn-controller has been disconnected, since the last reset if there was one.
#[derive(Debug, Default)]
struct Disconnected(Option<Instant>);

impl Disconnected {
    /// Whether its cluster state is to be reset now.
    fn is_reset_due(&mut self, connection: &Result<String, String>, now: Instant) -> bool {
        // One that does not answer cannot be reset either, and says nothing of its connection.
        let Ok(connection) = connection else { return false };
        if connection.trim() == "connected" {
            self.0 = None;
            return false;
        }
        let since = self.0.get_or_insert(now);
        let due = now.duration_since(*since) >= FORGETS_CLUSTER;
        if due {
            *since = now;
        }
        due
    }
}

/// Follows this node's ovn-controller.
#[derive(Debug)]
pub(crate) struct OvnController {
    pub(crate) part: Part,
    pub(crate) southbound: String,
    pub(crate) switch: Client,
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
}

impl OvnController {
    /// Keeps a part of the readiness as ovn-controller is. Never ends.
    pub(crate) async fn follow(mut self) {
        let daemon = Daemon::ovn_controller();
        let mut pause = SOON;
        let mut disconnected = Disconnected::default();
        loop {
            let answer = daemon.ask("connection-status", &[]).await;
            if disconnected.is_reset_due(&answer, Instant::now()) {
                match daemon.ask(RESET, &[]).await {
                    Ok(_) => tracing::info!(
                        seconds = FORGETS_CLUSTER.as_secs(),
                        "ovn-controller stays disconnected from the southbound database; it will also accept one that was \
                         created anew ({RESET})"
                    ),
                    Err(error) => tracing::warn!(error, "cannot reset ovn-controller's cluster state; retrying"),
                }
            }
            let expected = self.node.borrow_and_update().as_deref().and_then(expected);
            let state = judge(answer, Applied::read(&self.switch), expected, &self.southbound);
            pause = if state.is_ok() { PERIOD } else { (pause * 2).clamp(SOON, LATER) };
            self.part.say(&state);
            // What the controller writes on the node is looked at at once.
            if timeout(pause, self.node.changed()).await.is_ok_and(|changed| changed.is_err()) {
                sleep(pause).await;
            }
        }
    }
}

fn expected(node: &OwnNode) -> Option<i64> {
    node.annotations.get(EXPECTED_NB_CFG)?.parse().ok()
}

/// Names the broken link, the last evidence and the remedy.
fn judge(connection: Result<String, String>, applied: Applied, expected: Option<i64>, southbound: &str) -> State {
    let connection = connection.map_err(|why| format!("{why}; {applied}"))?;
    match connection.trim() {
        "connected" => {}
        other => {
            return Err(format!(
                "ovn-controller has lost the southbound database {southbound} (it says {other:?}); {applied}; check that the \
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
    fn one_that_stays_disconnected_is_reset_again_and_again() {
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
        let judge = |answer: Result<&str, &str>, expected| {
            let answer = answer.map(str::to_owned).map_err(str::to_owned);
            judge(answer, applied, expected, "tcp:192.0.2.1:6642")
        };
        assert_eq!(judge(Ok("connected\n"), None), Ok(()));
        assert_eq!(judge(Ok("connected\n"), Some(112)), Ok(()));
        let evidence = "it last applied a change (nb_cfg 112) at 2026-11-16T14:57:53Z";
        for (answer, expected, link) in [
            (Ok("connected"), Some(113), "has not applied nb_cfg 113"),
            (Ok("not connected"), None, "has lost the southbound database tcp:192.0.2.1:6642"),
            (Err("ovn-controller (process 7) is hung"), Some(1), "is hung"),
        ] {
            let why = judge(answer, expected).unwrap_err();
            assert!(why.contains(link) && why.contains(evidence), "{why}");
        }
    }
}
