//! Watches the EndpointSlices, and lists them once for commands.

use std::path::Path;
use std::time::{Duration, Instant};

use kubernetes::{Api, ApiError, Observed, Resource, watch as watch_resource};
use ovsdb::client::Remote;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::access::{DatabaseAccess, Service};
use crate::listed_hosts::ListedHosts;
use crate::slices::{Members, Slice, Slices};

const GROUP: &str = "/apis/discovery.k8s.io/v1";
/// Longest wait of a command for the API.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The servers of a database that the API names; none until it has named one.
pub type RemoteUpdates = watch::Receiver<Option<Vec<Remote>>>;

/// A database whose list is kept up to date.
struct Target {
    access: DatabaseAccess,
    sender: watch::Sender<Option<Vec<Remote>>>,
}

/// Follows the servers of several databases, as long as the process runs. A Service of several databases is watched once.
pub fn follow<const N: usize>(api: &Api, accesses: [&DatabaseAccess; N]) -> [RemoteUpdates; N] {
    let mut groups: Vec<(String, String, Vec<Target>)> = Vec::new();
    let updates = accesses.map(|access| {
        let (sender, receiver) = watch::channel(None);
        if let Some(service) = &access.service {
            let namespace = namespace(api, service);
            let target = Target { access: access.clone(), sender };
            match groups.iter_mut().find(|(known, name, _)| *known == namespace && *name == service.name) {
                Some((.., targets)) => targets.push(target),
                None => groups.push((namespace.to_owned(), service.name.clone(), vec![target])),
            }
        }
        receiver
    });
    for (namespace, name, targets) in groups {
        tokio::spawn(run(api.clone(), namespace, name, targets));
    }
    updates
}

/// The servers of a database now, for a command: those that the API names, else the configured ones.
pub async fn resolve(access: &DatabaseAccess, kubeconfig: Option<&Path>) -> Vec<Remote> {
    let Some(service) = &access.service else { return access.remotes.clone() };
    let listed = match Api::from_kubeconfig(kubeconfig, None).await {
        Ok(api) => current(&api.with_timeout(COMMAND_LIMIT), access).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    listed.unwrap_or_else(|error| {
        let service = &service.name;
        tracing::warn!(service, error, "cannot read the databases' servers from the API; using the configured ones");
        access.remotes.clone()
    })
}

/// The servers of a database now: those that the API names, else the configured ones. An error if the API does not answer.
async fn current(api: &Api, access: &DatabaseAccess) -> Result<Vec<Remote>, ApiError> {
    Ok(published(api, access).await?.unwrap_or_else(|| access.remotes.clone()))
}

/// The servers that the API names now; none without any. An error if the API does not answer.
pub async fn published(api: &Api, access: &DatabaseAccess) -> Result<Option<Vec<Remote>>, ApiError> {
    let Some(service) = &access.service else { return Ok(None) };
    let members = list(api, namespace(api, service), &service.name).await?;
    let mut listed = ListedHosts::default();
    listed.update(&members, Instant::now());
    Ok(remotes(access, &listed))
}

/// Hosts of a Service's endpoints now, ready or not, sorted and without duplicates.
pub async fn endpoint_hosts(api: &Api, namespace: &str, service: &str) -> Result<Vec<String>, ApiError> {
    Ok(list(api, namespace, service).await?.hosts.into_keys().collect())
}

/// Lists the EndpointSlices of a Service once.
async fn list(api: &Api, namespace: &str, service: &str) -> Result<Members, ApiError> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Box<RawValue>>,
    }
    let path = format!(
        "{GROUP}/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{service}",
    );
    let unreadable = |error: String| ApiError::Unreadable(format!("EndpointSlices of Service {service}: {error}"));
    let list: List = serde_json::from_slice(&api.get(&path).await?).map_err(|error| unreadable(error.to_string()))?;
    let mut slices = Slices::default();
    for item in list.items {
        slices.observe(Observed::Upsert(Slice::parse(item.get()).map_err(unreadable)?));
    }
    slices.observe(Observed::Listed);
    Ok(slices.members().unwrap_or_default())
}

fn namespace<'a>(api: &'a Api, service: &'a Service) -> &'a str {
    service.namespace.as_deref().unwrap_or_else(|| api.namespace())
}

/// The listed servers in a stable order; none without any.
fn remotes(access: &DatabaseAccess, listed: &ListedHosts) -> Option<Vec<Remote>> {
    let list: Vec<Remote> = listed.hosts().iter().filter_map(|(host, ports)| access.remote_at(host, ports)).collect();
    (!list.is_empty()).then_some(list)
}

async fn run(api: Api, namespace: String, service: String, targets: Vec<Target>) {
    let labels = format!("kubernetes.io/service-name={service}");
    let resource = Resource::inside(GROUP, &namespace, "endpointslices").labels(&labels);
    let mut events = watch_resource(&api, resource, Slice::parse);
    let (mut slices, mut listed) = (Slices::default(), ListedHosts::default());
    loop {
        tokio::select! {
            event = events.next() => match event {
                None => return,
                Some(Observed::Failed(error)) => {
                    tracing::warn!(service, error, "cannot watch the databases' servers; keeping the last list, retrying");
                }
                Some(Observed::Malformed { object, error }) => {
                    tracing::warn!(service, slice = object.name, error, "cannot read EndpointSlice; keeping its last version");
                    slices.observe(Observed::Malformed { object, error });
                }
                Some(event) => slices.observe(event),
            },
            () = until(listed.deadline()) => {}
        }
        let Some(members) = slices.members() else { continue };
        listed.update(&members, Instant::now());
        for target in &targets {
            let list = remotes(&target.access, &listed);
            let mut first = false;
            let changed = target.sender.send_if_modified(|known| {
                let changed = list.is_some() && *known != list;
                if changed {
                    first = known.is_none();
                    known.clone_from(&list);
                }
                changed
            });
            if changed {
                let servers = list.iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(",");
                let database = target.access.service.as_ref().map(Service::database);
                let what = if first { "learned from the API" } else { "changed" };
                tracing::info!(database, service, servers, "addresses of the database's servers {what}");
            }
        }
    }
}

/// Waits until a time; for ever without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
