//! Intervals that depend on the size of the cluster. The controller and the agents compute the same values, so neither
//! publishes them.

use std::time::Duration;

/// ovn-controller's inactivity probe of the southbound database: it disconnects from a silent server after two of these.
///
/// Echoes are cheap (50 a second for 500 nodes). What limits the interval is the server: it does nothing else while it
/// compacts its database or sends it to clients that reconnect, which takes longer the more nodes there are. A probe that is
/// too short then makes every client reconnect, which is more of the same work.
pub fn southbound_probe(nodes: usize) -> Duration {
    scaled(nodes, Duration::from_millis(16), Duration::from_secs(2)).min(Duration::from_secs(10))
}

/// How often an agent renews the heartbeat of its node's condition: at most 1.7 writes a second for the whole cluster up to
/// 500 nodes, and as seldom as kubelet writes an unchanged status from there on.
pub fn heartbeat(nodes: usize) -> Duration {
    scaled(nodes, Duration::from_millis(600), Duration::ZERO).clamp(Duration::from_secs(30), Duration::from_secs(300))
}

/// Age at which a heartbeat expires: two renewals may get lost.
pub fn heartbeat_expires(nodes: usize) -> Duration {
    heartbeat(nodes) * 3 + Duration::from_secs(10)
}

/// How long a chassis may take to apply what the southbound database has before its node is not ready: a full
/// recomputation on every node at once takes longer in a larger cluster.
pub fn apply_limit(nodes: usize) -> Duration {
    scaled(nodes, Duration::from_millis(40), Duration::from_secs(10)).min(Duration::from_secs(60))
}

fn scaled(nodes: usize, each: Duration, base: Duration) -> Duration {
    each.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).saturating_add(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_with_the_cluster_and_have_bounds() {
        let seconds = |of: fn(usize) -> Duration| [1, 50, 500, usize::MAX].map(|nodes| of(nodes).as_secs());
        assert_eq!(seconds(southbound_probe), [2, 2, 10, 10]);
        assert_eq!(seconds(heartbeat), [30, 30, 300, 300]);
        assert_eq!(seconds(heartbeat_expires), [100, 100, 910, 910]);
        assert_eq!(seconds(apply_limit), [10, 12, 30, 60]);
    }
}
