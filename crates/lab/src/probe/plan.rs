//! What to probe: paths from a network namespace to an address, and the echo servers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use netmodel::Prefix;
use serde::Serialize;

/// A network namespace that sends or receives packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// As in the report, such as `web-1`.
    pub name: String,
    /// Path of the namespace's file on the host.
    pub file: PathBuf,
    /// Whether only the prober opens connections there: then all retransmissions are its own.
    pub own: bool,
}

/// Protocol and connection pattern of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Numbered messages on one long-lived TCP connection.
    TcpEstablished,
    /// A TCP connection for each packet.
    TcpNew,
    /// Datagrams, with a new source port every second.
    Udp,
    /// Echo requests, with a new identifier every second.
    Icmp,
}

impl Protocol {
    /// As in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TcpEstablished => "TCP established",
            Self::TcpNew => "TCP new",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
        }
    }

    /// A TCP connection costs about as much as three round trips of the others.
    pub(super) fn weight(self) -> u32 {
        match self {
            Self::TcpNew => 1,
            _ => 3,
        }
    }
}

/// The server at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The prober's own echo server, or the kernel (ICMP).
    Echo,
    /// agnhost's `netexec`: HTTP `/clientip` for [`Protocol::TcpNew`], `echo` for [`Protocol::Udp`].
    Netexec,
}

/// Packets between one client and one address, by one protocol.
#[derive(Debug, Clone)]
pub struct PathSpec {
    /// For the report: `pod → pod, other node`.
    pub route: String,
    /// Also the connection pattern.
    pub protocol: Protocol,
    /// The client's network.
    pub from: Network,
    /// The server's address. ICMP ignores the port.
    pub to: SocketAddr,
    /// Which server listens there.
    pub server: Server,
    /// The client addresses that the server may see; any if empty.
    pub sources: Vec<Prefix>,
    /// Whether it shares machines and switches with the other paths but bypasses OVN. Losses of other paths while it
    /// stalls are caused by the host.
    pub reference: bool,
}

impl PathSpec {
    /// Route and protocol.
    pub fn name(&self) -> String {
        format!("{}, {}", self.route, self.protocol.as_str())
    }

    pub(super) fn allows_source(&self, client: IpAddr) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|source| source.contains(client))
    }
}

/// What a prober sends.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Each gets a client of its own.
    pub paths: Vec<PathSpec>,
    /// Echo servers to start, each for TCP and UDP.
    pub servers: Vec<(Network, SocketAddr)>,
    /// Packets per second, over all paths.
    pub rate: u32,
}

pub(crate) const RATE: u32 = 1000;
