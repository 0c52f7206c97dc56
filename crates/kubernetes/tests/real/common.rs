//! A cluster, and waits with limits.

use std::time::Duration;

use kubernetes::{Api, ApiError};
use lab::{Kubernetes, Lab, LabSpec};
use serde_json::{Value, json};

/// Limit of every wait; shorter than the long Lease, whose expiry must not end a wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(55);

/// A lab with Kubernetes only, without kubelets: pods stay as the test creates them.
pub(crate) fn cluster(purpose: &str) -> Lab {
    Lab::start(LabSpec::for_test(purpose).unwrap().kubernetes(Kubernetes::default())).unwrap()
}

/// Runs on a single-threaded runtime, as the product does.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// An API client as administrator.
pub(crate) async fn connect(lab: &Lab) -> Api {
    Api::from_kubeconfig(lab.record().endpoints.kubeconfig.as_deref(), None).await.unwrap()
}

/// Awaits a future, at most [`TIMEOUT`].
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| panic!("no {what} within {TIMEOUT:?}"))
}

/// Polls an object until it meets a condition.
pub(crate) async fn eventually(api: &Api, path: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
    soon(what, async {
        loop {
            if let Ok(value) = get(api, path).await
                && good(&value)
            {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

pub(crate) async fn get(api: &Api, path: &str) -> Result<Value, ApiError> {
    api.get(path).await.map(|answer| serde_json::from_slice(&answer).unwrap())
}

pub(crate) async fn post(api: &Api, path: &str, body: &Value) -> Result<Value, ApiError> {
    api.post(path, body.to_string().into_bytes()).await.map(|answer| serde_json::from_slice(&answer).unwrap())
}

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn config_map(name: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "test": "yes" } }, "data": { "key": "0" } })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "none" }] } })
}
