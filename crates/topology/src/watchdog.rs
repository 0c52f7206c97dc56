//! Nodes whose condition claims more than anybody can vouch for.
//!
//! ```text
//!  lastHeartbeatTime (Node) ─────────────────┐
//!  SB_Global.nb_cfg, Chassis_Private.nb_cfg ─┴─look()──▶ Finding: the agent is silent │ the chassis lags behind
//! ```
//!
//! Time is the caller's own clock, since the first look: clocks of nodes are not compared, and a leader that has just taken
//! over accuses nobody.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::ObjectRef;
use crate::identity::Name;
use crate::objects::NodeFacts;
use crate::pacing;

/// A finding that is still true after this time is reported again: the write may have failed.
const REPEAT: Duration = Duration::from_secs(10);

/// How far northd and every chassis are.
#[derive(Debug, Clone, Copy)]
pub struct Applied<'a> {
    /// `SB_Global.nb_cfg`: what northd has put into the southbound database.
    pub southbound: i64,
    /// What each chassis has applied.
    pub chassis: &'a BTreeMap<Box<str>, i64>,
}

/// Something to write on a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The condition says `True`, but its heartbeat has expired: it becomes `Unknown`.
    Silent {
        /// The node.
        node: ObjectRef,
        /// The heartbeat that was seen last.
        heartbeat: Box<str>,
        /// For how long no other was seen.
        silent: Duration,
    },
    /// The node's agent must check that its chassis has applied this `nb_cfg`.
    Expect {
        /// The node.
        node: ObjectRef,
        /// The number.
        number: i64,
        /// What the chassis has applied.
        applied: i64,
    },
}

/// Remembers since when each node has been silent or behind.
#[derive(Debug, Default)]
pub struct Watchdog {
    nodes: BTreeMap<Name, Watched>,
}

#[derive(Debug)]
struct Watched {
    uid: Name,
    heartbeat: Box<str>,
    /// Since when this heartbeat is the last one.
    since: Duration,
    /// After how long it expires, by the size that the cluster had: agents learn of a smaller one only later.
    expires: Duration,
    /// The oldest number that the chassis has not applied, and since when.
    behind: Option<(i64, Duration)>,
    /// When something was reported last.
    reported: Option<Duration>,
}

impl Watched {
    fn new(node: &NodeFacts, now: Duration) -> Self {
        let (uid, heartbeat) = (node.uid.clone(), node.agent.heartbeat.clone());
        Self { uid, heartbeat, since: now, expires: Duration::ZERO, behind: None, reported: None }
    }
}

impl Watchdog {
    /// Looks at all nodes; to be called about once a second while leading. Of `applied` nothing is known while the
    /// southbound database is away: then nobody is behind.
    pub fn look(&mut self, nodes: &[&NodeFacts], applied: Option<Applied<'_>>, now: Duration) -> Vec<Finding> {
        let count = nodes.len();
        let mut before = std::mem::take(&mut self.nodes);
        let mut findings = Vec::new();
        for node in nodes {
            let known = before.remove(&node.name).filter(|watched| watched.uid == node.uid);
            let mut watched = known.unwrap_or_else(|| Watched::new(node, now));
            watched.update(node, count, applied, now);
            if watched.reported.is_none_or(|last| now >= last + REPEAT) {
                let found = watched.finding(node, count, applied, now);
                watched.reported = found.as_ref().map(|_| now);
                findings.extend(found);
            }
            self.nodes.insert(node.name.clone(), watched);
        }
        findings
    }

    /// Forgets everything: somebody else leads.
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

