//! When servers that belong to another cluster than before are the database from now on.
//!
//! A cluster whose files were lost is created anew under the same addresses, with another identity and an index that
//! begins again. A single server of another cluster, on the other hand, may be a mistake in the configuration. Who is
//! right is decided by the servers' own words, once in each round over all of them.

use std::time::{Duration, Instant};

/// As long as nobody answers for the known cluster, another one is taken for its successor after this time.
const CONFIRMED: Duration = Duration::from_secs(10);

/// What one round over all servers has shown, and for how long it has been so.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    /// The clusters of the servers that belong to another one.
    others: Vec<String>,
    /// Whether a connected server belongs to the one we know.
    known: bool,
    since: Option<Instant>,
}

impl Replacement {
    /// A server belongs to another cluster.
    pub(crate) fn saw_other(&mut self, cluster: String) {
        self.others.push(cluster);
    }

    /// A server that is connected to its cluster belongs to the one we know.
    pub(crate) fn saw_known(&mut self) {
        self.known = true;
    }

    /// The end of a round over so many servers: the cluster that has replaced the known one, if one has.
    pub(crate) fn end_round(&mut self, servers: usize, now: Instant) -> Option<String> {
        let others = std::mem::take(&mut self.others);
        let known = std::mem::take(&mut self.known);
        let votes = |cluster: &String| others.iter().filter(|other| *other == cluster).count();
        let most = others.iter().max_by_key(|cluster| votes(cluster)).cloned();
        // With most servers in another cluster the known one cannot commit anything any more.
        let majority = most.as_ref().is_some_and(|cluster| votes(cluster) * 2 > servers);
        if most.is_none() || known && !majority {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if !majority && now.saturating_duration_since(since) < CONFIRMED {
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
        state.end_round(3, now)
    }

    #[test]
    fn most_servers_of_one_new_cluster_replace_the_known_one_at_once() {
        let now = Instant::now();
        assert_eq!(round(&mut Replacement::default(), &["b", "b"], false, now).as_deref(), Some("b"));
        // One member still has the old files; it can do nothing with them.
        assert_eq!(round(&mut Replacement::default(), &["b", "b"], true, now).as_deref(), Some("b"));
        assert_eq!(round(&mut Replacement::default(), &["b", "c"], false, now), None);
    }

    #[test]
    fn a_single_stranger_is_believed_only_if_nobody_answers_for_the_known_cluster() {
        let (now, mut state) = (Instant::now(), Replacement::default());
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(round(&mut state, &["b"], false, now), None);
        assert_eq!(round(&mut state, &["b"], true, later(9)), None);
        assert_eq!(round(&mut state, &["b"], false, later(10)), None, "the time begins anew");
        assert_eq!(round(&mut state, &["b"], false, later(19)), None);
        assert_eq!(round(&mut state, &["b"], false, later(20)).as_deref(), Some("b"));
        assert_eq!(round(&mut state, &[], false, later(40)), None);
    }
}
