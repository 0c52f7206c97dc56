//! The facts by key, with the reverse indexes that find the owners affected by a change.

mod admin;
mod chassis;
mod host_ports;
mod hosts;
mod namespaces;
mod selectors;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use objects::{
    AdminPolicyFacts, Labels, Name, NamespaceFacts, NodeFacts, ObjectKey, PodFacts, PodKey, PolicyFacts, ServiceFacts,
    SliceFacts,
};

pub(crate) use self::admin::Fixed;
pub use self::host_ports::HostPortKey;
pub(crate) use self::host_ports::host_port_keys;
use crate::services::{Claim, ServiceIndex};
pub use objects::ObjectKind;

/// Objects of one kind. A complete list removes the objects that are not in it.
#[derive(Debug, Clone)]
struct Kind<K, T> {
    objects: BTreeMap<K, T>,
    /// While a list is read: keys that were not in it so far.
    unseen: Option<BTreeSet<K>>,
    listed: bool,
}

impl<K, T> Default for Kind<K, T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), unseen: None, listed: false }
    }
}

impl<K: Ord + Clone, T> Kind<K, T> {
    fn relisting(&mut self) {
        self.unseen = Some(self.objects.keys().cloned().collect());
    }

    fn seen(&mut self, key: &K) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(key);
        }
    }

    /// The list is complete; returns the keys that were not in it.
    fn listed(&mut self) -> BTreeSet<K> {
        self.listed = true;
        self.unseen.take().unwrap_or_default()
    }

    /// Stores an object; returns the former version.
    fn put(&mut self, key: K, object: T) -> Option<T> {
        self.seen(&key);
        self.objects.insert(key, object)
    }
}

/// An object with a UID, which tells it from others of the same name.
trait Identified {
    fn uid(&self) -> &str;
}

macro_rules! identified {
    ($($kind:ty),+) => {
        $(impl Identified for $kind {
            fn uid(&self) -> &str {
                &self.uid
            }
        })+
    };
}

identified!(NodeFacts, NamespaceFacts, PodFacts, ServiceFacts, SliceFacts, PolicyFacts, AdminPolicyFacts);

impl<K: Ord + Clone, T: Identified> Kind<K, T> {
    /// Removes an object, unless it has another UID.
    fn remove<Q: Ord + ?Sized>(&mut self, key: &Q, uid: Option<&str>) -> Option<T>
    where
        K: std::borrow::Borrow<Q>,
    {
        if uid.is_some_and(|uid| self.objects.get(key).is_some_and(|object| object.uid() != uid)) {
            return None;
        }
        self.objects.remove(key)
    }
}

/// The facts of all objects, and indexes over them.
#[derive(Debug, Clone, Default)]
pub struct Store {
    nodes: Kind<Name, NodeFacts>,
    chassis: chassis::Holders,
    hosts: hosts::Hosts,
    namespaces: Kind<Name, NamespaceFacts>,
    terminating: namespaces::TerminatingNamespaces,
    pods: Kind<Arc<PodKey>, PodFacts>,
    pods_by_node: BTreeMap<Name, BTreeSet<Arc<PodKey>>>,
    host_ports: host_ports::HostPorts,
    services: Kind<Arc<ObjectKey>, ServiceFacts>,
    slices: Kind<Arc<ObjectKey>, SliceFacts>,
    service_index: ServiceIndex,
    policies: Kind<Arc<ObjectKey>, PolicyFacts>,
    admin_policies: Kind<Arc<ObjectKey>, AdminPolicyFacts>,
    baseline_policies: Kind<Arc<ObjectKey>, AdminPolicyFacts>,
    admin: admin::AdminPolicies,
    selectors: selectors::Selectors,
    /// Interned label sets: many pods have equal ones.
    labels: BTreeSet<Labels>,
}

/// Evaluates an expression with the objects of a kind.
macro_rules! of_kind {
    ($store:expr, $kind:expr, |$objects:ident| $do:expr) => {
        match $kind {
            ObjectKind::Node => {
                let $objects = &mut $store.nodes;
                $do
            }
            ObjectKind::Namespace => {
                let $objects = &mut $store.namespaces;
                $do
            }
            ObjectKind::Pod => {
                let $objects = &mut $store.pods;
                $do
            }
            ObjectKind::Service => {
                let $objects = &mut $store.services;
                $do
            }
            ObjectKind::EndpointSlice => {
                let $objects = &mut $store.slices;
                $do
            }
            ObjectKind::Policy => {
                let $objects = &mut $store.policies;
                $do
            }
            ObjectKind::AdminPolicy => {
                let $objects = &mut $store.admin_policies;
                $do
            }
            ObjectKind::BaselinePolicy => {
                let $objects = &mut $store.baseline_policies;
                $do
            }
        }
    };
}

/// Conversion of a kind's key from and to an [`ObjectKey`].
trait Keyed: Sized {
    fn from_key(key: &Arc<ObjectKey>) -> Self;
    fn to_key(&self) -> Arc<ObjectKey>;
}

impl Keyed for Name {
    fn from_key(key: &Arc<ObjectKey>) -> Self {
        (*key.name).into()
    }

