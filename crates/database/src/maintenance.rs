//! Decides what a healthy leader does for its cluster. Pure.
//!
//! Only the leader changes the configuration of the cluster: it removes members that were replaced or are gone, and adapts
//! the election timer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::record::RemovedServer;
use crate::status::{ClusterStatus, Server, host_and_port};

/// Something that only the leader does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Remove a server from the configuration.
    Kick {
        /// Short server ID.
        server: String,
        /// Raft address of the server, for its record.
        address: String,
        /// Why it is stale, for the log.
        reason: String,
    },
    /// Change the election timer, in milliseconds.
    SetElectionTimer(u64),
}

/// A server is silent if no message arrived for this many election timers.
const SILENT_TIMERS: u64 = 5;

/// A server at an address that no member has any more is removed after this long of silence, and of absence from the list, unless
/// the options say otherwise.
pub const GONE: Duration = Duration::from_secs(300);

/// A list is current for this long; it is read every 30 s.
const CURRENT: Duration = Duration::from_secs(100);

/// The raft addresses of all members, running or not, and since when others have not been among them. One list without an
/// address proves nothing: EndpointSlices are rewritten while pods move.
#[derive(Debug, Default)]
pub(crate) struct MemberList {
    addresses: Vec<String>,
    absent: BTreeMap<String, Instant>,
    read: Option<Instant>,
}

impl MemberList {
    /// A new list; `known` are the addresses in the configuration of the cluster.
    pub(crate) fn observe<'a>(&mut self, addresses: Vec<String>, known: impl Iterator<Item = &'a str>, now: Instant) {
        // Nothing is known about the time in which no list could be read.
        if !self.is_current(now) {
            self.absent.clear();
        }
        self.addresses = addresses;
        self.read = Some(now);
        let absent: Vec<&str> = known.filter(|address| !self.contains(address)).collect();
        let since = |address: &str| self.absent.get(address).copied().unwrap_or(now);
        self.absent = absent.into_iter().map(|address| (address.to_owned(), since(address))).collect();
    }

    /// Whether the list has this address.
    pub(crate) fn contains(&self, address: &str) -> bool {
        self.addresses.iter().any(|other| host_and_port(other) == host_and_port(address))
    }

    /// Whether there is no list, or an empty one.
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    fn is_current(&self, now: Instant) -> bool {
        self.read.is_some_and(|read| now.saturating_duration_since(read) < CURRENT)
    }

    fn lacks_for(&self, least: Duration, address: &str, now: Instant) -> bool {
        self.is_current(now)
            && self.absent.get(address).is_some_and(|since| now.saturating_duration_since(*since) >= least)
    }
}

/// A value that changes only after several equal observations: a number of nodes that goes up and down by one must not
/// change the configuration of the cluster each time.
#[derive(Debug)]
pub(crate) struct Debounced<T> {
    needed: u32,
    value: Option<T>,
    candidate: Option<(T, u32)>,
}

impl<T: Copy + PartialEq> Debounced<T> {
    /// A value that changes after `needed` equal observations; the first one counts at once.
    pub(crate) fn new(needed: u32) -> Self {
        Self { needed, value: None, candidate: None }
    }

    /// Takes a new value at once if it is the first one, otherwise after enough equal observations in a row.
    pub(crate) fn observe(&mut self, seen: T) {
        if self.value.is_none() || self.value == Some(seen) {
            self.value = Some(seen);
            self.candidate = None;
            return;
        }
        let count = match self.candidate {
            Some((candidate, count)) if candidate == seen => count + 1,
            _ => 1,
        };
        if count >= self.needed {
            self.value = Some(seen);
            self.candidate = None;
        } else {
            self.candidate = Some((seen, count));
        }
    }

    /// The value; none without an observation.
    pub(crate) fn value(&self) -> Option<T> {
        self.value
    }
}

/// What the leader should do now. `wanted_timer` is the election timer for a cluster of this size; `members` are all
/// members, running or not; a server that is none of them is removed after `gone_after`.
pub(crate) fn actions(
    status: &ClusterStatus,
    wanted_timer: u64,
    members: &MemberList,
    gone_after: Duration,
    now: Instant,
) -> Vec<Action> {
    if !status.is_leader() || !status.is_member() {
        return Vec::new();
    }
    // One change of the configuration at a time: raft accepts no other.
    let stale = |server: &Server| replaced(status, server).or_else(|| gone(status, server, members, gone_after, now));
    if let Some(kick) = status.servers.iter().find_map(stale) {
        return vec![kick];
    }
    let timer = status.election_timer;
    // It may at most double at once.
    let next = wanted_timer.min(timer.saturating_mul(2));
    if timer > 0 && next != timer { vec![Action::SetElectionTimer(next)] } else { Vec::new() }
}

