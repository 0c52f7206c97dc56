//! Which cluster a database is: kept in the Kubernetes API, so that no second one can ever start.
//!
//! A ConfigMap `ovnkube-db` has one key per database. The member that writes a key first, by the API's optimistic concurrency, has
//! created the cluster; all other members join it.

use ovsdb::uuid::Uuid;
use serde::{Deserialize, Serialize};

/// The name of the ConfigMap.
pub(crate) const CONFIG_MAP: &str = "ovnkube-db";

/// One database in the ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// UUID of the raft cluster; of an active-backup database, the UUID of its data.
    pub cluster_id: String,
    /// Name of the member that created the cluster; for people only.
    pub initiator: String,
    /// RFC 3339, in UTC; for people only.
    #[serde(default)]
    pub created: String,
    /// Clusters that `ovnkube db rebuild` or `restore` replaced by this one, oldest first. Their members put their files
    /// aside and join this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    /// Servers that the leader removed from the cluster while they were silent. One that returns joins again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RemovedServer>,
}

/// A server that the leader removed, so that its member joins again as a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedServer {
    /// The first digits of the server ID: the leader has no others.
    pub server: String,
    /// With method and port, e.g. `ssl:192.0.2.1:6643`.
    pub address: String,
}

/// The value of a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "ConfigMap {CONFIG_MAP}, key {key}: {problem}; restore the value; its clusterId is what `ovsdb-tool db-cid` prints of a raft \
     member's file, or databaseId in the member.json next to a file of another form"
)]
pub struct RecordError {
    key: String,
    problem: String,
}

impl Record {
    /// Parses the JSON value of a key; an error if its cluster ID is not a UUID.
    pub fn parse(key: &str, text: &str) -> Result<Self, RecordError> {
        let failure = |problem: String| RecordError { key: key.to_owned(), problem };
        let record: Self = serde_json::from_str(text).map_err(|error| failure(error.to_string()))?;
        match record.cluster_id.parse::<Uuid>() {
            Ok(id) if id != Uuid::ZERO => Ok(record),
            _ => Err(failure(format!("clusterId {:?} is not a cluster ID", record.cluster_id))),
        }
    }

    /// The record of a cluster that this member creates, or finds without one.
    pub fn new(cluster_id: String, initiator: &str) -> Self {
        Self {
            cluster_id,
            initiator: initiator.to_owned(),
            created: kubernetes::timestamp(),
            replaced: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Whether the leader removed this server from the cluster.
    pub fn has_removed(&self, server: Uuid, address: &str) -> bool {
        let server = server.to_string();
        self.removed.iter().any(|it| !it.server.is_empty() && server.starts_with(&it.server) && it.address == address)
    }

    /// Whether an administrator replaced this cluster by the recorded one.
    pub fn has_replaced(&self, cluster: Uuid) -> bool {
        self.cluster() != cluster && self.replaced.iter().any(|id| id.parse() == Ok(cluster))
    }

    /// The cluster ID. [`Record::parse`] has checked it.
    pub fn cluster(&self) -> Uuid {
        self.cluster_id.parse().unwrap_or(Uuid::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_needs_a_cluster_id() {
        let id = "90a3f6ff-fcf9-4405-8515-1bab9cfda53d";
        let record = Record::new(id.into(), "n1");
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse("nb", &text), Ok(record));
        let removed = r#"{"clusterId":"90a3f6ff-fcf9-4405-8515-1bab9cfda53d","initiator":"n1","removed":[
            {"server":"90a3","address":"ssl:192.0.2.1:6643"},{"server":"","address":"ssl:192.0.2.2:6643"}]}"#;
        let removed = Record::parse("nb", removed).unwrap();
        let server = id.parse().unwrap();
        assert!(removed.has_removed(server, "ssl:192.0.2.1:6643"));
        assert!(
            !removed.has_removed(server, "ssl:192.0.2.2:6643")
                && !removed.has_removed(Uuid::ZERO, "ssl:192.0.2.1:6643")
        );
        for bad in ["", "{}", r#"{"clusterId":"","initiator":"n1"}"#, "[]"] {
            let error = Record::parse("sb", bad).unwrap_err().to_string();
            assert!(error.contains("ConfigMap ovnkube-db, key sb"), "{error}");
        }
    }
}
