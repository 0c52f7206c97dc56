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

/// The record of one database. It is in the namespace of the Lease: the databases and the controllers are installed together.
/// Without such a ConfigMap, or the right to read it, nothing changes.
#[derive(Debug, Clone)]
pub(crate) struct RecordedCluster {
    store: RecordStore,
    kind: Kind,
}

impl RecordedCluster {
    pub(crate) fn new(api: &Api, namespace: &str, kind: Kind) -> Self {
        Self { store: RecordStore::new(api.clone(), namespace), kind }
    }

    /// The name of the database.
    pub(crate) fn database(&self) -> &'static str {
        self.kind.schema()
    }

    /// Reads the record while the client is not connected. Never returns while there are other handles of the client.
    pub(crate) async fn follow(self, client: Client) {
        let mut status = client.status();
        while status.wait_for(|status| !status.connected && status.sessions > 0).await.is_ok() {
            match self.store.read(self.kind).await {
                Ok(Some(record)) => {
                    client.expect_successor(Successor { cluster: record.cluster_id, replaced: record.replaced });
                }
                Ok(None) => {}
                Err(error) => {
                    let database = self.kind.name();
                    tracing::debug!(database, %error, "cannot read the recorded cluster; keeping the known one, retrying");
                }
            }
            let _ = timeout(PERIOD, status.wait_for(|status| status.connected)).await;
        }
    }
}
