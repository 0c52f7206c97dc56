//! The record of each database in the Kubernetes API, and the raft addresses of the other members.

use kubernetes::{Api, ApiError, Patch};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::kind::Kind;
use crate::options::Peers;
use crate::record::{CONFIG_MAP, Record, RecordError};

/// Access to the records of one namespace.
#[derive(Debug, Clone)]
pub struct RecordStore {
    api: Api,
    namespace: String,
}

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API cannot be reached, or refuses.
    #[error("cannot access ConfigMap {CONFIG_MAP} or the members' EndpointSlices: {0}")]
    Api(#[from] ApiError),
    /// The ConfigMap has an invalid value.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The API returned something else.
    #[error("malformed response: {0}")]
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
    /// Records in a namespace.
    pub fn new(api: Api, namespace: impl Into<String>) -> Self {
        Self { api, namespace: namespace.into() }
    }

    /// The record of a database; none if no cluster was ever created.
    pub async fn read(&self, kind: Kind) -> Result<Option<Record>, StoreError> {
        let Some(map) = self.map().await? else { return Ok(None) };
        Ok(map.data.get(kind.short()).map(|text| Record::parse(kind, text)).transpose()?)
    }

    /// Records a cluster, unless one is recorded: then the result is false, and the caller reads it.
    pub async fn create(&self, kind: Kind, record: &Record) -> Result<bool, StoreError> {
        let data = json!({ kind.short(): serde_json::to_string(record)? });
        let written = match self.map().await? {
            None => self.post(&data).await,
            Some(map) if map.data.contains_key(kind.short()) => return Ok(false),
            Some(map) => self.patch(&map.metadata.resource_version, &data).await,
        };
        match written {
            Ok(_) => Ok(true),
            // Somebody else was faster, perhaps with the other database.
            Err(ApiError::AlreadyExists(_) | ApiError::Conflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the record of a database, whose cluster was replaced on an administrator's request.
    pub async fn replace(&self, kind: Kind, cluster_id: &str, initiator: &str) -> Result<Record, StoreError> {
        let map = self.map().await?;
        let text = map.as_ref().and_then(|map| map.data.get(kind.short()));
        let before = text.map(|text| Record::parse(kind, text)).transpose()?;
        let mut replaced = before.as_ref().map(|record| record.replaced.clone()).unwrap_or_default();
        replaced.extend(before.map(|record| record.cluster_id));
        let record = Record { replaced, ..Record::new(cluster_id.to_owned(), initiator) };
        let data = json!({ kind.short(): serde_json::to_string(&record)? });
        match map {
            Some(map) => self.patch(&map.metadata.resource_version, &data).await?,
            None => self.post(&data).await?,
        };
        Ok(record)
    }

    /// Number of nodes of the cluster.
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
            Peers::Service(service) => self.endpoints(service).await,
        }
    }

    /// Addresses of a Service's endpoints, ready or not.
    async fn endpoints(&self, service: &str) -> Result<Vec<String>, StoreError> {
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{service}",
            self.namespace
        );
        let list: Value = serde_json::from_slice(&self.api.get(&path).await?)?;
        let slices = list["items"].as_array().into_iter().flatten();
        let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
        let mut addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
        addresses.sort();
        addresses.dedup();
        Ok(addresses)
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
