//! Owners, the UUIDs of their rows, and the marks of rows.
//!
//! A row's UUID is computed from its owner's UID and a key, never looked up: a repeated write creates no second row, and a
//! recreated pod of the same name has another row.

use std::fmt;
use std::sync::Arc;

use netmodel::Family;
use objects::{Name, ObjectKey, PodKey};
use ovn_schema::StringMap;
use ovsdb::uuid::Uuid;
use sha2::{Digest, Sha256};

/// The value of [`OWNER_CONTROLLER`] on our rows.
pub const OURS: &str = "ovnkube";
/// `external_ids` key: the controller that owns the row.
pub const OWNER_CONTROLLER: &str = "k8s.ovn.org/owner-controller";
/// `external_ids` key: the owner's kind, such as `Pod`.
pub const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
/// `external_ids` key: the owner's name, with its namespace if it has one.
pub const OWNER_NAME: &str = "k8s.ovn.org/name";
/// `external_ids` key of an adopted row: the UUID that we compute for it.
pub const STANDS_FOR: &str = "k8s.ovn.org/id";

/// The object, or the cluster itself, that rows belong to. Ordered by dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Rows that the whole cluster shares.
    Cluster,
    /// The Node of this name.
    Node(Name),
    /// The Namespace of this name.
    Namespace(Name),
    /// A selector of policies, by its canonical text: the group of its ports, or the sets of its addresses.
    Selector(Name),
    /// A NetworkPolicy, by namespace and name.
    Policy(Arc<ObjectKey>),
    /// An AdminNetworkPolicy, by name.
    AdminPolicy(Name),
    /// A BaselineAdminNetworkPolicy, by name.
    BaselinePolicy(Name),
    /// By namespace and name.
    Pod(Arc<PodKey>),
    /// By namespace and name.
    Service(Arc<ObjectKey>),
    /// Leftovers of another controller.
    Adopted,
}

impl Owner {
    /// The value of [`OWNER_TYPE`].
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

    /// Value of the key [`OWNER_NAME`] in `external_ids`.
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

    /// The owner that marks name; none if they are invalid.
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

    /// The `external_ids` of its rows: the marks, and `more`.
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
            Self::Cluster => f.write_str("cluster"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Selector(words) => write!(f, "selector {words}"),
            Self::Pod(key) => write!(f, "pod {key}"),
            Self::Service(key) => write!(f, "service {key}"),
            Self::Policy(key) => write!(f, "network policy {key}"),
            Self::AdminPolicy(name) => write!(f, "admin network policy {name}"),
            Self::BaselinePolicy(name) => write!(f, "baseline admin network policy {name}"),
            Self::Adopted => f.write_str("leftovers of another controller"),
        }
    }
}

/// Identifies a row across tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// As the schema names it.
    pub table: &'static str,
    /// Computed, or that of an adopted row.
    pub uuid: Uuid,
}

/// A set-valued column of a row, to which several owners may contribute members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnRef {
    /// The row that has the set.
    pub row: RowId,
    /// As the schema names it.
    pub column: &'static str,
}

/// The UUID of a row: a hash of its table, its owner, and its key among the owner's rows. Includes the table because rows
/// of different tables must not share a UUID: the server would confuse them.
pub fn row_uuid(table: &str, kind: &str, owner: &str, key: &str) -> Uuid {
    let mut hash = Sha256::new();
    for part in ["ovnkube", table, kind, owner, key] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    // UUID version 8: custom.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes(bytes)
}

/// The key of a row that its owner has once per family.
pub fn family_key(key: &str, family: Family) -> String {
    format!("{key} {}", family.short())
}

/// Whether a UUID looks like one of [`row_uuid`]: for tables without a column for marks.
pub fn is_computed(uuid: Uuid) -> bool {
    let bytes = uuid.as_bytes();
    bytes[6] & 0xf0 == 0x80 && bytes[8] & 0xc0 == 0x80
}

/// A short name for rows such as address sets: `a` and digits, as OVN-Kubernetes (Go) names them.
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
            // Parts are separated.
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
