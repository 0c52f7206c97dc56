//! Notices at once that another member of the cluster has become its leader.
//!
//! The server of the session cannot be relied on for that: one that hangs says nothing, and one that is cut off from the other
//! members believes for up to two election timers that it leads. So the `_Server` row of every other member is monitored, over
//! a connection of its own, which is idle between elections.
//!
//! Only a member that *becomes* leader counts: one that was leader when it was asked for the first time may be the one that is
//! cut off.

use std::time::Duration;

use backoff::{Backoff, Retries};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::config::Config;
use crate::client::leader_search::{ANSWER_LIMIT, LIMITS};
use crate::client::remote::Remote;
use crate::client::remote_list::RemoteList;
use crate::client::server::{DatabaseState, SERVER, ServerView};
use crate::client::wire::Wire;
use crate::message::{self, Incoming};

/// An idle connection is sent an echo after this long, and closed after twice as long.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(2));
/// Ids of requests.
const MONITOR: u64 = 1;
const ECHO: u64 = 2;

/// Waits until another server than `own` becomes leader of the cluster.
pub(crate) async fn successor(config: Config, own: Remote, cluster: Option<String>) -> Remote {
    let mut list = RemoteList::new(&config);
    loop {
        // Aborted when the list changes.
        let mut watches = JoinSet::new();
        for remote in list.current().into_iter().filter(|remote| *remote != own) {
            watches.spawn(becomes_leader(config.clone(), remote, cluster.clone()));
        }
        tokio::select! {
            Some(Ok(leader)) = watches.join_next() => return leader,
            () = list.changed() => {}
        }
    }
}

/// Waits until this server becomes leader.
async fn becomes_leader(config: Config, remote: Remote, cluster: Option<String>) -> Remote {
    let mut leadership = Leadership { cluster, led: None };
    let mut retries = Retries::new(RETRY);
    loop {
        if follow(&config, &remote, &mut leadership, &mut retries).await.is_some() {
            return remote;
        }
        leadership.unreachable();
        sleep(retries.next_delay()).await;
    }
}

/// Monitors the server until it becomes leader; none if the connection fails before.
async fn follow(config: &Config, remote: &Remote, leadership: &mut Leadership, retries: &mut Retries) -> Option<()> {
    let mut wire = Wire::connect(remote, config.tls.as_ref(), LIMITS, ANSWER_LIMIT).await.ok()?;
    let columns = ["name", "model", "connected", "leader", "cid"];
    let monitor = json!([SERVER, SERVER, {"Database": [{"columns": columns}]}]);
    send(&mut wire, MONITOR, "monitor_cond", monitor).await?;
    let (mut view, mut probed) = (ServerView::new(), false);
    loop {
        let Ok(received) = timeout(PROBE_INTERVAL, wire.receive()).await else {
            if probed {
                return None;
            }
            probed = true;
            send(&mut wire, ECHO, "echo", json!([])).await?;
            continue;
        };
        let text = received.ok()?;
        probed = false;
        retries.reset();
        let incoming = Incoming::parse(&text).ok()?;
        if let (Some("echo"), Some(id)) = (incoming.method.as_deref(), incoming.id) {
            wire.send(&message::echo_reply(id, incoming.params), ANSWER_LIMIT).await.ok()?;
            continue;
        }
        let Some(updates) = updates(&incoming) else { continue };
        view.apply(updates.get()).ok()?;
        if leadership.becomes_leader(view.database_state(&config.database).as_ref()) {
            return Some(());
        }
    }
}

async fn send(wire: &mut Wire, id: u64, method: &str, params: Value) -> Option<()> {
    let request = message::request(id, method, params).ok()?;
    wire.send(&request, ANSWER_LIMIT).await.ok()
}

/// The rows in a reply to the monitor request, or in a notification.
fn updates<'a>(incoming: &Incoming<'a>) -> Option<&'a RawValue> {
    if incoming.answers() == Some(MONITOR) {
        return incoming.result;
    }
    let params = incoming.params.filter(|_| incoming.method.as_deref() == Some("update2"))?;
    let (_, updates): (Value, &RawValue) = serde_json::from_str(params.get()).ok()?;
    Some(updates)
}

/// What is known of one server's leadership. Pure.
#[derive(Debug)]
struct Leadership {
    /// The cluster of the session; none if it is not known.
    cluster: Option<String>,
    /// Whether it led when it was last seen; none if it has not been seen yet.
    led: Option<bool>,
}

impl Leadership {
    /// It could not be asked, so the server that was found to lead was another one.
    fn unreachable(&mut self) {
        self.led.get_or_insert(false);
    }

    /// Whether the server leads now and did not when it was last seen.
    fn becomes_leader(&mut self, state: Option<&DatabaseState>) -> bool {
        let leads = state.is_some_and(|state| {
            let same_cluster = self.cluster.is_none() || state.cluster.is_none() || self.cluster == state.cluster;
            state.clustered && state.connected && state.leader && same_cluster
        });
        self.led.replace(leads) == Some(false) && leads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(leader: bool, cluster: &str) -> DatabaseState {
        let cluster = Some(cluster.to_owned());
        DatabaseState { clustered: true, connected: true, leader, schema: None, cluster, index: None }
    }

    #[test]
    fn only_a_member_that_becomes_leader_counts() {
        let new = || Leadership { cluster: Some("c1".into()), led: None };
        let mut leadership = new();
        assert!(!leadership.becomes_leader(Some(&state(true, "c1"))), "it may be cut off");
        assert!(!leadership.becomes_leader(Some(&state(true, "c1"))));
        assert!(!leadership.becomes_leader(Some(&state(false, "c1"))));
        assert!(leadership.becomes_leader(Some(&state(true, "c1"))));

        // Elected while its connection was lost.
        let mut leadership = new();
        leadership.unreachable();
        assert!(leadership.becomes_leader(Some(&state(true, "c1"))));

        // Another cluster, another model, a candidate, no such database.
        let disconnected = DatabaseState { connected: false, ..state(true, "c1") };
        let standalone = DatabaseState { clustered: false, ..state(true, "c1") };
        for other in [Some(state(true, "c2")), Some(disconnected), Some(standalone), None] {
            let mut leadership = new();
            leadership.unreachable();
            assert!(!leadership.becomes_leader(other.as_ref()), "{other:?}");
        }
    }

    #[test]
    fn updates_are_found_in_the_reply_and_in_notifications() {
        let found = |text: &str| updates(&Incoming::parse(text).unwrap()).map(|updates| updates.get().to_owned());
        assert_eq!(found(r#"{"id":1,"result":{"a":1},"error":null}"#).as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(
            found(r#"{"id":null,"method":"update2","params":["_Server",{"b":2}]}"#).as_deref(),
            Some(r#"{"b":2}"#)
        );
        for other in [
            r#"{"id":2,"result":[],"error":null}"#,
            r#"{"id":null,"method":"update2","params":7}"#,
            r#"{"id":null,"method":"update3","params":["_Server",{"b":2}]}"#,
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
