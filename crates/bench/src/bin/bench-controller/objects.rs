//! The objects: nodes as an agent annotates them, namespaces of a hundred pods, pods that were given to a node.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use kubernetes::{Api, ApiError};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Concurrent requests, as many as the controller has in flight.
pub(crate) const WIDTH: usize = 32;
/// Default number of pods in a namespace.
const NAMESPACE: usize = 100;

/// A name and a chassis for each node.
pub(crate) fn node_name(number: usize) -> String {
    format!("node-{}", number + 1)
}

/// Pods of one purpose, in namespaces of their own, spread over the nodes.
#[derive(Debug, Clone)]
pub(crate) struct Pods {
    pub(crate) purpose: String,
    /// The number of the first to create; those before are there already.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Without nodes they are not scheduled, and no controller touches them.
    pub(crate) nodes: usize,
    /// As many in every namespace.
    pub(crate) namespace_size: usize,
    /// The labels `app` that they have by turns.
    pub(crate) apps: &'static [&'static str],
}

impl Pods {
    pub(crate) fn new(purpose: impl Into<String>, count: usize, nodes: usize) -> Self {
        Self { purpose: purpose.into(), first: 0, count, nodes, namespace_size: NAMESPACE, apps: &["web"] }
    }

    /// As many more, of the same purpose.
    pub(crate) fn more(&self) -> Self {
        Self { first: self.first + self.count, ..self.clone() }
    }

    pub(crate) fn namespace(&self, number: usize) -> String {
        format!("{}-{}", self.purpose, number / self.namespace_size)
    }

    /// How many namespaces they have.
    pub(crate) fn namespaces(&self) -> usize {
        (self.first + self.count).div_ceil(self.namespace_size)
    }

    pub(crate) fn app(&self, number: usize) -> &'static str {
        self.apps[number % self.apps.len()]
    }

    pub(crate) fn name(&self, number: usize) -> String {
        format!("web-{number}")
    }

    pub(crate) fn port(&self, number: usize) -> String {
        format!("{}_{}", self.namespace(number), self.name(number))
    }

    pub(crate) fn collection(&self, number: usize) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace(number))
    }

    /// Similar to a pod of a Deployment; the server adds tolerations, the token's volume and managed fields.
    pub(crate) fn manifest(&self, number: usize) -> String {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.name(number), "labels": {"bench": self.purpose, "app": self.app(number)}},
            "spec": {"containers": [{"name": "web", "image": "registry.example.com/team/web:1.2.3",
                "ports": [{"containerPort": 8080}], "env": [{"name": "LEVEL", "value": "info"}],
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}}]}});
        if self.nodes > 0 {
            pod["spec"]["nodeName"] = node_name(number % self.nodes).into();
        }
        pod.to_string()
    }

    /// The namespaces, each with the account without which no pod is admitted.
    pub(crate) async fn prepare(&self, api: &Api) -> Result<()> {
        let (pods, call) = (self.clone(), api.clone());
        parallel(WIDTH, self.namespaces(), move |number| {
            let (namespace, api) = (pods.namespace(number * pods.namespace_size), call.clone());
            async move {
                let body = json!({"metadata": {"name": namespace}}).to_string();
                created(api.post("/api/v1/namespaces", body.into_bytes()).await)?;
                let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
                let body = json!({"metadata": {"name": "default"}}).to_string();
                created(api.post(&path, body.into_bytes()).await)
            }
        })
        .await
    }

    pub(crate) async fn create(&self, api: &Api) -> Result<()> {
        let (pods, call) = (self.clone(), api.clone());
        parallel(WIDTH, self.count, move |number| {
            let number = pods.first + number;
            let (path, body, api) = (pods.collection(number), pods.manifest(number), call.clone());
            async move { Ok(api.post(&path, body.into_bytes()).await.map(drop)?) }
        })
        .await
    }
}

/// Ignores objects that exist.
pub(crate) fn created(answer: Result<Vec<u8>, ApiError>) -> Result<()> {
    match answer {
        Err(ApiError::AlreadyExists(_)) => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}

/// Nodes of these numbers as their agents would leave them: with chassis, gateway and addresses.
pub(crate) async fn create_nodes(api: &Api, numbers: Range<usize>) -> Result<()> {
    let call = api.clone();
    let first = numbers.start;
    parallel(WIDTH, numbers.len(), move |number| {
        let (body, api) = (node(first + number).to_string(), call.clone());
        async move { Ok(api.post("/api/v1/nodes", body.into_bytes()).await.map(drop)?) }
    })
    .await
}

fn node(number: usize) -> Value {
    let (name, high, low) = (node_name(number), number / 250, number % 250 + 1);
    let addresses = [format!("10.97.{high}.{low}/16")];
    let gateway = json!({"default": {"mode": "shared", "bridge-id": "br-ex", "interface-id": format!("br-ex_{name}"),
        "mac-address": format!("0a:58:0a:61:{high:02x}:{low:02x}"), "ip-addresses": addresses,
        "next-hops": ["10.97.255.254"], "node-port-enable": "true", "vlan-id": "0"}});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"bench": "node"}, "annotations": {
        "k8s.ovn.org/node-chassis-id": name,
        "k8s.ovn.org/l3-gateway-config": gateway.to_string(),
        "k8s.ovn.org/host-cidrs": json!(addresses).to_string(),
    }}})
}

/// Runs a call per number, with limited concurrency; returns the first failure.
pub(crate) async fn parallel<F, C>(width: usize, count: usize, call: F) -> Result<()>
where
    F: Fn(usize) -> C + Send + Sync + 'static,
    C: Future<Output = Result<()>> + Send + 'static,
{
    let (next, call) = (Arc::new(AtomicUsize::new(0)), Arc::new(call));
    let mut workers = JoinSet::new();
    for _ in 0..width.min(count) {
        let (next, call) = (next.clone(), call.clone());
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                call(number).await?;
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.context("a call panicked")??;
    }
    Ok(())
}
