//! Inputs from which a gateway is computed.

use std::net::IpAddr;

use netmodel::{Family, GatewayMode, InterfaceAddress, Mac, Masquerade, Prefix};

/// Everything that the desired state depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Path of pods' egress.
    pub mode: GatewayMode,
    /// As it is found on the host.
    pub bridge: Bridge,
    /// Networks of the cluster and of this node.
    pub network: Network,
    /// Ports that clients outside the cluster, and the host itself, can reach.
    pub exposed: Vec<ExposedPort>,
}

/// The external bridge with its ports and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Also the name of its internal port, which is the host's device.
    pub name: String,
    /// Shared with the gateway router.
    pub mac: Mac,
    /// OpenFlow number of the port to the physical network.
    pub uplink: u32,
    /// OpenFlow number of the patch port to the gateway router.
    pub patch: u32,
    /// The host's addresses; the first of each family is also the gateway router's.
    pub addresses: Vec<InterfaceAddress>,
    /// Uplink device whose frames the kernel must drop: a userspace bridge only gets copies of them.
    pub isolated_uplink: Option<String>,
}

/// Networks and limits that all parts of the gateway use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Networks of the pods of all nodes (`cluster-subnets`).
    pub cluster: Vec<Prefix>,
    /// Networks of ClusterIPs (`service-cidrs`).
    pub services: Vec<Prefix>,
    /// Masquerade networks, one of each family: their addresses stand for the host and its gateway router.
    pub masquerade: Vec<Prefix>,
    /// The subnets of this node's pods, one of each family.
    pub subnets: Vec<Prefix>,
    /// Device name of the management port.
    pub management: String,
    /// MTU of pods, in bytes.
    pub mtu: u32,
    /// UDP port of Geneve.
    pub tunnel_port: u16,
}

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Protocol number 6.
    Tcp,
    /// Protocol number 17.
    Udp,
    /// Protocol number 132.
    Sctp,
}

impl Protocol {
    /// Keyword of nftables, and of IPv4 flows.
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Match of `ovs-ofctl`: `tcp`, `tcp6`, …
    pub(crate) fn flow_keyword(self, family: Family) -> String {
        match family {
            Family::V4 => self.keyword().to_owned(),
            Family::V6 => format!("{}6", self.keyword()),
        }
    }
}

/// Address at which a port is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenAddress {
    /// Every address of the node, of one family.
    Node(Family),
    /// This address only, such as an external IP.
    Address(IpAddr),
}

impl ListenAddress {
    /// The family of the clients that can connect.
    pub fn family(self) -> Family {
        match self {
            Self::Node(family) => family,
            Self::Address(address) => Family::of(address),
        }
    }

    /// A loopback address is reachable from the host only.
    pub(crate) fn is_loopback(self) -> bool {
        matches!(self, Self::Address(address) if address.is_loopback())
    }
}

/// A port of a Service, or a host port of a pod, that clients outside the cluster and the host itself can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedPort {
    /// Where clients reach it.
    pub listen: ListenAddress,
    /// Of clients and endpoints alike.
    pub protocol: Protocol,
    /// Port at `listen`; the endpoints may have another.
    pub port: u16,
    /// Destination of the host's own connections: the ClusterIP, or the pod. None if the host is treated as any other client.
    pub host_target: Option<(IpAddr, u16)>,
    /// Clients keep their source address and get endpoints of this node only (`externalTrafficPolicy: Local`).
    pub preserves_source: bool,
    /// Endpoints on this node, needed if the source is preserved. Without one, packets from outside are dropped.
    pub endpoints: Vec<(IpAddr, u16)>,
    /// Allowed client networks; empty allows all.
    pub source_ranges: Vec<Prefix>,
    /// Session affinity by client address.
    pub affinity: bool,
}

impl Facts {
    /// Families of this node's pods, IPv4 first.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> + '_ {
        Family::BOTH.into_iter().filter(|family| self.subnet(*family).is_some())
    }

    pub(crate) fn subnet(&self, family: Family) -> Option<Prefix> {
        self.network.subnets.iter().copied().find(|subnet| subnet.family() == family)
    }

    /// The host's addresses of one family; the first is also the gateway router's.
    pub(crate) fn addresses(&self, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        self.bridge.addresses.iter().map(|own| own.address()).filter(move |own| family.matches(*own))
    }

    pub(crate) fn masquerade(&self, family: Family) -> Option<MasqueradeAddresses> {
        let network = self.network.masquerade.iter().copied().find(|network| network.family() == family)?;
        Some(MasqueradeAddresses {
            router: Masquerade::Router.address(network)?,
            host: Masquerade::Host.address(network)?,
            next_hop: Masquerade::NextHop.address(network)?,
            network,
        })
    }

    /// Endpoints among which the host's kernel balances clients; None if the gateway router does.
    ///
    /// In local gateway mode, pods' replies pass through the host, which must know the translation. And replies of an endpoint
    /// on the host itself never pass the gateway router.
    pub(crate) fn kernel_endpoints<'a>(&self, exposed: &'a ExposedPort) -> Option<Vec<&'a (IpAddr, u16)>> {
        if !exposed.preserves_source || exposed.listen.is_loopback() {
            return None;
        }
        if self.mode == GatewayMode::Local {
            return Some(exposed.endpoints.iter().collect());
        }
        let own = |(address, _): &&(IpAddr, u16)| self.addresses(Family::of(*address)).any(|host| host == *address);
        let own: Vec<_> = exposed.endpoints.iter().filter(own).collect();
        (!own.is_empty()).then_some(own)
    }

    /// Whether a port listens on an IPv4 loopback address: packets from there must leave through the management port. The kernel
    /// has no such setting for IPv6.
    pub(crate) fn routes_loopback(&self) -> bool {
        self.exposed.iter().any(|exposed| exposed.listen.is_loopback() && exposed.listen.family() == Family::V4)
    }

    /// Exposed ports of the pods' families, sorted and without duplicates: the result does not depend on the input order.
    pub(crate) fn sorted_ports(&self) -> Vec<&ExposedPort> {
        let mut sorted: Vec<&ExposedPort> =
            self.exposed.iter().filter(|exposed| self.subnet(exposed.listen.family()).is_some()).collect();
        sorted.sort_by_key(|exposed| (exposed.listen, exposed.protocol, exposed.port));
        sorted.dedup_by_key(|exposed| (exposed.listen, exposed.protocol, exposed.port));
        sorted
    }
}

/// Addresses that stand for the two ends of the link between the host and its gateway router, which share one address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MasqueradeAddresses {
    /// The gateway router, to the host.
    pub(crate) router: IpAddr,
    /// The host, to the gateway router.
    pub(crate) host: IpAddr,
    /// Next hop of routes to Services, which no host has: its MAC is a static neighbour entry.
    pub(crate) next_hop: IpAddr,
    /// The masquerade network of the family.
    pub(crate) network: Prefix,
}
