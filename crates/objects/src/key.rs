//! Keys of objects: namespace and name.

use std::fmt;
use std::sync::Arc;

/// A name that many facts share.
pub type Name = Arc<str>;

/// An object's namespace and name; the namespace of one that has none is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: Name,
    /// The object.
    pub name: Box<str>,
}

/// A pod's namespace and name.
pub type PodKey = ObjectKey;

impl ObjectKey {
    /// A key of these names.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Reads `namespace/name`.
    pub fn parse(text: &str) -> Option<Arc<Self>> {
        text.split_once('/').map(|(namespace, name)| Arc::new(Self::new(namespace, name)))
    }

    /// The name of a pod's logical port.
    pub fn port_name(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
