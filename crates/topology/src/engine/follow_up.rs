//! Follow-ups of a commit: annotations to write, and Events for parked objects.

use std::time::Duration;

use backoff::Backoff;
use objects::{Annotated, AnnotationState, Condition, NODE_ID, NODE_SUBNETS, Name, ObjectKey, POD_NETWORKS};

use super::effect::{Effect, Measure, ObjectRef, PatchOutcome};
use super::node_network::NetworkStatus;
use super::{Engine, Leading};
use crate::annotations::{node_annotations, pod_annotation};
use crate::identity::Owner;
use crate::refusal::Refusal;
use crate::store::Store;

/// First and longest delay before failed annotations are retried.
const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// A pod's event may precede its node's: a missing node is reported after this time.
const NODE_COMES: Duration = Duration::from_secs(30);

const NODE_MISSING: &str = "NodeMissing";
const ANNOTATION_RESTORED: &str = "PodAnnotationRestored";
const TAMPERED: &str = "annotation k8s.ovn.org/pod-networks was changed by another client; it is restored, and the pod keeps \
                        its addresses";

/// A patch of annotations or of a condition that the watch has not shown yet.
#[derive(Debug, Clone)]
pub(super) struct PendingPatch {
    pub(super) uid: Name,
    pub(super) attempts: u32,
    pub(super) state: PatchState,
    /// The condition of a policy that it writes; none for annotations.
    pub(super) condition: Option<Condition>,
    /// Whether the object showed something else meanwhile: an older patch may arrive after this one.
    pub(super) superseded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchState {
    InFlight,
    /// Written; the watch has not shown it yet.
    Written,
    /// To be retried at the time in [`Leading::retries`].
    Waiting,
}

/// The object of an owner, if it exists.
pub(super) fn object_of(owner: &Owner, store: &Store) -> Option<ObjectRef> {
    match owner {
        Owner::Cluster | Owner::Selector(_) | Owner::Adopted => None,
        Owner::Node(name) => store.node(name).map(|node| ObjectRef {
            kind: "Node",
            namespace: None,
            name: (&**name).into(),
            uid: node.uid.clone(),
        }),
        Owner::Namespace(name) => store.namespace(name).map(|namespace| ObjectRef {
            kind: "Namespace",
            namespace: None,
            name: (&**name).into(),
            uid: (&*namespace.uid).into(),
        }),
        Owner::Pod(key) => store.pod(key).map(|pod| ObjectRef {
            kind: "Pod",
            namespace: Some(key.namespace.clone()),
            name: key.name.clone(),
            uid: pod.uid.clone(),
        }),
        Owner::Service(key) => store.service(key).map(|service| reference("Service", key, &service.uid)),
        Owner::Policy(key) => store.policy(key).map(|policy| reference("NetworkPolicy", key, &policy.uid)),
        Owner::AdminPolicy(name) => {
            store.admin_policy(name, false).map(|policy| reference("AdminNetworkPolicy", &policy.key, &policy.uid))
        }
        Owner::BaselinePolicy(name) => store
            .admin_policy(name, true)
            .map(|policy| reference("BaselineAdminNetworkPolicy", &policy.key, &policy.uid)),
    }
}

fn reference(kind: &'static str, key: &ObjectKey, uid: &Name) -> ObjectRef {
    let namespace = (!key.namespace.is_empty()).then(|| key.namespace.clone());
    ObjectRef { kind, namespace, name: key.name.clone(), uid: uid.clone() }
}

impl Leading {
    /// Parks an owner; warns if the refusal is new.
    pub(super) fn park(&mut self, owner: &Owner, refusal: Refusal, store: &Store, effects: &mut Vec<Effect>) {
        if self.parked.get(owner) == Some(&refusal) {
            return;
        }
        if let Some(object) = object_of(owner, store) {
            let Refusal { reason, message, detail } = refusal.clone();
            let bare = self.allocator.node(&object.name).is_none() || self.ledger.entry(owner).is_none();
            if matches!(owner, Owner::Node(_)) && bare {
                let status = NetworkStatus { available: false, reason, message: message.clone() };
                self.node_networks.set(object.clone(), status, effects);
            }
            self.warned.insert(owner.clone(), reason);
            effects.push(Effect::Warn { object, reason, message, detail });
        }
        self.parked.insert(owner.clone(), refusal);
    }
}

impl Engine {
    /// Reports that a warning is resolved: the owner is no longer parked and has its rows.
    fn report_resolved(&mut self, owner: &Owner) {
        let Some(leading) = &mut self.leading else { return };
        if leading.warned.is_empty() || leading.parked.contains_key(owner) {
            return;
        }
        let object = object_of(owner, &self.store);
        if (object.is_none() || leading.ledger.entry(owner).is_some())
            && let (Some(reason), Some(object)) = (leading.warned.remove(owner), object)
        {
            self.effects.push(Effect::Resolved { object, reason });
        }
    }

