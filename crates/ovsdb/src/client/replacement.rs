//! Detects that the raft cluster was replaced by a new one at the same addresses.
//!
//! A cluster whose files were lost is recreated, with another cluster ID and a raft index that starts over. A single
//! server of another cluster may be a configuration error instead. The decision is made once per round over all
//! servers, from the cluster IDs that they report.

use std::time::{Duration, Instant};

/// Without any server of the known cluster, another cluster is accepted after this time.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);

/// A cluster that is known, from another source than the servers, to replace others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Successor {
    /// ID of the new cluster.
    pub cluster: String,
    /// IDs of the clusters that it replaces.
    pub replaced: Vec<String>,
}

impl Successor {
    /// Whether it replaces this cluster by that one.
    fn confirms(&self, former: Option<&str>, cluster: &str) -> bool {
        self.cluster == cluster && former.is_some_and(|former| self.replaced.iter().any(|id| id == former))
    }
}

/// Cluster IDs of one round over all servers, and since when the known one is absent.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    /// Cluster IDs of servers of other clusters, one per server.
    others: Vec<String>,
    /// Whether a connected server belongs to the known cluster.
    known: bool,
    since: Option<Instant>,
}

impl Replacement {
    /// Records a server of another cluster.
    pub(crate) fn saw_other(&mut self, cluster: String) {
        self.others.push(cluster);
    }

    /// Records a connected server of the known cluster.
    pub(crate) fn saw_known(&mut self) {
        self.known = true;
    }

    /// Forgets an incomplete round.
    pub(crate) fn discard_round(&mut self) {
        self.others.clear();
        self.known = false;
    }

    /// Ends a round over `servers` servers; returns the cluster that replaced the known one, if any. A `successor` of the
    /// `former` cluster is accepted at once.
    pub(crate) fn end_round(
        &mut self,
        servers: usize,
        former: Option<&str>,
        successor: &Successor,
        now: Instant,
    ) -> Option<String> {
        let others = std::mem::take(&mut self.others);
        let known = std::mem::take(&mut self.known);
        if let Some(confirmed) = others.iter().find(|cluster| successor.confirms(former, cluster)) {
            self.since = None;
            return Some(confirmed.clone());
        }
        let votes = |cluster: &String| others.iter().filter(|other| *other == cluster).count();
        let most = others.iter().max_by_key(|cluster| votes(cluster)).cloned();
        // Without a majority the known cluster cannot commit.
        let majority = most.as_ref().is_some_and(|cluster| votes(cluster) * 2 > servers);
        if most.is_none() || known && !majority {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if !majority && now.saturating_duration_since(since) < CONFIRM_AFTER {
            return None;
        }
        self.since = None;
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(state: &mut Replacement, others: &[&str], known: bool, now: Instant) -> Option<String> {
        others.iter().for_each(|cluster| state.saw_other((*cluster).to_owned()));
        if known {
            state.saw_known();
        }
        state.end_round(3, Some("a"), &Successor::default(), now)
    }

    #[test]
    fn a_recorded_successor_of_the_known_cluster_is_accepted_at_once_and_no_other() {
        let now = Instant::now();
        let round = |cluster: &str, former: Option<&str>, known: bool| {
            let mut state = Replacement::default();
            state.saw_other(cluster.to_owned());
            if known {
                state.saw_known();
            }
            let successor = Successor { cluster: "b".into(), replaced: vec!["z".into(), "a".into()] };
            state.end_round(3, former, &successor, now)
        };
        assert_eq!(round("b", Some("a"), false).as_deref(), Some("b"));
        // A member of the former cluster that has not seen the record yet.
        assert_eq!(round("b", Some("a"), true).as_deref(), Some("b"));
        assert_eq!(round("c", Some("a"), false), None, "another cluster is not recorded");
        assert_eq!(round("b", Some("x"), false), None, "the record does not say that it replaced this one");
        assert_eq!(round("b", None, false), None);
    }

    #[test]
    fn a_majority_in_one_new_cluster_replaces_the_known_one_at_once() {
        let now = Instant::now();
        assert_eq!(round(&mut Replacement::default(), &["b", "b"], false, now).as_deref(), Some("b"));
        // A member with the old files has no majority.
        assert_eq!(round(&mut Replacement::default(), &["b", "b"], true, now).as_deref(), Some("b"));
        assert_eq!(round(&mut Replacement::default(), &["b", "c"], false, now), None);
    }

    #[test]
    fn one_server_of_another_cluster_counts_only_if_the_known_cluster_is_absent() {
        let (now, mut state) = (Instant::now(), Replacement::default());
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(round(&mut state, &["b"], false, now), None);
        assert_eq!(round(&mut state, &["b"], true, later(9)), None);
        assert_eq!(round(&mut state, &["b"], false, later(10)), None, "the time starts over");
        assert_eq!(round(&mut state, &["b"], false, later(19)), None);
        assert_eq!(round(&mut state, &["b"], false, later(20)).as_deref(), Some("b"));
        assert_eq!(round(&mut state, &[], false, later(40)), None);
    }
}
