//! Finds the leader of a cluster, or whether a database is served at all, by asking all servers at once.
//!
//! Trying one after the other takes long when it matters most: a host without power answers nothing until the connect
//! timeout, and during an election the backoff grows beyond it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::config::Config;
use crate::client::remote::Remote;
use crate::client::server::SERVER;
use crate::client::wire::{Wire, WireError};
use crate::frame::Limits;
use crate::message::{self, Incoming};

/// Limit of one question, and the delay before it is repeated.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// How long an election may take. Then the members are tried one after the other, so that the reason can be reported.
const ELECTION_LIMIT: Duration = Duration::from_secs(10);
/// An answer is one short row.
pub(crate) const LIMITS: Limits = Limits { bytes: 64 << 10, depth: 16 };

/// The role of a server for the database, as it reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It leads the cluster: it executes transactions.
    Leader,
    /// It is a member of the cluster, and does not lead it.
    Member,
    /// It serves the database without a cluster: a standalone server, or a relay with an upstream.
    Unclustered,
    /// No answer, another cluster, or not the database.
    Other,
}

impl Answer {
    /// It executes transactions without the help of another server that was asked.
    fn serves(self) -> bool {
        matches!(self, Self::Leader | Self::Unclustered)
    }

    fn leads(self) -> bool {
        self == Self::Leader
    }
}

/// The leader, as soon as a server says that it is. None if no server is a member, or the election takes long.
pub(crate) async fn find(config: &Config, remotes: &[Remote], cluster: Option<&str>) -> Option<Remote> {
    timeout(ELECTION_LIMIT, ask_all(config, remotes, cluster, Answer::leads)).await.ok().flatten()
}

/// Whether the database can be used by one of the configured servers: it is standalone, a relay with an upstream, or a raft
/// leader. Asks all at once until one says so, for up to `limit`.
pub async fn is_served(config: &Config, limit: Duration) -> bool {
    let asked = ask_all(config, &config.remotes, None, Answer::serves);
    timeout(limit, asked).await.ok().flatten().is_some()
}

/// The first server with an answer that is `wanted`. None as soon as no server answers as a member of a cluster.
async fn ask_all(
    config: &Config,
    remotes: &[Remote],
    cluster: Option<&str>,
    wanted: fn(Answer) -> bool,
) -> Option<Remote> {
    let (sender, mut answers) = mpsc::channel(remotes.len().max(1));
    // Aborted on return.
    let mut questions = JoinSet::new();
    for (number, remote) in remotes.iter().enumerate() {
        let (config, remote, cluster) = (config.clone(), remote.clone(), cluster.map(str::to_owned));
        let sender = sender.clone();
        questions.spawn(async move {
            loop {
                let asked = timeout(ANSWER_LIMIT, ask(&config, &remote, cluster.as_deref())).await;
                let answer = match asked {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(error)) => {
                        tracing::debug!(%remote, %error, "cannot ask a server whether it serves the database; asking again");
                        Answer::Other
                    }
                    Err(_) => Answer::Other,
                };
                if sender.send((number, answer)).await.is_err() {
                    return;
                }
                sleep(PAUSE).await;
            }
        });
    }
    drop(sender);
    // The latest answer of each: a member may be replaced by one of another cluster.
    let mut latest = BTreeMap::new();
    while let Some((number, answer)) = answers.recv().await {
        latest.insert(number, answer);
        if wanted(answer) {
            return remotes.get(number).cloned();
        }
        if latest.len() == remotes.len() && !latest.values().any(|answer| *answer == Answer::Member) {
            return None;
        }
    }
    None
}

async fn ask(config: &Config, remote: &Remote, cluster: Option<&str>) -> Result<Answer, WireError> {
    let mut wire = Wire::connect(remote, config.tls.as_ref(), LIMITS, ANSWER_LIMIT).await?;
    let select = json!([SERVER, {"op": "select", "table": "Database", "where": [["name", "==", config.database]],
        "columns": ["model", "connected", "leader", "cid"]}]);
    let Ok(bytes) = message::request(1, "transact", select) else { return Ok(Answer::Other) };
    wire.send(&bytes, ANSWER_LIMIT).await?;
    loop {
        let text = wire.receive().await?;
        let Ok(incoming) = Incoming::parse(&text) else { return Ok(Answer::Other) };
        if incoming.answers() == Some(1) {
            let result = incoming.result.and_then(|result| serde_json::from_str(result.get()).ok());
            let answer = result.map_or(Answer::Other, |result| read(&result, cluster));
            wire.close().await;
            return Ok(answer);
        }
    }
}

/// Reads the reply. Pure.
fn read(result: &Value, cluster: Option<&str>) -> Answer {
    let row = &result[0]["rows"][0];
    let same_cluster = match (cluster, row["cid"][1].as_str()) {
        (Some(expected), Some(found)) => expected == found,
        _ => true,
    };
    let (connected, leads) = (row["connected"] == true, row["leader"] == true);
    match row["model"].as_str() {
        Some("clustered") if same_cluster && connected && leads => Answer::Leader,
        Some("clustered") if same_cluster => Answer::Member,
        Some("standalone" | "relay") if connected => Answer::Unclustered,
        _ => Answer::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connected_leader_of_the_same_cluster_leads() {
        let reply = |leader: bool, connected: bool| {
            let row = json!({"model": "clustered", "leader": leader, "connected": connected, "cid": ["uuid", "c1"]});
            json!([{"rows": [row]}])
        };
        assert_eq!(read(&reply(true, true), Some("c1")), Answer::Leader);
        assert_eq!(read(&reply(true, true), None), Answer::Leader);
        assert_eq!(read(&reply(true, true), Some("c2")), Answer::Other);
        assert_eq!(read(&reply(false, true), Some("c1")), Answer::Member);
        assert_eq!(read(&reply(true, false), Some("c1")), Answer::Member);
        let single = |model: &str, connected: bool| json!([{"rows": [{"model": model, "leader": true, "connected": connected}]}]);
        assert_eq!(read(&single("standalone", true), None), Answer::Unclustered);
        assert_eq!(read(&single("relay", true), None), Answer::Unclustered);
        let broken = single("relay", false);
        for other in [json!([]), json!(null), json!([{"rows": []}]), json!([{"error": "no database"}]), broken] {
            assert_eq!(read(&other, None), Answer::Other, "{other}");
        }
    }
}
