//! The pods of this node, from one watch: network configurations for the CNI server, and host ports for the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cni::{Code, Failure, PodReference};
use kubernetes::{Api, ApiError, Identity, Observed, Resource, Watch};
use objects::{Annotated, HostPort, LocalPodFacts, PodInterface, PodKey};
use tokio::sync::{Notify, Semaphore, watch};

/// Concurrent GETs of pods that the watch has not reported.
const MAX_GETS: usize = 4;
/// Largest number of events that are handled at once.
const BATCH: usize = 256;

/// Host ports of this node's pods, with the pod and its addresses.
pub(crate) type PublishedPorts = Arc<[(Arc<PodKey>, Box<[IpAddr]>, HostPort)]>;

/// The pods of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pods {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    node: String,
    state: Mutex<State>,
    gets: Semaphore,
    /// None until all pods are listed.
    published: watch::Sender<Option<PublishedPorts>>,
    listed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Arc<PodKey>, Arc<LocalPodFacts>>,
    /// Known pods that the current list has not contained yet: they are removed at its end.
    unlisted: BTreeSet<Arc<PodKey>>,
    waiting: BTreeMap<Arc<PodKey>, Arc<Notify>>,
    /// Why the watch fails, if it does.
    watch_error: Option<String>,
}

/// Everything that connecting a pod needs.
#[derive(Debug, Clone)]
pub(crate) struct PodConfig {
    pub(crate) key: Arc<PodKey>,
    /// UID of the Pod object, which the logical port requires.
    pub(crate) uid: Box<str>,
    /// Addresses, MAC and routes that the controller recorded.
    pub(crate) network: Arc<PodInterface>,
    /// `hostPort`s of its containers, for the gateway.
    pub(crate) host_ports: Box<[HostPort]>,
}

impl PodConfig {
    /// True if flows and nftables rules of all its host ports are applied.
    pub(crate) fn has_open_host_ports(&self, open: &PublishedPorts) -> bool {
        self.host_ports.iter().all(|wanted| {
            open.iter().any(|(key, addresses, port)| {
                let own = self.network.addresses.iter().map(|address| address.address());
                *key == self.key && port == wanted && own.eq(addresses.iter().copied())
            })
        })
    }
}

impl Pods {
    /// Starts the watch, which runs until the runtime ends.
    pub(crate) fn start(api: &Api, node: &str) -> Self {
        let shared = Shared {
            api: api.clone(),
            node: node.to_owned(),
            state: Mutex::default(),
            gets: Semaphore::new(MAX_GETS),
            published: watch::Sender::new(None),
            listed: watch::Sender::new(false),
        };
        let pods = Self { shared: Arc::new(shared) };
        let resource = Resource::all("/api/v1", "pods").fields(&format!("spec.nodeName={node}"));
        tokio::spawn(pods.clone().follow(kubernetes::watch(api, resource, LocalPodFacts::parse)));
        pods
    }

    /// Host ports of all pods; None until all pods are listed.
    pub(crate) fn published(&self) -> watch::Receiver<Option<PublishedPorts>> {
        self.shared.published.subscribe()
    }

    /// True once all pods are listed.
    pub(crate) fn listed(&self) -> watch::Receiver<bool> {
        self.shared.listed.subscribe()
    }

    /// True if the watch knows a pod of this name and UID that has not finished.
    pub(crate) fn is_known(&self, key: &PodKey, uid: &str) -> bool {
        self.state().pods.get(key).is_some_and(|pod| *pod.uid == *uid && !pod.finished)
    }

    /// Waits until the controller has recorded the pod's network. Fails if the pod is gone, replaced or cannot be connected. No
    /// time limit.
    pub(crate) async fn wait_for_config(&self, pod: &PodReference) -> Result<PodConfig, Failure> {
        let key = Arc::new(PodKey::new(&pod.namespace, &pod.name));
        let waiter = self.waiter(&key);
        loop {
            let changed = waiter.notify.notified();
            tokio::pin!(changed);
            // Before the state is read, so that no change is missed.
            changed.as_mut().enable();
            let known = self.state().pods.get(&key).cloned();
            let same = |facts: &LocalPodFacts| pod.uid.as_deref().is_none_or(|uid| facts.has_uid(uid));
            let found = match known {
                Some(facts) if same(&facts) => self.config_of(&facts)?,
                // The runtime may know the pod before the watch does.
                _ => match self.get(&key).await {
                    Ok(facts) if same(&facts) => self.config_of(&facts)?,
                    Ok(facts) => return Err(replaced(&key, pod.uid.as_deref(), Some(&facts.uid))),
                    Err(ApiError::NotFound(_)) => return Err(replaced(&key, pod.uid.as_deref(), None)),
                    Err(error) => {
                        tracing::warn!(pod = %key, %error, "cannot read the pod; waiting for the watch");
                        None
                    }
                },
            };
            match found {
                Some(wanted) => return Ok(wanted),
                None => changed.await,
            }
        }
    }

