//! Which cluster a database is: kept in the Kubernetes API, so that no second one can ever start.
//!
//! A ConfigMap `ovnkube-db` has one key per database. The member that writes a key first, by the API's optimistic concurrency, has
//! created the cluster; everybody else joins it.

use ovsdb::uuid::Uuid;
use serde::{Deserialize, Serialize};

use crate::kind::Kind;

/// The name of the ConfigMap.
pub const CONFIG_MAP: &str = "ovnkube-db";

/// One database in the ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The raft cluster.
    pub cluster_id: String,
    /// The member that created it.
    pub initiator: String,
    /// When it was created.
    #[serde(default)]
    pub created: String,
    /// Clusters that `ovnkube db rebuild` or `restore` replaced by this one, oldest first. Their members put their files
    /// aside and join this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
}

/// The value of a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "ConfigMap {CONFIG_MAP}, key {key}: {problem}; restore the value, whose clusterId `ovsdb-tool db-cid` of any member's file prints"
)]
pub struct RecordError {
    key: &'static str,
    problem: String,
}

impl Record {
    /// Parses the value of a database's key.
    pub fn parse(kind: Kind, text: &str) -> Result<Self, RecordError> {
        let failure = |problem: String| RecordError { key: kind.short(), problem };
        let record: Self = serde_json::from_str(text).map_err(|error| failure(error.to_string()))?;
        match record.cluster_id.parse::<Uuid>() {
            Ok(id) if id != Uuid::ZERO => Ok(record),
            _ => Err(failure(format!("clusterId {:?} is not a cluster ID", record.cluster_id))),
        }
    }

    /// The record of a cluster that this member creates, or finds without one.
    pub fn new(cluster_id: String, initiator: &str) -> Self {
        Self { cluster_id, initiator: initiator.to_owned(), created: kubernetes::timestamp(), replaced: Vec::new() }
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
        let record =
            Record { cluster_id: id.into(), initiator: "n1".into(), created: String::new(), replaced: Vec::new() };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse(Kind::Northbound, &text), Ok(record));
        for bad in ["", "{}", r#"{"clusterId":"","initiator":"n1"}"#, "[]"] {
            let error = Record::parse(Kind::Southbound, bad).unwrap_err().to_string();
            assert!(error.contains("ConfigMap ovnkube-db, key sb"), "{error}");
        }
    }
}
