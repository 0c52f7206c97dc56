//! The pods of this node, by one watch: what the CNI server waits for, and which ports of the host lead to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cni::{Code, Failure, PodReference};
use kubernetes::{Api, ApiError, Identity, Observed, Resource, Watch};
use objects::{Annotated, HostPort, LocalPodFacts, PodInterface, PodKey};
use tokio::sync::{Notify, Semaphore, watch};

/// So many pods are asked for by name at once at most.
const QUESTIONS: usize = 4;
/// So many events are taken at once at most.
const BATCH: usize = 256;

/// The ports of the host that lead to pods of this node.
pub type Published = Arc<[(Arc<PodKey>, Box<[IpAddr]>, HostPort)]>;

/// The pods of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pods {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    node: String,
    state: Mutex<State>,
    questions: Semaphore,
    /// Nothing until all pods were told once.
    published: watch::Sender<Option<Published>>,
    listed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Arc<PodKey>, Arc<LocalPodFacts>>,
    /// Those that a list has not told yet.
    marked: BTreeSet<Arc<PodKey>>,
    waiting: BTreeMap<Arc<PodKey>, Arc<Notify>>,
    /// Why the watch does not go on, if it does not.
    trouble: Option<String>,
}

/// A pod that is to be wired, and how.
#[derive(Debug, Clone)]
pub struct PodConfig {
    /// Its name.
    pub key: Arc<PodKey>,
    /// Its identity.
    pub uid: Box<str>,
    /// Its network.
    pub network: Arc<PodInterface>,
    /// The ports of the host that lead to it.
    pub host_ports: Box<[HostPort]>,
}

impl PodConfig {
    /// Whether all its host ports are among those that are open.
    pub fn has_open_host_ports(&self, open: &Published) -> bool {
        self.host_ports.iter().all(|wanted| {
            open.iter().any(|(key, addresses, port)| {
                let own = self.network.addresses.iter().map(|address| address.address());
                *key == self.key && port == wanted && own.eq(addresses.iter().copied())
            })
        })
    }
}

impl Pods {
    /// Begins to watch, for as long as the runtime lives.
    pub fn start(api: &Api, node: &str) -> Self {
        let shared = Shared {
            api: api.clone(),
            node: node.to_owned(),
            state: Mutex::default(),
            questions: Semaphore::new(QUESTIONS),
            published: watch::Sender::new(None),
            listed: watch::Sender::new(false),
        };
        let pods = Self { shared: Arc::new(shared) };
        let resource = Resource::all("/api/v1", "pods").fields(&format!("spec.nodeName={node}"));
        tokio::spawn(pods.clone().follow(kubernetes::watch(api, resource, LocalPodFacts::parse)));
        pods
    }

    /// The ports of the host that lead to pods of this node, once all pods are known.
    pub fn published(&self) -> watch::Receiver<Option<Published>> {
        self.shared.published.subscribe()
    }

    /// Whether all pods were told once.
    pub fn listed(&self) -> watch::Receiver<bool> {
        self.shared.listed.subscribe()
    }

    /// Whether the pod of this name has this identity, as the watch knows it.
    pub fn is_known(&self, key: &PodKey, uid: &str) -> bool {
        self.state().pods.get(key).is_some_and(|pod| *pod.uid == *uid && !pod.finished)
    }

