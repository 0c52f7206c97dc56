//! The list of hosts that clients get. Pure.
//!
//! A new host is listed at once. One that disappears from slices that follow pods is listed for [`KEEP`] longer: during a
//! rollout each pod is missing for some seconds, and each change makes ovn-controller reconnect. Slices of another writer
//! are taken as they are: the former active server of a database must not be used.

use std::time::{Duration, Instant};

use crate::slices::{Hosts, Members};

/// How long a host stays listed after its pod is gone.
const KEEP: Duration = Duration::from_secs(60);

/// The hosts that clients get, and when missing ones will be dropped.
#[derive(Debug, Default)]
pub(crate) struct ListedHosts {
    hosts: Hosts,
    /// Hosts that are missing in the API, and since when.
    missing: Vec<(String, Instant)>,
}

impl ListedHosts {
    /// Takes what the API says now. Without any host the last list stays.
    pub(crate) fn update(&mut self, members: &Members, now: Instant) {
        if members.hosts.is_empty() {
            return;
        }
        let mut hosts = members.hosts.clone();
        let mut missing = Vec::new();
        for (host, ports) in self.hosts.iter().filter(|(host, _)| !members.hosts.contains_key(*host)) {
            let since = self.missing.iter().find(|(known, _)| known == host).map_or(now, |(_, since)| *since);
            if members.from_pods && now.saturating_duration_since(since) < KEEP {
                missing.push((host.clone(), since));
                hosts.insert(host.clone(), ports.clone());
            }
        }
        (self.hosts, self.missing) = (hosts, missing);
    }

    /// The listed hosts; empty until the API has named one.
    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// When a missing host will no longer be listed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.missing.iter().map(|(_, since)| *since + KEEP).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn members(hosts: &[&str], from_pods: bool) -> Members {
        let hosts = hosts.iter().map(|host| ((*host).to_owned(), BTreeMap::new())).collect();
        Members { hosts, from_pods }
    }

    fn list(listed: &ListedHosts) -> String {
        listed.hosts().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_restarting_pod_stays_listed_and_a_removed_one_does_not() {
        let (start, mut listed) = (Instant::now(), ListedHosts::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        listed.update(&members(&["b", "a"], true), at(0));
        assert_eq!((list(&listed).as_str(), listed.deadline()), ("a b", None));
        listed.update(&members(&["a"], true), at(10));
        assert_eq!((list(&listed).as_str(), listed.deadline()), ("a b", Some(at(70))));
        // It is back: the next absence counts from its own beginning.
        listed.update(&members(&["a", "b"], true), at(20));
        listed.update(&members(&["a", "c"], true), at(30));
        assert_eq!((list(&listed).as_str(), listed.deadline()), ("a b c", Some(at(90))));
        listed.update(&members(&["a", "c"], true), at(89));
        assert_eq!(list(&listed), "a b c");
        listed.update(&members(&["a", "c"], true), at(90));
        assert_eq!((list(&listed).as_str(), listed.deadline()), ("a c", None));
    }

    #[test]
    fn no_host_at_all_replaces_nothing() {
        let (now, mut listed) = (Instant::now(), ListedHosts::default());
        listed.update(&members(&[], true), now);
        assert_eq!(list(&listed), "");
        listed.update(&members(&["a"], false), now);
        listed.update(&members(&[], false), now + KEEP * 2);
        assert_eq!(list(&listed), "a");
    }

    #[test]
    fn slices_of_another_writer_are_taken_as_they_are() {
        let (now, mut listed) = (Instant::now(), ListedHosts::default());
        listed.update(&members(&["a"], false), now);
        listed.update(&members(&["b"], false), now);
        assert_eq!((list(&listed).as_str(), listed.deadline()), ("b", None));
    }
}
