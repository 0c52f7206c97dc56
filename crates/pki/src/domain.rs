//! The two CAs, which issue for different programs and are trusted by different ones, and the objects that hold them.

use std::fmt;

use serde::Serialize;

/// For whom a CA issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// Databases and controllers: one certificate, in Secret `ovn-cert`. Everyone trusts it.
    ControlPlane,
    /// Nodes: a certificate for each, on request. Only the southbound listeners for nodes trust it.
    Nodes,
}

impl Domain {
    /// Both. That of nodes first: pods of the databases wait for the certificate of the control plane, and then find both.
    pub const ALL: [Self; 2] = [Self::Nodes, Self::ControlPlane];

    /// Name of its Secret and of its ConfigMap.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => crate::CA_SECRET,
            Self::Nodes => crate::NODE_CA_SECRET,
        }
    }

    /// Start of the common name of its CAs; the time of their creation and a part of their key's hash follow.
    pub(crate) fn ca_name(self) -> &'static str {
        match self {
            Self::ControlPlane => "ovn-ca@",
            Self::Nodes => "ovn-node-ca@",
        }
    }

    pub(crate) fn of_ca_name(common_name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|domain| common_name.starts_with(domain.ca_name()))
    }

    /// The Secret of its CAs.
    pub fn secret(self) -> Object {
        match self {
            Self::ControlPlane => Object::CaSecret,
            Self::Nodes => Object::NodeCaSecret,
        }
    }

    /// The ConfigMap of its bundle.
    pub fn config_map(self) -> Object {
        match self {
            Self::ControlPlane => Object::CaConfigMap,
            Self::Nodes => Object::NodeCaConfigMap,
        }
    }

    /// Where it is written what its CAs have issued.
    pub fn issued(self) -> Object {
        match self {
            Self::ControlPlane => Object::LeafSecret,
            Self::Nodes => Object::ChassisConfigMap,
        }
    }
}

/// The objects that hold certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// Secret `ovn-ca`.
    CaSecret,
    /// ConfigMap `ovn-ca`.
    CaConfigMap,
    /// Secret `ovn-cert`.
    LeafSecret,
    /// Secret `ovn-node-ca`.
    NodeCaSecret,
    /// ConfigMap `ovn-node-ca`.
    NodeCaConfigMap,
    /// ConfigMap `ovn-chassis`.
    ChassisConfigMap,
}

impl Object {
    /// Its kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::CaSecret | Self::LeafSecret | Self::NodeCaSecret => "Secret",
            Self::CaConfigMap | Self::NodeCaConfigMap | Self::ChassisConfigMap => "ConfigMap",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::CaSecret | Self::CaConfigMap => Domain::ControlPlane.name(),
            Self::NodeCaSecret | Self::NodeCaConfigMap => Domain::Nodes.name(),
            Self::LeafSecret => crate::LEAF_SECRET,
            Self::ChassisConfigMap => crate::CHASSIS_CONFIG_MAP,
        }
    }
}

impl fmt::Display for Object {
    /// Kind and name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}