    /// Returns when the pod can no longer be connected: it is gone, finished, or replaced by one of the same name.
    pub(crate) async fn wait_until_gone(&self, key: &Arc<PodKey>, uid: &str) -> Failure {
        let waiter = self.waiter(key);
        let mut seen = false;
        loop {
            let changed = waiter.notify.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let known = self.state().pods.get(key).cloned();
            match known {
                Some(facts) if *facts.uid == *uid => {
                    seen = true;
                    if let Err(failure) = self.config_of(&facts) {
                        return failure;
                    }
                }
                // Until the watch has reported this UID, it shows an older state.
                Some(other) if seen => return replaced(key, Some(uid), Some(&other.uid)),
                None if seen => return replaced(key, Some(uid), None),
                _ => {}
            }
            changed.await;
        }
    }

    /// Why a pod has no network yet, after a timeout.
    pub(crate) fn missing_config_reason(&self, pod: &PodReference) -> String {
        let key = PodKey::new(&pod.namespace, &pod.name);
        let state = self.state();
        if let Some(watch_error) = &state.watch_error {
            return format!(
                "the agent cannot watch pods: {watch_error}; check the API server and the agent's permissions"
            );
        }
        match state.pods.get(&key) {
            Some(facts) if facts.unrecorded => {
                "its annotation was not written by ovnkube controller (the status has no condition \
                 k8s.ovn.org/NetworkAllocated), and the controller has not replaced it; see the Events of the pod and the log \
                 of the controller"
                    .to_owned()
            }
            Some(_) => {
                "ovnkube controller has not allocated its network; see the Events of the pod, the condition of its node and \
                 the log of the controller"
                    .to_owned()
            }
            None => "the API server has not reported the pod to the agent yet; the runtime tries again".to_owned(),
        }
    }

    /// The configuration of a pod; None until its network is recorded.
    fn config_of(&self, facts: &LocalPodFacts) -> Result<Option<PodConfig>, Failure> {
        let (key, node) = (&facts.key, &*facts.node);
        if node != self.shared.node {
            let message = format!("pod {key} is on node {node:?}, not on this node {:?}", self.shared.node);
            return Err(Failure::new(Code::PodReplaced, message));
        }
        if facts.host_network {
            let message = format!("pod {key} uses the host's network and needs no interface");
            return Err(Failure::new(Code::InvalidEnvironment, message));
        }
        if facts.finished || facts.deleting {
            let what = if facts.finished { "has finished" } else { "is being deleted" };
            return Err(Failure::new(Code::PodReplaced, format!("pod {key} {what} and gets no network")));
        }
        match &facts.network {
            Annotated::Absent => Ok(None),
            Annotated::Valid(network) => {
                let host_ports = facts.host_ports.clone();
                Ok(Some(PodConfig { key: key.clone(), uid: facts.uid.clone(), network: network.clone(), host_ports }))
            }
            Annotated::Broken(why) => {
                Err(Failure::new(Code::InvalidConfiguration, format!("the recorded network of pod {key} is invalid"))
                    .with_details(format!("{why}; delete the pod so that it is created again")))
            }
        }
    }

    async fn get(&self, key: &PodKey) -> Result<LocalPodFacts, ApiError> {
        // The semaphore is never closed.
        let _permit = self.shared.gets.acquire().await.ok();
        let path = format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name);
        let json = self.shared.api.get(&path).await?;
        let json = std::str::from_utf8(&json).map_err(|error| ApiError::Unreadable(error.to_string()))?;
        LocalPodFacts::parse(json).map_err(ApiError::Unreadable)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiter(&self, key: &Arc<PodKey>) -> Waiter {
        let notify = self.state().waiting.entry(key.clone()).or_default().clone();
        Waiter { pods: self.clone(), key: key.clone(), notify }
    }