    /// What a sandbox's pod is to be wired with, once that is known. Has no limit of its own.
    pub async fn wanted(&self, pod: &PodReference) -> Result<PodConfig, Failure> {
        let key = Arc::new(PodKey::new(&pod.namespace, &pod.name));
        let waiter = self.waiter(&key);
        loop {
            let changed = waiter.notify.notified();
            tokio::pin!(changed);
            // Before the look: a change between the look and the waiting is not missed.
            changed.as_mut().enable();
            let known = self.state().pods.get(&key).cloned();
            let same = |facts: &LocalPodFacts| pod.uid.as_deref().is_none_or(|uid| facts.has_uid(uid));
            let found = match known {
                Some(facts) if same(&facts) => self.judge(&facts)?,
                // The runtime may know of it before we do.
                _ => match self.ask(&key).await {
                    Ok(facts) if same(&facts) => self.judge(&facts)?,
                    Ok(facts) => return Err(replaced(&key, pod.uid.as_deref(), Some(&facts.uid))),
                    Err(ApiError::NotFound(_)) => return Err(replaced(&key, pod.uid.as_deref(), None)),
                    Err(error) => {
                        tracing::warn!(pod = %key, %error, "cannot be asked for; waiting for the watch");
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

    /// Returns when a pod is none to be wired any more: gone, ended, or another one of the same name.
    pub async fn lost(&self, key: &Arc<PodKey>, uid: &str) -> Failure {
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
                    if let Err(failure) = self.judge(&facts) {
                        return failure;
                    }
                }
                // Before it was seen, the watch is behind: what it shows is from before.
                Some(other) if seen => return replaced(key, Some(uid), Some(&other.uid)),
                None if seen => return replaced(key, Some(uid), None),
                _ => {}
            }
            changed.await;
        }
    }

    /// Why nothing comes, for whoever waited in vain.
    pub fn why_nothing_comes(&self, pod: &PodReference) -> String {
        let key = PodKey::new(&pod.namespace, &pod.name);
        let state = self.state();
        if let Some(trouble) = &state.trouble {
            return format!("the API cannot be watched: {trouble}");
        }
        match state.pods.get(&key) {
            Some(facts) if facts.unrecorded => {
                "its annotation was not written by ovnkube controller (the status has no condition \
                 k8s.ovn.org/NetworkAllocated), which has not replaced it: look at the events of the pod and at the log of the \
                 controller"
                    .to_owned()
            }
            Some(_) => {
                "ovnkube controller has not written its annotation: look at the events of the pod, at the condition of \
                        its node and at the log of the controller"
                    .to_owned()
            }
            None => "the API has not told of it".to_owned(),
        }
    }

    /// What it is to be wired with; none if that is not known yet.
    fn judge(&self, facts: &LocalPodFacts) -> Result<Option<PodConfig>, Failure> {
        let (key, node) = (&facts.key, &*facts.node);
        if node != self.shared.node {
            let message = format!("pod {key} is on node {node:?}, and this is {:?}", self.shared.node);
            return Err(Failure::new(Code::PodReplaced, message));
        }
        if facts.host_network {
            let message = format!("pod {key} uses the host's network: it needs none of ours");
            return Err(Failure::new(Code::InvalidEnvironment, message));
        }
        if facts.finished || facts.deleting {
            let what = if facts.finished { "has ended" } else { "is being deleted" };
            return Err(Failure::new(Code::PodReplaced, format!("pod {key} {what}: it gets no network")));
        }
        match &facts.network {
            Annotated::Absent => Ok(None),
            Annotated::Valid(network) => {
                let host_ports = facts.host_ports.clone();
                Ok(Some(PodConfig { key: key.clone(), uid: facts.uid.clone(), network: network.clone(), host_ports }))
            }
            Annotated::Broken(why) => Err(Failure::new(
                Code::InvalidConfiguration,
                format!("the network that was written on pod {key} cannot be used"),
            )
            .with_details(format!("{why}; delete the pod to get a new one"))),
        }
    }

    async fn ask(&self, key: &PodKey) -> Result<LocalPodFacts, ApiError> {
        // It is never closed.
        let _permit = self.shared.questions.acquire().await.ok();
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
                self.take(event);
            }
            self.publish();
        }
        tracing::error!("the watch of this node's pods has ended");
    }

    fn take(&self, event: Observed<LocalPodFacts>) {
        let mut state = self.state();
        match event {
            Observed::Relisting => state.marked = state.pods.keys().cloned().collect(),
            Observed::Upsert(facts) => state.put(facts),
            Observed::Deleted(identity) => state.forget(&identity),
            Observed::Malformed { object, error } => {
                tracing::warn!(pod = format!("{}/{}", object.namespace, object.name), error, "cannot be read");
                state.put(LocalPodFacts {
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
                for key in std::mem::take(&mut state.marked) {
                    state.pods.remove(&key);
                    state.tell(&key);
                }
                state.trouble = None;
                drop(state);
                self.shared.listed.send_if_modified(|listed| !std::mem::replace(listed, true));
            }
            Observed::Failed(why) => {
                tracing::warn!(why, "this node's pods cannot be watched");
                state.trouble = Some(why);
            }
            Observed::Resumed => state.trouble = None,
            Observed::Absent => state.trouble = Some("the server does not know pods".to_owned()),
        }
    }

    fn publish(&self) {
        if !*self.shared.listed.borrow() {
            return;
        }
        let state = self.state();
        let mut published = Vec::new();
        let mut asking: Vec<&Arc<LocalPodFacts>> =
            state.pods.values().filter(|facts| !facts.host_ports.is_empty()).collect();
        // Of two that ask for one port the older has it, here as in the controller.
        asking.sort_by_key(|facts| (&facts.created, &facts.key));
        for facts in asking {
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
    fn put(&mut self, facts: LocalPodFacts) {
        let key = facts.key.clone();
        self.marked.remove(&key);
        if self.pods.get(&key).is_none_or(|known| **known != facts) {
            self.pods.insert(key.clone(), Arc::new(facts));
            self.tell(&key);
        }
    }

    fn forget(&mut self, identity: &Identity) {
        let key = Arc::new(PodKey::new(&identity.namespace, &identity.name));
        // A successor of the same name may be there already.
        if self.pods.get(&key).is_some_and(|pod| identity.uid.is_empty() || *pod.uid == *identity.uid) {
            self.pods.remove(&key);
            self.tell(&key);
        }
    }

    fn tell(&self, key: &Arc<PodKey>) {
        if let Some(waiting) = self.waiting.get(key) {
            waiting.notify_waiters();
        }
    }
}

/// Somebody who waits for a pod.
struct Waiter {
    pods: Pods,
    key: Arc<PodKey>,
    notify: Arc<Notify>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.pods.state();
        // One is in the map, one is ours.
        if Arc::strong_count(&self.notify) <= 2 {
            state.waiting.remove(&self.key);
        }
    }
}

fn replaced(key: &PodKey, asked: Option<&str>, found: Option<&str>) -> Failure {
    let asked = asked.unwrap_or("unknown");
    let message = match found {
        Some(found) => {
            format!("pod {key} is another one by now: this sandbox is of UID {asked}, the pod has UID {found}")
        }
        None => format!("pod {key} (UID {asked}) is gone"),
    };
    Failure::new(Code::PodReplaced, message).with_details("an old sandbox gets no network; the runtime will remove it")
}
