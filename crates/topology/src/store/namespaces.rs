//! Namespaces, and those that are on their way out: pods stay what they were in the eyes of policies until they are gone.

use std::collections::BTreeMap;

use super::Store;
use crate::identity::Name;
use crate::objects::{Labels, NamespaceFacts};

/// Namespaces that are going, or have gone before their pods were seen to go.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaving {
    /// The identities of those that are being deleted, as the API said before the watch did.
    doomed: BTreeMap<Name, Box<str>>,
    /// The labels that gone ones had, as long as there are pods of them.
    labels: BTreeMap<Name, Labels>,
}

impl Leaving {
    pub(super) fn with_labels(&self) -> impl Iterator<Item = (&Name, &Labels)> {
        self.labels.iter()
    }
}

impl Store {
    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.objects.get(name)
    }

    /// All namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &NamespaceFacts> {
        self.namespaces.objects.values()
    }

    /// Puts a namespace; returns what it was.
    pub fn put_namespace(&mut self, namespace: NamespaceFacts) -> Option<NamespaceFacts> {
        self.leaving.labels.remove(&namespace.name);
        if self.leaving.doomed.get(&namespace.name).is_some_and(|doomed| *doomed != namespace.uid) {
            self.leaving.doomed.remove(&namespace.name);
        }
        self.namespaces.put(namespace.name.clone(), namespace)
    }

    /// Removes a namespace, unless it is another one of the same name.
    pub fn remove_namespace(&mut self, name: &str, uid: Option<&str>) -> Option<NamespaceFacts> {
        let gone = self.namespaces.remove(name, uid)?;
        self.leaving.doomed.remove(name);
        if self.pods_in(name).next().is_some() {
            self.leaving.labels.insert(gone.name.clone(), gone.labels.clone());
        }
        Some(gone)
    }

    /// A pod of a namespace is gone: it may have been the last one.
    pub(super) fn forget_labels(&mut self, namespace: &str) {
        if self.leaving.labels.contains_key(namespace) && self.pods_in(namespace).next().is_none() {
            self.leaving.labels.remove(namespace);
        }
    }

    /// The namespace of this identity is being deleted, though the watch does not say so yet.
    pub(crate) fn doom(&mut self, name: &Name, uid: &str) {
        self.leaving.doomed.insert(name.clone(), uid.into());
    }

    /// Whether a namespace is there to stay.
    pub(crate) fn is_alive(&self, name: &str) -> bool {
        self.namespace(name).is_some_and(|namespace| !namespace.terminating && !self.leaving.doomed.contains_key(name))
    }

    /// Whether a namespace was ever seen, of those that pods are in.
    pub(super) fn knows_labels_of(&self, namespace: &str) -> bool {
        self.namespace(namespace).is_some() || self.leaving.labels.contains_key(namespace)
    }

    /// The labels of a namespace, or those it had; none if it was never seen.
    pub(crate) fn labels_of(&self, namespace: &str) -> Labels {
        let known = self.namespace(namespace).map(|namespace| &namespace.labels);
        known.or_else(|| self.leaving.labels.get(namespace)).cloned().unwrap_or_default()
    }
}
