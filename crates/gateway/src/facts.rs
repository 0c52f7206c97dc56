//! What is known of a node when its gateway is computed.

use std::net::IpAddr;

use netmodel::{InterfaceAddress, Mac, Prefix};

/// How pods reach the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By the node's gateway router, which shares the host's address on the external bridge.
    Shared,
    /// By the host's own routes, through the management port.
    Local,
}

/// Everything that a gateway follows from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// How pods reach the outside.
    pub mode: Mode,
    /// The external bridge.
    pub bridge: Bridge,
    /// The networks.
    pub network: Network,
    /// What can be reached from outside of the cluster, and by the host itself.
    pub exposed: Vec<Exposed>,
}

/// The external bridge, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its name, also that of the host's own port in it.
    pub name: String,
    /// Its MAC, which the gateway router shares.
    pub mac: Mac,
    /// The number of the port that leads outside.
    pub uplink: u32,
    /// The number of the port that leads to the gateway router.
    pub patch: u32,
    /// The host's addresses on it; the first of a family is also the gateway router's.
    pub addresses: Vec<InterfaceAddress>,
    /// The device whose frames the kernel shall not see, because a bridge in userspace gets copies of them.
    pub shielded: Option<String>,
}

/// The networks of the cluster and of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Pods' networks.
    pub cluster: Vec<Prefix>,
    /// Services' networks.
    pub services: Vec<Prefix>,
    /// Networks of the addresses that stand for the host; one of each family.
    pub masquerade: Vec<Prefix>,
    /// The subnets of this node's pods, one of each family.
    pub subnets: Vec<Prefix>,
    /// The management port.
    pub management: String,
    /// The pods' MTU.
    pub mtu: u32,
    /// The UDP port of tunnels.
    pub tunnel_port: u16,
}

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its name, as nftables has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Its name in a flow of a family.
    pub(crate) fn flow_word(self, v6: bool) -> String {
        let six = if v6 { "6" } else { "" };
        format!("{}{six}", self.word())
    }
}

/// Where something is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Under every address of the node, of a family.
    Node {
        /// IPv6.
        v6: bool,
    },
    /// Under one address.
    Address(IpAddr),
}

impl Place {
    /// Whether it is of IPv6.
    pub fn is_ipv6(self) -> bool {
        match self {
            Self::Node { v6 } => v6,
            Self::Address(address) => address.is_ipv6(),
        }
    }

    /// Whether the host alone may reach it.
    pub(crate) fn is_loopback(self) -> bool {
        matches!(self, Self::Address(address) if address.is_loopback())
    }
}

/// One port that clients outside of the cluster and the host itself reach: of a Service, or of a pod that asked for a port
/// of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    /// Where.
    pub place: Place,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// What the host itself is sent to: the Service's address inside the cluster, or the pod. Nothing where the host
    /// shall be as any other client.
    pub inside: Option<(IpAddr, u16)>,
    /// Clients keep their address and get endpoints of this node alone.
    pub keeps_source: bool,
    /// The endpoints on this node; needed where clients keep their address. Without one, clients outside are dropped.
    pub endpoints: Vec<(IpAddr, u16)>,
    /// From where it may be used; empty is from everywhere.
    pub ranges: Vec<Prefix>,
    /// A client stays with its endpoint.
    pub affinity: bool,
}

impl Facts {
    /// The families that this node's pods have, IPv4 first.
    pub(crate) fn families(&self) -> impl Iterator<Item = bool> + '_ {
        [false, true].into_iter().filter(|v6| self.subnet(*v6).is_some())
    }

    pub(crate) fn subnet(&self, v6: bool) -> Option<Prefix> {
        self.network.subnets.iter().copied().find(|subnet| subnet.is_ipv6() == v6)
    }

    /// The host's addresses of a family; the first is also the gateway router's.
    pub(crate) fn addresses(&self, v6: bool) -> impl Iterator<Item = IpAddr> + '_ {
        self.bridge.addresses.iter().map(|own| own.address()).filter(move |own| own.is_ipv6() == v6)
    }

    pub(crate) fn masquerade(&self, v6: bool) -> Option<Masquerade> {
        let network = self.network.masquerade.iter().copied().find(|network| network.is_ipv6() == v6)?;
        Some(Masquerade { router: network.nth(1)?, host: network.nth(2)?, next_hop: network.nth(4)?, network })
    }

    /// The endpoints that the host's kernel sends clients to. Nothing where the gateway router does it.
    ///
    /// With the local gateway, pods answer through the host, which then has to know what was translated. And where an
    /// endpoint is the host itself, answers never pass the gateway router.
    pub(crate) fn by_kernel<'a>(&self, exposed: &'a Exposed) -> Option<Vec<&'a (IpAddr, u16)>> {
        if !exposed.keeps_source || exposed.place.is_loopback() {
            return None;
        }
        if self.mode == Mode::Local {
            return Some(exposed.endpoints.iter().collect());
        }
        let own = |(address, _): &&(IpAddr, u16)| self.addresses(address.is_ipv6()).any(|host| host == *address);
        let own: Vec<_> = exposed.endpoints.iter().filter(own).collect();
        (!own.is_empty()).then_some(own)
    }

    /// Whether something is exposed under a loopback address of IPv4, for which packets from there have to leave by the
    /// management port. The kernel has no such setting for IPv6.
    pub(crate) fn routes_loopback(&self) -> bool {
        self.exposed.iter().any(|exposed| exposed.place.is_loopback() && !exposed.place.is_ipv6())
    }

    /// What is exposed in the families that there are, in one order and without repetition.
    pub(crate) fn sorted(&self) -> Vec<&Exposed> {
        let mut sorted: Vec<&Exposed> =
            self.exposed.iter().filter(|exposed| self.subnet(exposed.place.is_ipv6()).is_some()).collect();
        sorted.sort_by_key(|exposed| (exposed.place, exposed.protocol, exposed.port));
        sorted.dedup_by_key(|exposed| (exposed.place, exposed.protocol, exposed.port));
        sorted
    }
}

/// Addresses that stand for the two ends of the link between the host and its gateway router, which share one address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Masquerade {
    /// The gateway router, to the host.
    pub(crate) router: IpAddr,
    /// The host, to the gateway router.
    pub(crate) host: IpAddr,
    /// The next hop of both.
    pub(crate) next_hop: IpAddr,
    /// Their network.
    pub(crate) network: Prefix,
}
