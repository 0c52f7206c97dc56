//! Finds nodes whose agent is silent or whose chassis lags behind, although their condition says that they are ready.
//!
//! ```text
//!  lastHeartbeatTime (Node) ─────────────────┐
//!  SB_Global.nb_cfg, Chassis_Private.nb_cfg ─┴─check()─▶ LaggingNode: the agent is silent │ the chassis lags behind
//! ```
//!
//! Times are those of the caller's clock since the first check: clocks of nodes are not compared, and a new leader reports
//! nothing at once.

use std::collections::BTreeMap;
use std::time::Duration;

use objects::{Name, NodeFacts};

use crate::engine::ObjectRef;
use crate::pacing;

/// A node that still lags after this time is reported again: the write may have failed.
const REPEAT: Duration = Duration::from_secs(10);

/// `nb_cfg` of the southbound database and of every chassis.
#[derive(Debug, Clone, Copy)]
pub struct Applied<'a> {
    /// `SB_Global.nb_cfg`: what northd has written to the southbound database.
    pub southbound: i64,
    /// `nb_cfg` that each chassis has applied.
    pub chassis: &'a BTreeMap<Box<str>, i64>,
}

/// A node that does not keep up, and what to write on its Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaggingNode {
    /// The condition is `True`, but its heartbeat has expired.
    Silent {
        /// Its condition becomes `Unknown`.
        node: ObjectRef,
        /// The heartbeat that was seen last.
        heartbeat: Box<str>,
        /// Time since it was seen first.
        silent: Duration,
    },
    /// The node's agent must check that its chassis has applied this `nb_cfg`.
    Expect {
        /// It gets the annotation `k8s.ovn.org/expected-nb-cfg`.
        node: ObjectRef,
        /// The value of the annotation.
        number: i64,
        /// The `nb_cfg` that the chassis has applied.
        applied: i64,
    },
}

/// Tracks since when each node has been silent or behind.
#[derive(Debug, Default)]
pub struct Watchdog {
    nodes: BTreeMap<Name, Watched>,
}

#[derive(Debug)]
struct Watched {
    uid: Name,
    heartbeat: Box<str>,
    /// When this heartbeat was seen first.
    since: Duration,
    /// Age at which it expires, by the largest size of the cluster meanwhile: agents learn later that it has shrunk.
    expires: Duration,
    /// The oldest `nb_cfg` that the chassis has not applied, and since when.
    behind: Option<(i64, Duration)>,
    /// Time of the last report.
    reported: Option<Duration>,
}

impl Watched {
    fn new(node: &NodeFacts, now: Duration) -> Self {
        let (uid, heartbeat) = (node.uid.clone(), node.agent.heartbeat.clone());
        Self { uid, heartbeat, since: now, expires: Duration::ZERO, behind: None, reported: None }
    }
}

impl Watchdog {
    /// Checks all nodes; to be called about once a second while leading. `applied` is none while the southbound database is
    /// not connected: then no chassis counts as behind. Without `judge_heartbeats`, which is for the time without the API
    /// server, no agent counts as silent.
    pub fn check(
        &mut self,
        nodes: &[&NodeFacts],
        applied: Option<Applied<'_>>,
        judge_heartbeats: bool,
        now: Duration,
    ) -> Vec<LaggingNode> {
        let count = nodes.len();
        let mut before = std::mem::take(&mut self.nodes);
        let mut lagging = Vec::new();
        for node in nodes {
            let known = before.remove(&node.name).filter(|watched| watched.uid == node.uid);
            let mut watched = known.unwrap_or_else(|| Watched::new(node, now));
            watched.update(node, count, applied, now);
            if watched.reported.is_none_or(|last| now >= last + REPEAT) {
                let found = watched.lagging(node, count, applied, judge_heartbeats, now);
                watched.reported = found.as_ref().map(|_| now);
                lagging.extend(found);
            }
            self.nodes.insert(node.name.clone(), watched);
        }
        lagging
    }

    /// Forgets everything: this instance does not lead.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }
}

impl Watched {
    fn update(&mut self, node: &NodeFacts, count: usize, applied: Option<Applied<'_>>, now: Duration) {
        if self.heartbeat != node.agent.heartbeat {
            self.heartbeat.clone_from(&node.agent.heartbeat);
            self.since = now;
            self.expires = Duration::ZERO;
        }
        self.expires = self.expires.max(pacing::heartbeat_expires(count));
        self.behind = applied.and_then(|applied| {
            let reached = applied.of(node)?;
            let open = self.behind.filter(|(number, _)| *number > reached);
            open.or_else(|| (applied.southbound > reached).then_some((applied.southbound, now)))
        });
    }

    fn lagging(
        &self,
        node: &NodeFacts,
        count: usize,
        applied: Option<Applied<'_>>,
        judge_heartbeats: bool,
        now: Duration,
    ) -> Option<LaggingNode> {
        let object = || ObjectRef { kind: "Node", namespace: None, name: (&*node.name).into(), uid: node.uid.clone() };
        let silent = now.saturating_sub(self.since);
        if judge_heartbeats && node.agent.ready && silent > self.expires {
            return Some(LaggingNode::Silent { node: object(), heartbeat: self.heartbeat.clone(), silent });
        }
        let applied = applied?;
        let reached = applied.of(node)?;
        let late = self.behind.filter(|(_, since)| now.saturating_sub(*since) > pacing::apply_limit(count));
        let number = match (late, node.agent.expected) {
            // From before the database was recreated: no chassis would ever reach it.
            (_, Some(expected)) if expected > applied.southbound => applied.southbound,
            (Some((number, _)), expected) if expected.is_none_or(|expected| expected <= reached) => number,
            _ => return None,
        };
        Some(LaggingNode::Expect { node: object(), number, applied: reached })
    }
}