    fn finding(&self, node: &NodeFacts, count: usize, applied: Option<Applied<'_>>, now: Duration) -> Option<Finding> {
        let object = || ObjectRef { kind: "Node", namespace: None, name: (&*node.name).into(), uid: node.uid.clone() };
        let silent = now.saturating_sub(self.since);
        if node.agent.ready && silent > self.expires {
            return Some(Finding::Silent { node: object(), heartbeat: self.heartbeat.clone(), silent });
        }
        let applied = applied?;
        let reached = applied.of(node)?;
        let late = self.behind.filter(|(_, since)| now.saturating_sub(*since) > pacing::apply_limit(count));
        let number = match (late, node.agent.expected) {
            // Of a database that was made anew: no chassis will ever get there.
            (_, Some(expected)) if expected > applied.southbound => applied.southbound,
            (Some((number, _)), expected) if expected.is_none_or(|expected| expected <= reached) => number,
            _ => return None,
        };
        Some(Finding::Expect { node: object(), number, applied: reached })
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

    fn look(watchdog: &mut Watchdog, node: &NodeFacts, at: u64) -> Vec<Finding> {
        watchdog.look(&[node], None, seconds(at))
    }

    #[test]
    fn a_condition_without_heartbeats_expires() {
        let mut watchdog = Watchdog::default();
        let expires = pacing::heartbeat_expires(1).as_secs();
        assert_eq!(look(&mut watchdog, &node("True", 1, None), 1000), []);
        assert_eq!(look(&mut watchdog, &node("True", 2, None), 1000 + expires), []);
        let late = 1000 + 2 * expires + 1;
        assert_eq!(look(&mut watchdog, &node("True", 2, None), late - 1), []);
        let found = look(&mut watchdog, &node("True", 2, None), late);
        assert!(matches!(&found[..], [Finding::Silent { silent, .. }] if *silent == seconds(expires + 1)), "{found:?}");
        // The write is under way, then it may have failed.
        assert_eq!(look(&mut watchdog, &node("True", 2, None), late + 1), []);
        assert_eq!(look(&mut watchdog, &node("True", 2, None), late + 10).len(), 1);
        assert_eq!(look(&mut watchdog, &node("Unknown", 2, None), late + 30), []);
        assert_eq!(look(&mut watchdog, &node("True", 3, None), late + 50), []);
    }

    #[test]
    fn heartbeats_and_what_is_expected_do_not_reconcile_a_node() {
        assert_eq!(node("True", 1, None), node("Unknown", 2, Some(7)));
    }

    #[test]
    fn a_node_that_is_replaced_and_a_leader_that_is_new_begin_afresh() {
        let mut watchdog = Watchdog::default();
        let one = node("True", 1, None);
        look(&mut watchdog, &one, 0);
        let mut other = one.clone();
        other.uid = "v".into();
        assert_eq!(look(&mut watchdog, &other, 5000), []);
        watchdog.clear();
        assert_eq!(look(&mut watchdog, &other, 9000), []);
    }

    #[test]
    fn a_chassis_that_lags_behind_is_expected_to_catch_up() {
        let mut watchdog = Watchdog::default();
        let limit = pacing::apply_limit(1).as_secs();
        let mut step = |node: &NodeFacts, reached: i64, southbound: i64, at: u64| {
            let chassis = [("c1".into(), reached)].into();
            let applied = Applied { southbound, chassis: &chassis };
            watchdog.look(&[node], Some(applied), seconds(at))
        };
        let number = |found: &[Finding]| match found {
            [Finding::Expect { number, .. }] => Some(*number),
            _ => None,
        };
        let plain = node("False", 1, None);
        // Under churn it is always behind the newest number, and never behind an old one.
        for round in 0..20 {
            assert_eq!(step(&plain, round, round + 1, u64::try_from(round).unwrap() * limit / 2), []);
        }
        let began = 100;
        assert_eq!(step(&plain, 20, 21, began), []);
        assert_eq!(step(&plain, 20, 25, began + limit), []);
        assert_eq!(number(&step(&plain, 20, 30, began + limit + 1)), Some(21));
        // Once written it is not written again, whatever is raised meanwhile.
        let told = node("False", 1, Some(21));
        assert_eq!(step(&told, 20, 40, began + limit + 60), []);
        assert_eq!(step(&told, 40, 40, began + limit + 61), []);
        // The database was made anew, and counts from the beginning.
        assert_eq!(number(&step(&told, 2, 2, began + limit + 99)), Some(2));
    }
}
