//! The facts by key, with the reverse indexes that tell whom a change concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::identity::{Name, PodKey};
use crate::objects::{NamespaceFacts, NodeFacts, PodFacts};

/// Objects of one kind, with what a list needs to find the ones that are gone.
#[derive(Debug, Clone)]
struct Kind<K, T> {
    objects: BTreeMap<K, T>,
    /// While a list is read: what was not in it yet.
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

    /// The list is complete: what was not in it is gone.
    fn listed(&mut self) -> BTreeSet<K> {
        self.listed = true;
        self.unseen.take().unwrap_or_default()
    }
}

/// The kinds of objects that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Nodes.
    Node,
    /// Namespaces.
    Namespace,
    /// Pods.
    Pod,
}

/// All facts.
#[derive(Debug, Clone, Default)]
pub struct Store {
    nodes: Kind<Name, NodeFacts>,
    namespaces: Kind<Name, NamespaceFacts>,
    pods: Kind<Arc<PodKey>, PodFacts>,
    pods_by_node: BTreeMap<Name, BTreeSet<Arc<PodKey>>>,
}

impl Store {
    /// Whether every kind of object has been listed once.
    pub fn is_complete(&self) -> bool {
        self.nodes.listed && self.namespaces.listed && self.pods.listed
    }

    /// A list of a kind begins.
    pub fn relisting(&mut self, kind: ObjectKind) {
        match kind {
            ObjectKind::Node => self.nodes.relisting(),
            ObjectKind::Namespace => self.namespaces.relisting(),
            ObjectKind::Pod => self.pods.relisting(),
        }
    }

    /// An object was seen that cannot be read: it is there, and what was known of it stays.
    pub fn seen_unreadable(&mut self, kind: ObjectKind, namespace: &str, name: &str) {
        match kind {
            ObjectKind::Node => self.nodes.seen(&name.into()),
            ObjectKind::Namespace => self.namespaces.seen(&name.into()),
            ObjectKind::Pod => self.pods.seen(&Arc::new(PodKey::new(namespace, name))),
        }
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.objects.get(name)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.objects.values()
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.objects.get(name)
    }

    /// All namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &NamespaceFacts> {
        self.namespaces.objects.values()
    }

    /// A pod.
    pub fn pod(&self, key: &PodKey) -> Option<&PodFacts> {
        self.pods.objects.get(key)
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.objects.values()
    }

    /// The pods that were given to a node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<PodKey>> {
        self.pods_by_node.get(node).into_iter().flatten()
    }

    /// The pods of a namespace.
    pub fn pods_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        let first = Arc::new(PodKey::new(namespace, ""));
        let range = self.pods.objects.range((Bound::Included(first), Bound::Unbounded));
        range.map(|(_, pod)| pod).take_while(move |pod| &*pod.key.namespace == namespace)
    }

    /// Puts a node; returns what it was.
    pub fn put_node(&mut self, node: NodeFacts) -> Option<NodeFacts> {
        self.nodes.seen(&node.name);
        self.nodes.objects.insert(node.name.clone(), node)
    }

    /// Removes a node, unless it is another one of the same name.
    pub fn remove_node(&mut self, name: &str, uid: Option<&str>) -> Option<NodeFacts> {
        if uid.is_some_and(|uid| self.node(name).is_some_and(|node| &*node.uid != uid)) {
            return None;
        }
        self.nodes.objects.remove(name)
    }

    /// Puts a namespace; returns what it was.
    pub fn put_namespace(&mut self, namespace: NamespaceFacts) -> Option<NamespaceFacts> {
        self.namespaces.seen(&namespace.name);
        self.namespaces.objects.insert(namespace.name.clone(), namespace)
    }

    /// Removes a namespace, unless it is another one of the same name.
    pub fn remove_namespace(&mut self, name: &str, uid: Option<&str>) -> Option<NamespaceFacts> {
        if uid.is_some_and(|uid| self.namespace(name).is_some_and(|namespace| &*namespace.uid != uid)) {
            return None;
        }
        self.namespaces.objects.remove(name)
    }

    /// Puts a pod; returns what it was.
    pub fn put_pod(&mut self, mut pod: PodFacts) -> Option<PodFacts> {
        // One copy of each name, however many pods share it.
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
        self.pods.seen(&pod.key);
        let before = self.pods.objects.remove(&pod.key);
        if let Some(before) = &before {
            self.unindex(before);
        }
        if let Some(node) = &pod.node {
            self.pods_by_node.entry(node.clone()).or_default().insert(pod.key.clone());
        }
        self.pods.objects.insert(pod.key.clone(), pod);
        before
    }

    /// Removes a pod, unless it is another one of the same name.
    pub fn remove_pod(&mut self, key: &PodKey, uid: Option<&str>) -> Option<PodFacts> {
        if uid.is_some_and(|uid| self.pod(key).is_some_and(|pod| &*pod.uid != uid)) {
            return None;
        }
        let pod = self.pods.objects.remove(key)?;
        self.unindex(&pod);
        Some(pod)
    }

    fn unindex(&mut self, pod: &PodFacts) {
        let Some(node) = &pod.node else { return };
        if let Some(pods) = self.pods_by_node.get_mut(node) {
            pods.remove(&pod.key);
            if pods.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
    }

    /// The list of nodes is complete; these are gone.
    pub fn nodes_listed(&mut self) -> BTreeSet<Name> {
        self.nodes.listed()
    }

    /// The list of namespaces is complete; these are gone.
    pub fn namespaces_listed(&mut self) -> BTreeSet<Name> {
        self.namespaces.listed()
    }

    /// The list of pods is complete; these are gone.
    pub fn pods_listed(&mut self) -> BTreeSet<Arc<PodKey>> {
        self.pods.listed()
    }
}