    async fn follow(self, mut watch: Watch<LocalPodFacts>) {
        let mut batch = Vec::with_capacity(BATCH);
        while watch.next_batch(&mut batch, BATCH).await > 0 {
            for event in batch.drain(..) {
                self.handle(event);
            }
            self.publish();
        }
        tracing::error!("watch of this node's pods ended: this is a bug");
    }

    fn handle(&self, event: Observed<LocalPodFacts>) {
        let mut state = self.state();
        match event {
            Observed::Relisting => state.unlisted = state.pods.keys().cloned().collect(),
            Observed::Upsert(facts) => state.insert(facts),
            Observed::Deleted(identity) => state.remove(&identity),
            Observed::Malformed { object, error } => {
                tracing::warn!(
                    pod = format!("{}/{}", object.namespace, object.name),
                    error,
                    "cannot parse the pod; it cannot be connected"
                );
                state.insert(LocalPodFacts {
                    key: Arc::new(PodKey::new(&object.namespace, &object.name)),
                    uid: object.uid.as_str().into(),
                    static_uid: None,
                    node: self.shared.node.as_str().into(),
                    host_network: false,
                    finished: false,
                    deleting: false,
                    created: Box::default(),
                    network: Annotated::Broken(error.into()),
                    unrecorded: false,
                    host_ports: Box::default(),
                });
            }
            Observed::Listed => {
                for key in std::mem::take(&mut state.unlisted) {
                    state.pods.remove(&key);
                    state.notify(&key);
                }
                state.watch_error = None;
                drop(state);
                self.shared.listed.send_if_modified(|listed| !std::mem::replace(listed, true));
            }
            Observed::Failed(error) => {
                tracing::warn!(error, "watch of this node's pods failed; retrying");
                state.watch_error = Some(error);
            }
            Observed::Resumed => state.watch_error = None,
            Observed::Absent => state.watch_error = Some("the API server does not serve pods".to_owned()),
        }
    }

    fn publish(&self) {
        if !*self.shared.listed.borrow() {
            return;
        }
        let state = self.state();
        let mut published = Vec::new();
        let mut with_ports: Vec<&Arc<LocalPodFacts>> =
            state.pods.values().filter(|facts| !facts.host_ports.is_empty()).collect();
        // Of two pods with the same host port the older has it, as in the controller.
        with_ports.sort_by_key(|facts| (&facts.created, &facts.key));
        for facts in with_ports {
            let Some(network) = facts.network.valid().filter(|_| !facts.finished) else { continue };
            for port in &facts.host_ports {
                let addresses = network.addresses.iter().map(|address| address.address()).collect();
                published.push((facts.key.clone(), addresses, port.clone()));
            }
        }
        drop(state);
        self.shared.published.send_if_modified(|known| {
            let changed = known.as_deref() != Some(published.as_slice());
            if changed {
                *known = Some(published.into());
            }
            changed
        });
    }
}

impl State {
    fn insert(&mut self, facts: LocalPodFacts) {
        let key = facts.key.clone();
        self.unlisted.remove(&key);
        if self.pods.get(&key).is_none_or(|known| **known != facts) {
            self.pods.insert(key.clone(), Arc::new(facts));
            self.notify(&key);
        }
    }

    fn remove(&mut self, identity: &Identity) {
        let key = Arc::new(PodKey::new(&identity.namespace, &identity.name));
        // A new pod of the same name may have been reported already.
        if self.pods.get(&key).is_some_and(|pod| identity.uid.is_empty() || *pod.uid == *identity.uid) {
            self.pods.remove(&key);
            self.notify(&key);
        }
    }

    fn notify(&self, key: &Arc<PodKey>) {
        if let Some(waiting) = self.waiting.get(key) {
            waiting.notify_waiters();
        }
    }
}

/// Registration of a task that waits for changes of a pod.
struct Waiter {
    pods: Pods,
    key: Arc<PodKey>,
    notify: Arc<Notify>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.pods.state();
        // One reference is in the map, one is ours: no other task waits.
        if Arc::strong_count(&self.notify) <= 2 {
            state.waiting.remove(&self.key);
        }
    }
}

fn replaced(key: &PodKey, asked: Option<&str>, found: Option<&str>) -> Failure {
    let asked = asked.unwrap_or("unknown");
    let message = match found {
        Some(found) => {
            format!("pod {key} was recreated: this sandbox belongs to UID {asked}, the pod has UID {found}")
        }
        None => format!("pod {key} (UID {asked}) is gone"),
    };
    Failure::new(Code::PodReplaced, message).with_details("an old sandbox gets no network; the runtime removes it")
}
