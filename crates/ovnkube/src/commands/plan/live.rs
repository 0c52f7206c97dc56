//! Reads the objects of a cluster and the rows of a database.

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use kubernetes::{Api, ApiError};
use objects::ObjectKind;
use ovn_schema::northbound;
use ovsdb::client::{Client, Config, TableMonitor};
use ovsdb::operation::RowValues;
use ovsdb::schema::DatabaseSchema;
use ovsdb::uuid::Uuid;
use remotes::DatabaseAccess;
use serde_json::Value;

use super::admit::Objects;
use crate::config::cluster::{self, ConfigMap};

/// Limit of a request or connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects per page.
const PAGE: usize = 500;

/// Read-only access to a cluster.
pub(super) struct Cluster {
    api: Api,
}

impl Cluster {
    pub(super) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        Ok(Self { api: Api::from_kubeconfig(Some(kubeconfig), None).await?.with_timeout(PATIENCE) })
    }

    /// All objects that concern the network.
    pub(super) async fn objects(&self) -> anyhow::Result<Objects> {
        let mut objects = Objects::new();
        for kind in ObjectKind::ALL {
            let mut next = String::new();
            loop {
                let mut page = match self.get(&format!("{}?limit={PAGE}{next}", kind.collection())).await {
                    // A type that is not installed has no objects.
                    Err(Failure::Api(ApiError::NotFound(_))) if kind.is_optional() => break,
                    Err(error) => {
                        let hint = "check that the kubeconfig's server runs, and that its user may list this kind";
                        bail!("cannot list {} of {}: {error}; hint: {hint}", kind.name(), self.api.server());
                    }
                    Ok(page) => page,
                };
                for object in page["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
                    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                    objects.insert((kind, text("namespace"), text("name")), object);
                }
                match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                    // A continue token needs no escapes in a query.
                    Some(token) => next = format!("&continue={token}"),
                    None => break,
                }
            }
        }
        Ok(objects)
    }

    /// The ConfigMap of the cluster's own pods: in this namespace, or else in the default one or in the only other one
    /// that has it. The error says why there is none.
    pub(super) async fn config_map(&self, namespace: Option<&str>) -> Result<ConfigMap, String> {
        let (usual, name) = (namespace.unwrap_or(cluster::NAMESPACE), cluster::NAME);
        match self.get(&format!("/api/v1/namespaces/{usual}/configmaps/{name}")).await {
            Ok(object) => return Ok(config_map(&object)),
            Err(Failure::Api(ApiError::NotFound(_))) if namespace.is_none() => {}
            Err(Failure::Api(ApiError::NotFound(_))) => return Err(format!("ConfigMap {usual}/{name} not found")),
            Err(error) => return Err(format!("cannot read ConfigMap {usual}/{name}: {error}")),
        }
        let query = format!("/api/v1/configmaps?fieldSelector=metadata.name%3D{name}");
        let list = self.get(&query).await.map_err(|error| {
            format!("ConfigMap {usual}/{name} not found, and cannot list ConfigMaps of all namespaces: {error}")
        })?;
        let all: Vec<ConfigMap> = list["items"].as_array().into_iter().flatten().map(config_map).collect();
        let names: Vec<String> = all.iter().map(|map| map.name.clone()).collect();
        match <[ConfigMap; 1]>::try_from(all) {
            Ok([only]) => Ok(only),
            Err(_) if names.is_empty() => Err(format!("no namespace has a ConfigMap {name}")),
            Err(_) => {
                Err(format!("there are several ConfigMaps ({}): --config-namespace chooses one", names.join(", ")))
            }
        }
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        let answer = self.api.get(path).await.map_err(Failure::Api)?;
        serde_json::from_slice(&answer).map_err(Failure::NotJson)
    }
}

fn config_map(object: &Value) -> ConfigMap {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let data = object["data"].as_object().into_iter().flatten();
    let data = data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    ConfigMap { name: format!("{}/{}", text("namespace"), text("name")), data: data.collect() }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Api(ApiError),
    #[error("the response is not JSON: {0}")]
    NotJson(serde_json::Error),
}

/// The rows of a database at one moment.
pub(super) struct Rows {
    pub(super) schema: DatabaseSchema,
    pub(super) rows: Vec<(String, Uuid, RowValues)>,
}

/// Reads a northbound database as it is now.
pub(super) async fn rows(access: &DatabaseAccess) -> anyhow::Result<Rows> {
    let schema = {
        let client = connect(access, Vec::new()).await?;
        let schema = client.schema().ok_or_else(|| anyhow!("the server sent no schema"))?;
        (*schema).clone()
    };
    northbound::DATABASE.check(&schema).require_core()?;
    // All tables: our rows may refer to rows of other tables.
    let tables = schema.tables.keys().map(TableMonitor::new).collect();
    let snapshot = connect(access, tables).await?.snapshot();
    let mut rows = Vec::new();
    for table in snapshot.tables() {
        let of = table.schema();
        for row in table.iter() {
            let values =
                row.row.fields().map(|(place, datum)| (of.columns[place].name.clone(), datum.clone())).collect();
            rows.push((of.name.clone(), row.uuid, values));
        }
    }
    Ok(Rows { schema, rows })
}

/// A client with a complete replica; fails at the first unsuccessful attempt.
async fn connect(access: &DatabaseAccess, tables: Vec<TableMonitor>) -> anyhow::Result<Client> {
    let mut config = Config::new(access.remotes.clone(), northbound::DATABASE.name);
    config.tls.clone_from(&access.tls);
    config.tables = tables;
    config.leader_only = false;
    let alone = config.remotes.len() == 1;
    let client = Client::start(config);
    let mut status = client.status();
    let settled = status.wait_for(|status| status.connected || (alone && status.last_error.is_some()));
    let _ = tokio::time::timeout(PATIENCE, settled).await;
    let status = client.status().borrow().clone();
    if !status.connected {
        let names: Vec<String> = access.remotes.iter().map(ToString::to_string).collect();
        let problem = status.last_error.unwrap_or_else(|| "no response".into());
        let hint = "check that ovsdb-server of OVN_Northbound runs and listens there";
        bail!("cannot read {}: {problem}; hint: {hint}", names.join(","));
    }
    Ok(client)
}
