//! Namespaces and names of objects.

use std::fmt;
use std::sync::Arc;

/// A string that many facts share; cheap to clone.
pub type Name = Arc<str>;

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Empty for cluster-scoped kinds.
    pub namespace: Name,
    /// Unique in the namespace among objects of one kind.
    pub name: Box<str>,
}

/// A pod, by namespace and name.
pub type PodKey = ObjectKey;

impl ObjectKey {
    /// `namespace` is empty for cluster-scoped kinds.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Parses `namespace/name`.
    pub fn parse(text: &str) -> Option<Arc<Self>> {
        text.split_once('/').map(|(namespace, name)| Arc::new(Self::new(namespace, name)))
    }

    /// The name of a pod's logical switch port, as OVN-Kubernetes (Go) forms it.
    pub fn port_name(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
