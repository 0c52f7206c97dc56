//! OVN's two central databases and the names that go with them.

use std::path::{Path, PathBuf};

/// One of OVN's two central databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Logical networks, written by the controller.
    Northbound,
    /// Logical flows, port bindings and chassis, written by ovn-northd and the nodes.
    Southbound,
}

impl Kind {
    /// Northbound first, as in all listings.
    pub const BOTH: [Self; 2] = [Self::Northbound, Self::Southbound];

    /// `nb` or `sb`, as in file names and on the command line.
    pub fn short(self) -> &'static str {
        match self {
            Self::Northbound => "nb",
            Self::Southbound => "sb",
        }
    }

    /// The name of the schema, which is also the name that the server has for the database.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Northbound => "OVN_Northbound",
            Self::Southbound => "OVN_Southbound",
        }
    }

    /// The table with the one row of settings.
    pub fn global_table(self) -> &'static str {
        match self {
            Self::Northbound => "NB_Global",
            Self::Southbound => "SB_Global",
        }
    }

    /// The word in log lines and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Northbound => "northbound",
            Self::Southbound => "southbound",
        }
    }

    /// The database file in its data directory, by the name that OVN's own scripts give it.
    pub fn file(self, directory: &Path) -> PathBuf {
        directory.join(format!("ovn{}_db.db", self.short()))
    }

    /// The schema file of OVN's packages.
    pub fn schema_file(self, directory: &Path) -> PathBuf {
        directory.join(format!("ovn-{}.ovsschema", self.short()))
    }

    /// The control socket, where `ovn-appctl` users look for it.
    pub fn control_socket(self, directory: &Path) -> PathBuf {
        directory.join(format!("ovn{}_db.ctl", self.short()))
    }

    /// The socket for clients on the same host, e.g. `ovn-nbctl`.
    pub fn socket(self, directory: &Path) -> PathBuf {
        directory.join(format!("ovn{}_db.sock", self.short()))
    }

    /// The file of [`crate::manager_status::ManagerStatus`].
    pub fn manager_status(self, directory: &Path) -> PathBuf {
        directory.join(format!("ovn{}_db.manager.json", self.short()))
    }

    /// Southbound for northbound, and the reverse.
    pub fn other(self) -> Self {
        match self {
            Self::Northbound => Self::Southbound,
            Self::Southbound => Self::Northbound,
        }
    }

    /// The port for clients, unless configured.
    pub fn port(self) -> u16 {
        match self {
            Self::Northbound => 6641,
            Self::Southbound => 6642,
        }
    }

    /// The name of that port in a Service: `north` or `south`.
    pub fn port_name(self) -> &'static str {
        match self {
            Self::Northbound => "north",
            Self::Southbound => "south",
        }
    }

    /// The name of the port for clients that are not nodes, if that is another one.
    pub fn control_port_name(self) -> &'static str {
        match self {
            Self::Northbound => "north-control",
            Self::Southbound => "south-control",
        }
    }

    /// The port of the manager's reports and metrics, as the manifests set it.
    pub(crate) fn status_port(self) -> u16 {
        match self {
            Self::Northbound => 9104,
            Self::Southbound => 9105,
        }
    }

    /// The port between raft members, unless configured.
    pub fn raft_port(self) -> u16 {
        match self {
            Self::Northbound => 6643,
            Self::Southbound => 6644,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