    /// Pods whose node does not exist and that were not reported yet, and when they will be.
    fn without_node(&self) -> impl Iterator<Item = (Duration, &Name, Owner)> {
        let leading = self.leading.iter();
        let waiting = leading.flat_map(|leading| leading.waiting.iter().map(move |(node, keys)| (leading, node, keys)));
        let missing = waiting.filter(|(_, node, _)| self.store.node(node).is_none());
        missing.flat_map(move |(leading, node, keys)| {
            keys.iter().filter_map(move |key| {
                let owner = Owner::Pod(key.clone());
                let here = self.store.pod(key)?.node.as_ref() == Some(node) && !leading.warned.contains_key(&owner);
                here.then_some((*self.pending_pods.get(key)? + NODE_COMES, node, owner))
            })
        })
    }

    fn warn_node_missing(&mut self, now: Duration) {
        let due: Vec<(Name, Owner)> = {
            let due = self.without_node().filter(|(at, ..)| *at <= now);
            due.map(|(_, node, owner)| (node.clone(), owner)).collect()
        };
        let Some(leading) = &mut self.leading else { return };
        for (node, owner) in due {
            let Some(object) = object_of(&owner, &self.store) else { continue };
            let message = format!(
                "the pod is bound to node {node}, which does not exist: it gets its network when the node is created; delete \
                 the pod if the node will not return"
            );
            leading.warned.insert(owner, NODE_MISSING);
            self.effects.push(Effect::Warn { object, reason: NODE_MISSING, message, detail: None });
        }
    }

    /// Writes what an owner's object still lacks, now that its rows are committed.
    pub(super) fn follow_up(&mut self, owner: &Owner) {
        self.report_resolved(owner);
        let Some(leading) = &mut self.leading else { return };
        let mut tampered = false;
        let missing: Vec<(&'static str, String)> = match owner {
            Owner::Pod(key) => {
                let (Some(pod), Some(own)) = (self.store.pod(key), leading.allocator.pod(key)) else { return };
                let Some(node) = leading.allocator.node(&own.node) else { return };
                // The allocation of a former pod of that name: this one has its own turn.
                let former = own.uid != pod.uid;
                // A contradicting record is refused, not overwritten: the pod may run with it.
                let contradicted = pod.network.as_ref().is_some_and(|network| !own.is(network));
                if former || pod.is_recorded() || contradicted || leading.ledger.entry(owner).is_none() {
                    return;
                }
                tampered = pod.annotation == AnnotationState::Differs;
                vec![(POD_NETWORKS, pod_annotation(own, node, &self.settings))]
            }
            Owner::Node(name) => {
                let (Some(node), Some(own)) = (self.store.node(name), leading.allocator.node(name)) else { return };
                if own.uid != node.uid || leading.ledger.entry(owner).is_none() {
                    return;
                }
                if node.network_unavailable == Some(true) {
                    leading.progress.await_node_network(name);
                } else {
                    leading.progress.forget_node(name);
                }
                let absent = |key: &str| match key {
                    // Fewer than allocated: written before the cluster became dual-stack.
                    NODE_SUBNETS => match &node.subnets {
                        Annotated::Absent => true,
                        Annotated::Valid(said) => said.len() < own.subnets().count(),
                        Annotated::Broken(_) => false,
                    },
                    NODE_ID => node.id == Annotated::Absent,
                    _ => false,
                };
                node_annotations(own).into_iter().filter(|(key, _)| absent(key)).collect()
            }
            Owner::AdminPolicy(_) | Owner::BaselinePolicy(_) => return self.write_condition(owner),
            _ => return,
        };
        let Some(object) = object_of(owner, &self.store).filter(|_| !missing.is_empty()) else { return };
        match leading.patching.get(owner) {
            // In flight, written, or waiting for its retry.
            Some(patching) if patching.uid == object.uid => return,
            _ => {
                let patching = PendingPatch {
                    uid: object.uid.clone(),
                    attempts: 0,
                    state: PatchState::InFlight,
                    condition: None,
                    superseded: false,
                };
                leading.patching.insert(owner.clone(), patching);
            }
        }
        if tampered {
            let (object, message) = (object.clone(), TAMPERED.to_owned());
            self.effects.push(Effect::Warn { object, reason: ANNOTATION_RESTORED, message, detail: None });
        }
        self.effects.push(Effect::Annotate { owner: owner.clone(), object, annotations: missing });
    }

