//! What is probed: paths from a network namespace to an address, and the echo servers that answer.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use netmodel::Prefix;
use serde::Serialize;

/// A network namespace with a name for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// The file that it is bound to.
    pub file: PathBuf,
    /// Whether nothing but the prober opens connections there. Retransmitted segments are then the prober's own.
    pub own: bool,
}

/// How a path is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Numbered messages on one TCP connection that stays.
    TcpEstablished,
    /// One TCP connection for each number.
    TcpNew,
    /// Datagrams, with a new source port every second.
    Udp,
    /// Echo requests, with a new identifier every second.
    Icmp,
}

impl Protocol {
    /// Its name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TcpEstablished => "TCP established",
            Self::TcpNew => "TCP new",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
        }
    }

    /// A connection costs about as much as three of the others' round trips.
    pub(super) fn weight(self) -> u32 {
        match self {
            Self::TcpNew => 1,
            _ => 3,
        }
    }
}

/// What the server at the end of a path speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The prober's own echo server, or the kernel (ICMP).
    Echo,
    /// agnhost's `netexec`: HTTP `/clientip` for [`Protocol::TcpNew`], `echo` for [`Protocol::Udp`].
    Netexec,
}

/// One path.
#[derive(Debug, Clone)]
pub struct PathSpec {
    /// Where it leads, for people: `pod → pod, other node`.
    pub route: String,
    /// How it is used.
    pub protocol: Protocol,
    /// Where it begins.
    pub from: Network,
    /// Where it ends. ICMP ignores the port.
    pub to: SocketAddr,
    /// What answers there.
    pub server: Server,
    /// The client addresses that the server may see; any if empty.
    pub sources: Vec<Prefix>,
    /// Whether it shares machines and switches with the others but not what is measured. What other paths lose while it has
    /// trouble is the machine's doing.
    pub reference: bool,
}

impl PathSpec {
    /// Route and protocol.
    pub fn name(&self) -> String {
        format!("{}, {}", self.route, self.protocol.as_str())
    }

    /// Whether the server may see this client address.
    pub(super) fn promises(&self, client: IpAddr) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|source| source.contains(client))
    }
}

/// Everything that a prober does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The paths.
    pub paths: Vec<PathSpec>,
    /// Echo servers, each for TCP and UDP.
    pub servers: Vec<(Network, SocketAddr)>,
    /// Packets per second in sum.
    pub rate: u32,
}

/// The rate that is meant when nobody says another.
pub const RATE: u32 = 1000;