    fn to_key(&self) -> Arc<ObjectKey> {
        Arc::new(ObjectKey::new("", self))
    }
}

impl Keyed for Arc<ObjectKey> {
    fn from_key(key: &Arc<ObjectKey>) -> Self {
        key.clone()
    }

    fn to_key(&self) -> Arc<ObjectKey> {
        self.clone()
    }
}

impl Store {
    /// Whether every kind has been listed once.
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// The kinds that have not been listed yet.
    pub fn missing(&self) -> impl Iterator<Item = ObjectKind> {
        let listed = |kind: &ObjectKind| match kind {
            ObjectKind::Node => self.nodes.listed,
            ObjectKind::Namespace => self.namespaces.listed,
            ObjectKind::Pod => self.pods.listed,
            ObjectKind::Service => self.services.listed,
            ObjectKind::EndpointSlice => self.slices.listed,
            ObjectKind::Policy => self.policies.listed,
            ObjectKind::AdminPolicy => self.admin_policies.listed,
            ObjectKind::BaselinePolicy => self.baseline_policies.listed,
        };
        ObjectKind::ALL.into_iter().filter(move |kind| !listed(kind))
    }

    /// A list of this kind begins.
    pub fn relisting(&mut self, kind: ObjectKind) {
        of_kind!(self, kind, |objects| objects.relisting());
    }

    /// The list of a kind is complete; returns the objects that were not in it.
    pub fn listed(&mut self, kind: ObjectKind) -> Vec<Arc<ObjectKey>> {
        of_kind!(self, kind, |objects| objects.listed().iter().map(Keyed::to_key).collect())
    }

    /// An object that cannot be read exists: its known facts stay.
    pub fn seen_unreadable(&mut self, kind: ObjectKind, key: &Arc<ObjectKey>) {
        of_kind!(self, kind, |objects| objects.seen(&Keyed::from_key(key)));
    }

