//! The record of each database in the Kubernetes API, and the raft addresses of the other members.

use kubernetes::{Api, ApiError, Patch};
use ovsdb::uuid::Uuid;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::kind::Kind;
use crate::options::Peers;
use crate::record::{CONFIG_MAP, Record, RecordError, RemovedServer};
use crate::version::MemberVersion;

/// Reads and writes ConfigMap `ovnkube-db` of a namespace. Changes of a record carry the resourceVersion that was read: of two that
/// compete, one fails.
#[derive(Debug, Clone)]
pub struct RecordStore {
    api: Api,
    namespace: String,
    /// Follows the short name of a database in its key.
    suffix: &'static str,
}

/// More removed servers are not kept in a record.
const MOST_REMOVED: usize = 32;

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API cannot be reached, or rejected the request.
    #[error("cannot access ConfigMap {CONFIG_MAP} or the members' EndpointSlices: {0}")]
    Api(#[from] ApiError),
    /// The ConfigMap has an invalid value.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The API returned something else.
    #[error(
        "malformed response of the API: {0}; check that the kubeconfig leads to a Kubernetes API server, not to a proxy"
    )]
    Malformed(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct ConfigMap {
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    resource_version: String,
}

impl RecordStore {
    /// Records of raft clusters. Sends no request.
    pub fn new(api: Api, namespace: impl Into<String>) -> Self {
        Self { api, namespace: namespace.into(), suffix: "" }
    }

    /// Records of databases that are not raft clusters, in keys of their own.
    pub fn of_active_backup(api: Api, namespace: impl Into<String>) -> Self {
        Self { api, namespace: namespace.into(), suffix: ".active-backup" }
    }

    fn key(&self, kind: Kind) -> String {
        format!("{}{}", kind.short(), self.suffix)
    }

    /// The record of a database; none if no cluster was ever created.
    pub async fn read(&self, kind: Kind) -> Result<Option<Record>, StoreError> {
        let Some(map) = self.map().await? else { return Ok(None) };
        Ok(map.data.get(&self.key(kind)).map(|text| Record::parse(&self.key(kind), text)).transpose()?)
    }

    /// Records a cluster, unless one is recorded: then the result is false, and the caller reads it.
    pub async fn create(&self, kind: Kind, record: &Record) -> Result<bool, StoreError> {
        let data = json!({ self.key(kind): serde_json::to_string(record)? });
        let written = match self.map().await? {
            None => self.post(&data).await,
            Some(map) if map.data.contains_key(&self.key(kind)) => return Ok(false),
            Some(map) => self.patch(&map.metadata.resource_version, &data).await,
        };
        match written {
            Ok(_) => Ok(true),
            // Another member was faster, perhaps with the other database.
            Err(ApiError::AlreadyExists(_) | ApiError::Conflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the record of a database, whose cluster was replaced on an administrator's request.
    pub async fn replace(&self, kind: Kind, cluster_id: &str, initiator: &str) -> Result<Record, StoreError> {
        let map = self.map().await?;
        let text = map.as_ref().and_then(|map| map.data.get(&self.key(kind)));
        let before = text.map(|text| Record::parse(&self.key(kind), text)).transpose()?;
        let mut replaced = before.as_ref().map(|record| record.replaced.clone()).unwrap_or_default();
        replaced.extend(before.map(|record| record.cluster_id));
        let record = Record { replaced, ..Record::new(cluster_id.to_owned(), initiator) };
        let data = json!({ self.key(kind): serde_json::to_string(&record)? });
        match map {
            Some(map) => self.patch(&map.metadata.resource_version, &data).await?,
            None => self.post(&data).await?,
        };
        Ok(record)
    }

    /// What the members of a database recorded about their images, by server ID.
    pub async fn member_versions(&self, kind: Kind) -> Result<BTreeMap<String, MemberVersion>, StoreError> {
        let data = self.map().await?.map(|map| map.data).unwrap_or_default();
        let prefix = format!("{}.", kind.short());
        let entries = data.iter().filter_map(|(key, text)| Some((key.strip_prefix(&prefix)?, text)));
        // An entry that cannot be read is one that is not known.
        Ok(entries.filter_map(|(id, text)| Some((id.to_owned(), serde_json::from_str(text).ok()?))).collect())
    }

    /// Records what a member runs, or removes it. No other client writes this key.
    pub async fn record_version(
        &self,
        kind: Kind,
        server: &str,
        version: Option<&MemberVersion>,
    ) -> Result<(), StoreError> {
        let text = version.map(serde_json::to_string).transpose()?;
        let body = json!({ "data": { format!("{}.{server}", kind.short()): text } });
        let path = format!("{}/{CONFIG_MAP}", self.collection());
        self.api.patch(&path, Patch::Merge, body.to_string().into_bytes()).await?;
        Ok(())
    }

    /// Records that the leader removes a server, before it does so.
    pub async fn add_removed(&self, kind: Kind, removed: RemovedServer) -> Result<(), StoreError> {
        self.change_removed(kind, |list| {
            if !list.contains(&removed) {
                list.push(removed.clone());
            }
        })
        .await
    }

    /// A removed server joins again, as another one.
    pub async fn forget_removed(&self, kind: Kind, server: Uuid) -> Result<(), StoreError> {
        let server = server.to_string();
        self.change_removed(kind, |list| list.retain(|removed| !server.starts_with(&removed.server))).await
    }

    /// Removes the entries of servers that are members all the same.
    pub async fn forget_alive(&self, kind: Kind, alive: &[RemovedServer]) -> Result<(), StoreError> {
        self.change_removed(kind, |list| list.retain(|removed| !alive.contains(removed))).await
    }

    async fn change_removed(&self, kind: Kind, change: impl Fn(&mut Vec<RemovedServer>)) -> Result<(), StoreError> {
        let Some(map) = self.map().await? else { return Ok(()) };
        let Some(text) = map.data.get(&self.key(kind)) else { return Ok(()) };
        let mut record = Record::parse(&self.key(kind), text)?;
        let before = record.removed.clone();
        change(&mut record.removed);
        // Nodes come and go; the oldest are the least likely to return.
        let excess = record.removed.len().saturating_sub(MOST_REMOVED);
        record.removed.drain(..excess);
        if record.removed != before {
            let data = json!({ self.key(kind): serde_json::to_string(&record)? });
            self.patch(&map.metadata.resource_version, &data).await?;
        }
        Ok(())
    }

    /// Number of Node objects, ready or not.
    pub async fn count_nodes(&self) -> Result<usize, StoreError> {
        // One object is enough: the API says how many remain.
        let page: Value = serde_json::from_slice(&self.api.get("/api/v1/nodes?limit=1").await?)?;
        let here = page["items"].as_array().map_or(0, Vec::len);
        let remaining = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        Ok(here + usize::try_from(remaining).unwrap_or(usize::MAX))
    }

    /// Hosts of all members, running or not.
    pub(crate) async fn hosts(&self, peers: &Peers) -> Result<Vec<String>, StoreError> {
        match peers {
            Peers::Hosts(hosts) => Ok(hosts.clone()),
            Peers::Service(service) => Ok(remotes::endpoint_hosts(&self.api, &self.namespace, service).await?),
        }
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    async fn map(&self) -> Result<Option<ConfigMap>, StoreError> {
        match self.api.get(&format!("{}/{CONFIG_MAP}", self.collection())).await {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn post(&self, data: &Value) -> Result<Vec<u8>, ApiError> {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": CONFIG_MAP, "namespace": self.namespace }, "data": data,
        });
        self.api.post(&self.collection(), body.to_string().into_bytes()).await
    }

    /// Fails with a conflict if the ConfigMap changed since it was read.
    async fn patch(&self, resource_version: &str, data: &Value) -> Result<Vec<u8>, ApiError> {
        let body = json!({ "metadata": { "resourceVersion": resource_version }, "data": data });
        let path = format!("{}/{CONFIG_MAP}", self.collection());
        self.api.patch(&path, Patch::Merge, body.to_string().into_bytes()).await
    }
}
