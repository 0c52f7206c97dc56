//! Namespaces, and terminating ones: policies select their pods as before until the pods are gone.

use std::collections::BTreeMap;

use objects::{Labels, Name, NamespaceFacts};

use super::Store;

/// Namespaces that are terminating, or were deleted before their pods' DELETE events arrived.
#[derive(Debug, Clone, Default)]
pub(super) struct TerminatingNamespaces {
    /// UIDs of namespaces that a namespace check found terminating, before the watch showed it.
    uids: BTreeMap<Name, Box<str>>,
    /// Labels of deleted namespaces, as long as pods of them exist.
    labels: BTreeMap<Name, Labels>,
}

impl TerminatingNamespaces {
    pub(super) fn with_labels(&self) -> impl Iterator<Item = (&Name, &Labels)> {
        self.labels.iter()
    }
}

impl Store {
    /// A namespace's facts, by name.
    pub fn namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.objects.get(name)
    }

    /// Ordered by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &NamespaceFacts> {
        self.namespaces.objects.values()
    }

    /// Stores a namespace; returns the former version.
    pub fn put_namespace(&mut self, namespace: NamespaceFacts) -> Option<NamespaceFacts> {
        self.terminating.labels.remove(&namespace.name);
        if self.terminating.uids.get(&namespace.name).is_some_and(|uid| *uid != namespace.uid) {
            self.terminating.uids.remove(&namespace.name);
        }
        self.namespaces.put(namespace.name.clone(), namespace)
    }

    /// Removes a namespace, unless it has another UID.
    pub fn remove_namespace(&mut self, name: &str, uid: Option<&str>) -> Option<NamespaceFacts> {
        let gone = self.namespaces.remove(name, uid)?;
        self.terminating.uids.remove(name);
        if self.pods_in(name).next().is_some() {
            self.terminating.labels.insert(gone.name.clone(), gone.labels.clone());
        }
        Some(gone)
    }

    /// A pod was removed: forgets the labels of a deleted namespace with its last pod.
    pub(super) fn forget_labels(&mut self, namespace: &str) {
        if self.terminating.labels.contains_key(namespace) && self.pods_in(namespace).next().is_none() {
            self.terminating.labels.remove(namespace);
        }
    }

    /// The namespace with this UID is terminating, though the watch does not show it yet.
    pub(crate) fn mark_terminating(&mut self, name: &Name, uid: &str) {
        self.terminating.uids.insert(name.clone(), uid.into());
    }

    /// Whether a namespace exists and is not terminating.
    pub(crate) fn is_active(&self, name: &str) -> bool {
        self.namespace(name)
            .is_some_and(|namespace| !namespace.terminating && !self.terminating.uids.contains_key(name))
    }

    /// Whether the labels of a namespace are known, of those that have pods.
    pub(super) fn knows_labels_of(&self, namespace: &str) -> bool {
        self.namespace(namespace).is_some() || self.terminating.labels.contains_key(namespace)
    }

    /// The labels of a namespace, or those that it had; empty if it was never seen.
    pub fn labels_of(&self, namespace: &str) -> Labels {
        let known = self.namespace(namespace).map(|namespace| &namespace.labels);
        known.or_else(|| self.terminating.labels.get(namespace)).cloned().unwrap_or_default()
    }
}