impl Applied<'_> {
    fn of(&self, node: &NodeFacts) -> Option<i64> {
        self.chassis.get(node.chassis.as_ref()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(status: &str, heartbeat: u32, expected: Option<i64>) -> NodeFacts {
        let mut annotations = serde_json::json!({"k8s.ovn.org/node-chassis-id": "c1"});
        if let Some(expected) = expected {
            annotations["k8s.ovn.org/expected-nb-cfg"] = expected.to_string().into();
        }
        let object = serde_json::json!({
            "metadata": {"name": "n1", "uid": "u", "annotations": annotations},
            "status": {"conditions": [{"type": "k8s.ovn.org/NodeNetworkReady", "status": status,
                "lastHeartbeatTime": format!("2026-01-01T00:00:{heartbeat:02}Z")}]},
        });
        NodeFacts::parse(&object.to_string()).unwrap()
    }

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn check(watchdog: &mut Watchdog, node: &NodeFacts, at: u64) -> Vec<LaggingNode> {
        watchdog.check(&[node], None, true, seconds(at))
    }

    #[test]
    fn a_condition_without_heartbeats_expires() {
        let mut watchdog = Watchdog::default();
        let expires = pacing::heartbeat_expires(1).as_secs();
        assert_eq!(check(&mut watchdog, &node("True", 1, None), 1000), []);
        assert_eq!(check(&mut watchdog, &node("True", 2, None), 1000 + expires), []);
        let late = 1000 + 2 * expires + 1;
        assert_eq!(check(&mut watchdog, &node("True", 2, None), late - 1), []);
        let found = check(&mut watchdog, &node("True", 2, None), late);
        assert!(
            matches!(&found[..], [LaggingNode::Silent { silent, .. }] if *silent == seconds(expires + 1)),
            "{found:?}"
        );
        // The write is in flight, and may fail.
        assert_eq!(check(&mut watchdog, &node("True", 2, None), late + 1), []);
        assert_eq!(check(&mut watchdog, &node("True", 2, None), late + 10).len(), 1);
        assert_eq!(check(&mut watchdog, &node("Unknown", 2, None), late + 30), []);
        assert_eq!(check(&mut watchdog, &node("True", 3, None), late + 50), []);
    }

    #[test]
    fn expired_heartbeats_are_reported_only_while_they_are_judged() {
        let mut watchdog = Watchdog::default();
        let late = pacing::heartbeat_expires(1).as_secs() + 1;
        let ready = node("True", 1, None);
        assert_eq!(check(&mut watchdog, &ready, 0), []);
        assert_eq!(watchdog.check(&[&ready], None, false, seconds(late)), []);
        // A node that renews before they are judged again is not silent, the other one is.
        assert_eq!(watchdog.check(&[&node("True", 2, None)], None, false, seconds(late + 50)), []);
        assert_eq!(check(&mut watchdog, &node("True", 2, None), late + 51), []);
        assert_eq!(check(&mut watchdog, &node("True", 2, None), 2 * late + 51).len(), 1);
    }

    #[test]
    fn heartbeats_and_expected_nb_cfg_do_not_requeue_a_node() {
        assert_eq!(node("True", 1, None), node("Unknown", 2, Some(7)));
    }

    #[test]
    fn replaced_nodes_and_new_leaders_start_from_scratch() {
        let mut watchdog = Watchdog::default();
        let one = node("True", 1, None);
        check(&mut watchdog, &one, 0);
        let mut other = one.clone();
        other.uid = "v".into();
        assert_eq!(check(&mut watchdog, &other, 5000), []);
        watchdog.clear();
        assert_eq!(check(&mut watchdog, &other, 9000), []);
    }

    #[test]
    fn a_chassis_that_lags_behind_is_expected_to_catch_up() {
        let mut watchdog = Watchdog::default();
        let limit = pacing::apply_limit(1).as_secs();
        let mut step = |node: &NodeFacts, reached: i64, southbound: i64, at: u64| {
            let chassis = [("c1".into(), reached)].into();
            let applied = Applied { southbound, chassis: &chassis };
            watchdog.check(&[node], Some(applied), true, seconds(at))
        };
        let number = |found: &[LaggingNode]| match found {
            [LaggingNode::Expect { number, .. }] => Some(*number),
            _ => None,
        };
        let plain = node("False", 1, None);
        // Under churn it is always behind the newest value, and never behind an old one.
        for round in 0..20 {
            assert_eq!(step(&plain, round, round + 1, u64::try_from(round).unwrap() * limit / 2), []);
        }
        let began = 100;
        assert_eq!(step(&plain, 20, 21, began), []);
        assert_eq!(step(&plain, 20, 25, began + limit), []);
        assert_eq!(number(&step(&plain, 20, 30, began + limit + 1)), Some(21));
        // Once written it is not written again, whatever is raised meanwhile.
        let expecting = node("False", 1, Some(21));
        assert_eq!(step(&expecting, 20, 40, began + limit + 60), []);
        assert_eq!(step(&expecting, 40, 40, began + limit + 61), []);
        // The database was recreated, and counts from the beginning.
        assert_eq!(number(&step(&expecting, 2, 2, began + limit + 99)), Some(2));
    }
}
