//! Who owns what: owners, the identities of their rows, and the marks that rows carry.
//!
//! A row's identity is computed from its owner's UID and its place in what the owner makes, never looked up: whoever
//! computes it twice gets it twice the same, so a write that is repeated makes no second row, and a pod that was made
//! again under its name is another row.

use std::fmt;
use std::sync::Arc;

use ovn_schema::StringMap;
use ovsdb::uuid::Uuid;
use sha2::{Digest, Sha256};

/// A name that many facts share.
pub type Name = Arc<str>;

/// The value of [`OWNER_CONTROLLER`] on every row that is ours.
pub const OURS: &str = "ovnkube";
/// The mark: whose row it is.
pub const OWNER_CONTROLLER: &str = "k8s.ovn.org/owner-controller";
/// The kind of object that the row was made for.
pub const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
/// The object's name, with its namespace where it has one.
pub const OWNER_NAME: &str = "k8s.ovn.org/name";
/// On an adopted row, whose identity is not computed: the identity that it stands for.
pub const STANDS_FOR: &str = "k8s.ovn.org/id";

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

/// An object that rows are made for. The order is the order in which they must be made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// What the whole cluster shares.
    Cluster,
    /// A node.
    Node(Name),
    /// A namespace.
    Namespace(Name),
    /// Pods that a policy speaks of, by the words of its selectors: their addresses and their ports.
    Selector(Name),
    /// A NetworkPolicy.
    Policy(Arc<ObjectKey>),
    /// An AdminNetworkPolicy.
    AdminPolicy(Name),
    /// The BaselineAdminNetworkPolicy.
    BaselinePolicy(Name),
    /// A pod.
    Pod(Arc<PodKey>),
    /// A Service.
    Service(Arc<ObjectKey>),
    /// What was taken over from another controller and belongs to nobody.
    Adopted,
}

impl Owner {
    /// What the mark says of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Node(_) => "Node",
            Self::Namespace(_) => "Namespace",
            Self::Selector(_) => "Selector",
            Self::Pod(_) => "Pod",
            Self::Service(_) => "Service",
            Self::Policy(_) => "NetworkPolicy",
            Self::AdminPolicy(_) => "AdminNetworkPolicy",
            Self::BaselinePolicy(_) => "BaselineAdminNetworkPolicy",
            Self::Adopted => "Adopted",
        }
    }

    /// What the mark says of its name.
    pub fn name(&self) -> String {
        match self {
            Self::Cluster => "cluster".into(),
            Self::Node(name)
            | Self::Namespace(name)
            | Self::Selector(name)
            | Self::AdminPolicy(name)
            | Self::BaselinePolicy(name) => name.to_string(),
            Self::Pod(key) | Self::Service(key) | Self::Policy(key) => key.to_string(),
            Self::Adopted => "adopted".into(),
        }
    }

    /// The owner that a mark names.
    pub fn from_mark(kind: &str, name: &str) -> Option<Self> {
        match kind {
            "Cluster" => Some(Self::Cluster),
            "Node" => Some(Self::Node(name.into())),
            "Namespace" => Some(Self::Namespace(name.into())),
            "Selector" => Some(Self::Selector(name.into())),
            "Pod" => ObjectKey::parse(name).map(Self::Pod),
            "Service" => ObjectKey::parse(name).map(Self::Service),
            "NetworkPolicy" => ObjectKey::parse(name).map(Self::Policy),
            "AdminNetworkPolicy" => Some(Self::AdminPolicy(name.into())),
            "BaselineAdminNetworkPolicy" => Some(Self::BaselinePolicy(name.into())),
            _ => None,
        }
    }

    /// The marks of its rows, with what else a row's `external_ids` shall hold.
    pub fn mark(&self, more: &[(&str, &str)]) -> StringMap {
        let mut marks: StringMap = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        marks.insert(OWNER_CONTROLLER.into(), OURS.into());
        marks.insert(OWNER_TYPE.into(), self.kind().into());
        marks.insert(OWNER_NAME.into(), self.name());
        marks
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster's own network"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Selector(words) => write!(f, "the pods {words}"),
            Self::Pod(key) => write!(f, "pod {key}"),
            Self::Service(key) => write!(f, "service {key}"),
            Self::Policy(key) => write!(f, "network policy {key}"),
            Self::AdminPolicy(name) => write!(f, "admin network policy {name}"),
            Self::BaselinePolicy(name) => write!(f, "baseline admin network policy {name}"),
            Self::Adopted => f.write_str("what another controller left"),
        }
    }
}

/// One row of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// The table.
    pub table: &'static str,
    /// The row.
    pub uuid: Uuid,
}

/// One set-valued column of one row, to which several owners may contribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnRef {
    /// The row.
    pub row: RowId,
    /// The column.
    pub column: &'static str,
}

/// The identity of a row: a hash of its table, of who owns it, and of its place among the owner's rows. The table is in
/// it because two rows of different tables must not share an identity (the server would take one for the other).
pub fn row_uuid(table: &str, kind: &str, owner: &str, key: &str) -> Uuid {
    let mut hash = Sha256::new();
    for part in ["ovnkube", table, kind, owner, key] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    // Version 8: a hash of our own making.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes(bytes)
}

/// Whether an identity looks like one that was computed here: for the tables that have no room for a mark.
pub fn is_computed(uuid: Uuid) -> bool {
    let bytes = uuid.as_bytes();
    bytes[6] & 0xf0 == 0x80 && bytes[8] & 0xc0 == 0x80
}

/// A short name for what has no name of its own, such as an address set: `a` and digits, as tools know them.
pub fn hashed_name(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let mut number = [0; 8];
    number.copy_from_slice(&digest[..8]);
    format!("a{}", u64::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_differ_by_every_part_and_are_stable() {
        let one = row_uuid("Logical_Switch", "Node", "uid-1", "switch");
        assert_eq!(one, row_uuid("Logical_Switch", "Node", "uid-1", "switch"));
        assert!(is_computed(one));
        for other in [
            row_uuid("Logical_Router", "Node", "uid-1", "switch"),
            row_uuid("Logical_Switch", "Pod", "uid-1", "switch"),
            row_uuid("Logical_Switch", "Node", "uid-2", "switch"),
            row_uuid("Logical_Switch", "Node", "uid-1", "switch2"),
            // Parts do not run into each other.
            row_uuid("Logical_Switch", "Node", "uid-1switch", ""),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_mark_leads_back_to_its_owner() {
        for owner in [
            Owner::Cluster,
            Owner::Node("n1".into()),
            Owner::Namespace("default".into()),
            Owner::Selector("namespace default, all pods".into()),
            Owner::Pod(Arc::new(PodKey::new("default", "web-0"))),
            Owner::Service(Arc::new(ObjectKey::new("default", "web"))),
            Owner::Policy(Arc::new(ObjectKey::new("default", "deny"))),
            Owner::AdminPolicy("first".into()),
            Owner::BaselinePolicy("default".into()),
        ] {
            let mark = owner.mark(&[("pod", "true")]);
            assert_eq!(Owner::from_mark(&mark[OWNER_TYPE], &mark[OWNER_NAME]), Some(owner));
            assert_eq!(mark[OWNER_CONTROLLER], OURS);
            assert_eq!(mark["pod"], "true");
        }
        assert_eq!(Owner::from_mark("Pod", "no-namespace"), None);
    }
}