/// A silent server whose address another, live server has: its volume was lost, and its successor joined.
pub(crate) fn replaced(status: &ClusterStatus, server: &Server) -> Option<Action> {
    let silence = silence_limit(status);
    let same_place = |other: &&Server| host_and_port(&other.address) == host_and_port(&server.address);
    let successor = status.servers.iter().find(|other| other.id != server.id && same_place(other))?;
    (!server.is_alive(silence) && successor.is_alive(silence)).then(|| Action::Kick {
        server: server.id.clone(),
        address: server.address.clone(),
        reason: format!("server {} replaced it at {}", successor.id, server.address),
    })
}

/// A server whose node was removed, or has another address now. It is not removed if that would leave no quorum.
fn gone(
    status: &ClusterStatus,
    server: &Server,
    members: &MemberList,
    after: Duration,
    now: Instant,
) -> Option<Action> {
    // Without a message since this leader was elected, its silence is not known yet.
    let silent = !server.this && server.silent_ms.is_some_and(|ms| u128::from(ms) >= after.as_millis());
    let left = status.servers.len() - 1;
    let enough = status.alive(silence_limit(status)) > left / 2;
    // A list without this member itself is not the list of all members.
    let unknown = members.lacks_for(after, &server.address, now) && members.contains(&status.address);
    (silent && enough && unknown).then(|| Action::Kick {
        server: server.id.clone(),
        address: server.address.clone(),
        reason: format!("no member has its address {}", server.address),
    })
}

/// A server that was silent for longer, in milliseconds, counts as down.
pub(crate) fn silence_limit(status: &ClusterStatus) -> u64 {
    status.election_timer.max(1000) * SILENT_TIMERS
}

/// Sizes of clusters with equal settings: the smallest number of nodes of each, its election timer, and the server's
/// inactivity probe of its clients, both in milliseconds.
///
/// A server of a large cluster needs longer for its largest transactions. Meanwhile a leader must not be replaced, and clients
/// whose replies it reads late must not be disconnected. Members probe each other by the election timer.
const SIZES: [(usize, u64, u64); 5] =
    [(0, 1000, 5000), (51, 2000, 15_000), (151, 4000, 30_000), (301, 8000, 60_000), (501, 16_000, 60_000)];

/// The smallest number of nodes with the same settings.
pub(crate) fn size_class(nodes: usize) -> usize {
    size(nodes).0
}

fn size(nodes: usize) -> (usize, u64, u64) {
    SIZES.into_iter().rev().find(|size| size.0 <= nodes).unwrap_or(SIZES[0])
}

/// The election timer for a cluster of this many nodes, in milliseconds.
pub(crate) fn election_timer(nodes: usize) -> u64 {
    size(nodes).1
}

/// How long a client may be silent before the server probes it, in milliseconds.
pub(crate) fn inactivity_probe(nodes: usize) -> u64 {
    size(nodes).2
}