    /// Takes the outcome of a patch of the object with this UID.
    pub fn patched(&mut self, owner: &Owner, uid: &str, outcome: PatchOutcome, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let Some(patching) = leading.patching.get_mut(owner).filter(|patching| &*patching.uid == uid) else { return };
        match outcome {
            PatchOutcome::Done if patching.superseded => {
                leading.patching.remove(owner);
                self.follow_up(owner);
            }
            PatchOutcome::Done => {
                patching.state = PatchState::Written;
                if let Owner::Pod(key) = owner
                    && let Some(since) = self.pending_pods.remove(key)
                {
                    self.effects.push(Effect::Measured(Measure::PodCreation(now.saturating_sub(since))));
                }
            }
            PatchOutcome::ObjectGone => drop(leading.patching.remove(owner)),
            PatchOutcome::Failed => {
                patching.attempts += 1;
                let pause = RETRY.delay(patching.attempts, 1.0);
                patching.state = PatchState::Waiting;
                leading.retries.insert((now + pause, owner.clone()));
            }
        }
    }

    /// Retries the patches that are due.
    fn retry_patches(&mut self, now: Duration) {
        while let Some(leading) = &mut self.leading
            && let Some((due, _)) = leading.retries.first()
            && *due <= now
            && let Some((_, owner)) = leading.retries.pop_first()
        {
            // Answered meanwhile, or of another object by now.
            if leading.patching.get(&owner).is_none_or(|patching| patching.state != PatchState::Waiting) {
                continue;
            }
            let attempts = leading.patching.remove(&owner).map_or(0, |patching| patching.attempts);
            self.follow_up(&owner);
            if let Some(patching) = self.leading.as_mut().and_then(|leading| leading.patching.get_mut(&owner)) {
                patching.attempts = attempts;
            }
        }
    }

    /// When [`Engine::tick`] has something to do if nothing happens before.
    pub fn deadline(&self) -> Option<Duration> {
        let leading = self.leading.as_ref()?;
        let retry = leading.retries.first().map(|(due, _)| *due);
        let progress = leading.progress.deadline(leading.allocator.quarantine().must_raise());
        let stray = self.without_node().map(|(at, ..)| at).min();
        let conditions = leading.node_networks.deadline();
        retry.into_iter().chain(progress).chain(stray).chain(conditions).min()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) {
        if self.deadline().is_some_and(|due| due <= now) {
            self.retry_patches(now);
            self.retry_node_networks(now);
            self.check_progress(now);
            self.warn_node_missing(now);
        }
    }
}
