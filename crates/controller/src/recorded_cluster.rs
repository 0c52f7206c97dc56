//! A rebuild or restore by `ovnkube db` is trusted at once: the record in ConfigMap `ovnkube-db` names the new cluster and the
//! one that it replaced. Any other new cluster is accepted only after the client's own confirmation.

use std::time::Duration;

use database::Kind;
use database::store::RecordStore;
use kubernetes::Api;
use ovsdb::client::{Client, Successor};
use tokio::time::timeout;

/// Interval of reads while a database is not connected.
const PERIOD: Duration = Duration::from_secs(1);

/// Reads the records of both databases while they are not connected. The namespace is that of the Lease: the databases and
/// the controllers are installed together. Without such a ConfigMap, or the right to read it, nothing changes.
pub(crate) fn follow(api: &Api, namespace: &str, northbound: &Client, southbound: &Client) {
    for (kind, client) in [(Kind::Northbound, northbound), (Kind::Southbound, southbound)] {
        tokio::spawn(follow_one(RecordStore::new(api.clone(), namespace), kind, client.clone()));
    }
}

async fn follow_one(store: RecordStore, kind: Kind, client: Client) {
    let mut status = client.status();
    while status.wait_for(|status| !status.connected && status.sessions > 0).await.is_ok() {
        match store.read(kind).await {
            Ok(Some(record)) => {
                client.expect_successor(Successor { cluster: record.cluster_id, replaced: record.replaced });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(database = kind.name(), %error, "cannot read the recorded cluster; keeping the known one, retrying");
            }
        }
        let _ = timeout(PERIOD, status.wait_for(|status| status.connected)).await;
    }
}