/// The servers that the leader hears of, in the form of the record.
pub(crate) fn alive_servers(status: &ClusterStatus) -> Vec<RemovedServer> {
    let limit = silence_limit(status);
    let alive = status.servers.iter().filter(|server| server.is_alive(limit));
    alive.map(|server| RemovedServer { server: server.id.clone(), address: server.address.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: &str, address: &str, silent_ms: Option<u64>) -> Server {
        Server { id: id.into(), address: address.into(), this: silent_ms.is_none(), match_index: Some(5), silent_ms }
    }

    fn leader(servers: Vec<Server>) -> ClusterStatus {
        ClusterStatus {
            status: "cluster member".into(),
            role: "leader".into(),
            leader: "self".into(),
            election_timer: 1000,
            servers,
            ..ClusterStatus::default()
        }
    }

    fn list(addresses: &[&str], status: &ClusterStatus, now: Instant) -> MemberList {
        let mut list = MemberList::default();
        let addresses = || addresses.iter().map(|address| (*address).to_owned()).collect();
        // Read regularly, for as long as it takes.
        for seconds in (0..=GONE.as_secs()).step_by(30) {
            let known = status.servers.iter().map(|server| server.address.as_str());
            list.observe(addresses(), known, now + Duration::from_secs(seconds));
        }
        list
    }

    #[test]
    fn a_replaced_server_is_removed_and_a_silent_one_is_not() {
        let (now, no_members) = (Instant::now(), MemberList::default());
        let replaced = leader(vec![
            server("aaaa", "tcp:1", None),
            server("bbbb", "tcp:2", Some(9000)),
            server("cccc", "tcp:2", Some(100)),
        ]);
        let [Action::Kick { server: kicked, .. }] = &actions(&replaced, 1000, &no_members, GONE, now)[..] else {
            panic!("no kick")
        };
        assert_eq!(kicked, "bbbb");
        let silent = leader(vec![server("aaaa", "tcp:1", None), server("bbbb", "tcp:2", Some(90_000_000))]);
        assert_eq!(actions(&silent, 1000, &no_members, GONE, now), []);
        let both_silent = leader(vec![
            server("aaaa", "tcp:1", None),
            server("bbbb", "tcp:2", Some(9000)),
            server("cccc", "tcp:2", Some(9000)),
        ]);
        assert_eq!(actions(&both_silent, 1000, &no_members, GONE, now), []);
        let follower = ClusterStatus { role: "follower".into(), ..replaced };
        assert_eq!(actions(&follower, 1000, &no_members, GONE, now), []);
    }

    #[test]
    fn a_server_that_no_list_has_for_five_minutes_is_removed() {
        let gone = leader(vec![
            server("aaaa", "tcp:1", None),
            server("bbbb", "tcp:2", Some(100)),
            server("cccc", "tcp:3", Some(300_000)),
        ]);
        let gone = ClusterStatus { address: "tcp:1".into(), ..gone };
        let (now, later) = (Instant::now(), Instant::now() + GONE);
        let known = || gone.servers.iter().map(|server| server.address.as_str());
        let mut members = MemberList::default();
        members.observe(["tcp:1", "tcp:2"].map(str::to_owned).to_vec(), known(), now);
        assert_eq!(actions(&gone, 1000, &members, GONE, now), [], "one list proves nothing");
        assert_eq!(actions(&gone, 1000, &members, GONE, later), [], "no list could be read since");
        members.observe(["tcp:1", "tcp:2"].map(str::to_owned).to_vec(), known(), later);
        assert_eq!(actions(&gone, 1000, &members, GONE, later), [], "nothing is known about the time between");
        let mut members = list(&["tcp:1", "tcp:2"], &gone, now);
        let [Action::Kick { server: kicked, .. }] = &actions(&gone, 1000, &members, GONE, later)[..] else {
            panic!("no kick")
        };
        assert_eq!(kicked, "cccc");
        // A list that has it again restarts the time.
        members.observe(["tcp:1", "tcp:2", "tcp:3"].map(str::to_owned).to_vec(), known(), later);
        members.observe(["tcp:1", "tcp:2"].map(str::to_owned).to_vec(), known(), later);
        assert_eq!(actions(&gone, 1000, &members, GONE, later), []);
        // A list without this member itself is not the list of all members.
        assert_eq!(actions(&gone, 1000, &list(&["tcp:2"], &gone, now), GONE, later), []);
    }

    #[test]
    fn the_election_timer_is_changed_in_steps_that_the_server_accepts() {
        let (now, no_members) = (Instant::now(), MemberList::default());
        let mut status = leader(vec![server("aaaa", "tcp:1", None)]);
        assert_eq!(actions(&status, 1000, &no_members, GONE, now), []);
        let mut steps = Vec::new();
        while let [Action::SetElectionTimer(timer)] = actions(&status, 16_000, &no_members, GONE, now)[..] {
            steps.push(timer);
            status.election_timer = timer;
        }
        assert_eq!(steps, [2000, 4000, 8000, 16_000]);
        assert_eq!(actions(&status, 1000, &no_members, GONE, now), [Action::SetElectionTimer(1000)]);
    }

    #[test]
    fn a_value_that_goes_up_and_down_does_not_change() {
        let mut size = Debounced::new(3);
        for nodes in [50, 51, 50, 51, 51, 50, 51] {
            size.observe(size_class(nodes));
        }
        assert_eq!(size.value().map(election_timer), Some(1000));
        [52, 60].into_iter().for_each(|nodes| size.observe(size_class(nodes)));
        let size = size.value().unwrap();
        assert_eq!((election_timer(size), inactivity_probe(size)), (2000, 15_000));
        assert_eq!((election_timer(500), election_timer(501), inactivity_probe(5000)), (8000, 16_000, 60_000));
    }

    #[test]
    fn a_silent_server_does_not_count_as_alive() {
        let status = leader(vec![
            server("aaaa", "tcp:1", None),
            server("bbbb", "tcp:2", Some(100)),
            server("cccc", "tcp:3", Some(9000)),
        ]);
        let alive: Vec<String> = alive_servers(&status).into_iter().map(|server| server.server).collect();
        assert_eq!(alive, ["aaaa", "bbbb"]);
    }
}