    /// A node's facts, by name.
    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.objects.get(name)
    }

    /// Ordered by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.objects.values()
    }

    /// A pod's facts.
    pub fn pod(&self, key: &PodKey) -> Option<&PodFacts> {
        self.pods.objects.get(key)
    }

    /// Ordered by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.objects.values()
    }

    /// The pods bound to a node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<PodKey>> {
        self.pods_by_node.get(node).into_iter().flatten()
    }

    /// In the order of their names.
    pub fn pods_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        let first = Arc::new(PodKey::new(namespace, ""));
        let range = self.pods.objects.range((Bound::Included(first), Bound::Unbounded));
        range.map(|(_, pod)| pod).take_while(move |pod| &*pod.key.namespace == namespace)
    }

    /// A Service's facts.
    pub fn service(&self, key: &ObjectKey) -> Option<&ServiceFacts> {
        self.services.objects.get(key)
    }

    /// Ordered by namespace and name.
    pub fn services(&self) -> impl Iterator<Item = &ServiceFacts> {
        self.services.objects.values()
    }

    /// A NetworkPolicy's facts: those of the last valid version where this one is invalid.
    pub fn policy(&self, key: &ObjectKey) -> Option<&PolicyFacts> {
        self.policies.objects.get(key)
    }

    /// Ordered by namespace and name.
    pub fn policies(&self) -> impl Iterator<Item = &PolicyFacts> {
        self.policies.objects.values()
    }

    /// The NetworkPolicies of a namespace.
    pub fn policies_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a PolicyFacts> {
        let first = Arc::new(ObjectKey::new(namespace, ""));
        let range = self.policies.objects.range((Bound::Included(first), Bound::Unbounded));
        range.map(|(_, policy)| policy).take_while(move |policy| &*policy.key.namespace == namespace)
    }

    /// Stores a node; returns the former version.
    pub fn put_node(&mut self, node: NodeFacts) -> Option<NodeFacts> {
        self.hosts.add(&node);
        let (name, after) = (node.name.clone(), node.chassis.clone());
        let before = self.nodes.put(name.clone(), node);
        if let Some(before) = &before {
            self.hosts.remove(before);
        }
        self.claim_chassis(&name, before.as_ref().and_then(|before| before.chassis.as_deref()), after.as_deref());
        before
    }

    /// Removes a node, unless it has another UID.
    pub fn remove_node(&mut self, name: &str, uid: Option<&str>) -> Option<NodeFacts> {
        let gone = self.nodes.remove(name, uid)?;
        self.hosts.remove(&gone);
        self.claim_chassis(&gone.name, gone.chassis.as_deref(), None);
        Some(gone)
    }

    /// The EndpointSlices of a Service.
    pub fn slices_of(&self, service: &ObjectKey) -> impl Iterator<Item = &SliceFacts> {
        self.service_index.slices_of(service).filter_map(|key| self.slices.objects.get(key))
    }

    /// Ordered by namespace and name.
    pub fn slices(&self) -> impl Iterator<Item = &SliceFacts> {
        self.slices.objects.values()
    }

    pub(crate) fn slice(&self, key: &ObjectKey) -> Option<&SliceFacts> {
        self.slices.objects.get(key)
    }

    /// Whether an EndpointSlice equals a former version.
    pub(crate) fn has_slice(&self, key: &ObjectKey, slice: &SliceFacts) -> bool {
        self.slices.objects.get(key) == Some(slice)
    }

    /// The Services that claim an address and port; the first one has it.
    pub fn claimants(&self, claim: Claim) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.service_index.claimants(claim)
    }

    /// The Services that claim any port of an address.
    pub(crate) fn claimants_of(&self, address: IpAddr) -> impl Iterator<Item = &Arc<ObjectKey>> {
        self.service_index.claimants_of(address)
    }

    /// Stores a Service; returns the former version. An invalid one keeps its last valid spec, and with it its claims.
    pub fn put_service(&mut self, mut service: ServiceFacts) -> Option<ServiceFacts> {
        let before = self.services.objects.get(&service.key);
        if let Some(before) = before.filter(|before| service.broken.is_some() && before.uid == service.uid) {
            service.spec = before.spec.clone();
        }
        if let Some(before) = before {
            self.service_index.release(before);
        }
        self.service_index.claim(&service);
        self.services.put(service.key.clone(), service)
    }

    /// Removes a Service, unless it has another UID.
    pub fn remove_service(&mut self, key: &ObjectKey, uid: Option<&str>) -> Option<ServiceFacts> {
        let service = self.services.remove(key, uid)?;
        self.service_index.release(&service);
        Some(service)
    }

    /// Stores an EndpointSlice; returns the former version.
    pub fn put_slice(&mut self, mut slice: SliceFacts) -> Option<SliceFacts> {
        // Share one copy of each node name.
        for node in slice.spec.endpoints.iter_mut().filter_map(|endpoint| endpoint.node.as_mut()) {
            if let Some((shared, _)) = self.nodes.objects.get_key_value(node) {
                *node = shared.clone();
            }
        }
        self.service_index.remove_slice(&slice.key, self.slices.objects.get(&slice.key));
        self.service_index.add_slice(&slice);
        self.slices.put(slice.key.clone(), slice)
    }

    /// Removes an EndpointSlice, unless it has another UID.
    pub fn remove_slice(&mut self, key: &ObjectKey, uid: Option<&str>) -> Option<SliceFacts> {
        let slice = self.slices.remove(key, uid)?;
        self.service_index.remove_slice(key, Some(&slice));
        Some(slice)
    }

    /// Stores a NetworkPolicy; returns the former version. The caller compiles it (`recompile`).
    pub fn put_policy(&mut self, mut policy: PolicyFacts) -> Option<PolicyFacts> {
        if let Some(before) = self.policies.objects.get(&policy.key) {
            policy.keep_last_valid(before);
        }
        self.policies.put(policy.key.clone(), policy)
    }

    /// Removes a NetworkPolicy, unless it has another UID.
    pub fn remove_policy(&mut self, key: &ObjectKey, uid: Option<&str>) -> Option<PolicyFacts> {
        self.policies.remove(key, uid)
    }

    /// Stores a pod; returns the former version.
    pub fn put_pod(&mut self, mut pod: PodFacts) -> Option<PodFacts> {
        // Share one copy of each name.
        if let Some(node) = &pod.node
            && let Some((shared, _)) = self.pods_by_node.get_key_value(node)
        {
            pod.node = Some(shared.clone());
        }
        if let Some((shared, _)) = self.namespaces.objects.get_key_value(&pod.key.namespace)
            && !Arc::ptr_eq(shared, &pod.key.namespace)
        {
            pod.key = Arc::new(PodKey { namespace: shared.clone(), name: pod.key.name.clone() });
        }
        match self.labels.get(&pod.labels) {
            Some(shared) => pod.labels = shared.clone(),
            None => drop(self.labels.insert(pod.labels.clone())),
        }
        self.pods.seen(&pod.key);
        let before = self.pods.objects.remove(&pod.key);
        if let Some(before) = &before {
            self.unindex(before);
        }
        self.renumber(&pod, true);
        self.host_ports.claim(&pod);
        if let Some(node) = &pod.node {
            self.pods_by_node.entry(node.clone()).or_default().insert(pod.key.clone());
        }
        self.pods.objects.insert(pod.key.clone(), pod);
        before
    }

    /// Removes a pod, unless it has another UID.
    pub fn remove_pod(&mut self, key: &PodKey, uid: Option<&str>) -> Option<PodFacts> {
        let pod = self.pods.remove(key, uid)?;
        self.unindex(&pod);
        self.forget_labels(&pod.key.namespace);
        Some(pod)
    }

    fn unindex(&mut self, pod: &PodFacts) {
        self.renumber(pod, false);
        self.host_ports.release(pod);
        // The interned copy and this pod's are the last ones.
        if pod.labels.reference_count() <= 2 {
            self.labels.remove(&pod.labels);
        }
        let Some(node) = &pod.node else { return };
        if let Some(pods) = self.pods_by_node.get_mut(node) {
            pods.remove(&pod.key);
            if pods.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
    }
}
