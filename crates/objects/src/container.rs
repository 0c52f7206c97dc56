//! The ports of a Pod's containers: those with names, which policies and Services mean, and those of the host that lead to
//! the pod.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Deserialize;

use super::Protocol;
use super::rule::port_name;
use crate::Name;

/// A Pod's list of containers.
pub type Containers<'a> = Option<Vec<Container<'a>>>;

/// A container, as far as its ports go.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container<'a> {
    #[serde(borrow)]
    ports: Option<Vec<Port<'a>>>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
}

/// A port of a container, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    protocol: Option<Cow<'a, str>>,
    container_port: i64,
    host_port: i64,
    #[serde(borrow, rename = "hostIP")]
    host_ip: Option<Cow<'a, str>>,
}

/// A port of a container, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerPort {
    /// Its name.
    pub name: Name,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

/// A port of a pod's node that leads to the pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// Its protocol.
    pub protocol: Protocol,
    /// The port of the node.
    pub host: u16,
    /// The port of the pod.
    pub container: u16,
    /// The address of the node, as it is written; empty is all of them.
    pub address: Box<str>,
}

/// The addresses of a node on which a port is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAddress {
    /// All of them.
    All,
    /// All of one family.
    Family {
        /// Whether that is IPv6.
        v6: bool,
    },
    /// One.
    One(IpAddr),
}

impl HostPort {
    /// The addresses of the node on which it is opened; why that cannot be told.
    pub fn opened_on(&self) -> Result<HostAddress, String> {
        if self.address.is_empty() {
            return Ok(HostAddress::All);
        }
        match self.address.parse::<IpAddr>() {
            Err(_) => Err(format!("{:?} is not an IP address", self.address)),
            Ok(any) if any.is_unspecified() => Ok(HostAddress::Family { v6: any.is_ipv6() }),
            Ok(address) => Ok(HostAddress::One(address)),
        }
    }
}

impl Port<'_> {
    /// Its protocol and number, if they can be.
    fn place(&self) -> Option<(Protocol, u16)> {
        let protocol = self.protocol.as_deref().map_or(Some(Protocol::Tcp), Protocol::parse)?;
        Some((protocol, number(self.container_port)?))
    }
}

fn number(port: i64) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port > 0)
}

/// The ports of containers that run as long as the pod does: its own, and of those before them the sidecars.
pub fn standing_ports<'a>(own: &'a Containers<'_>, before: &'a Containers<'_>) -> impl Iterator<Item = &'a Port<'a>> {
    let sidecar = |container: &&Container<'_>| container.restart_policy.as_deref() == Some("Always");
    let sidecars = before.iter().flatten().filter(sidecar);
    own.iter().flatten().chain(sidecars).flat_map(|container| container.ports.iter().flatten())
}

/// Ports of the node that lead to the pod, in order. A pod in the host's network has the ports themselves.
pub fn host_ports<'a>(host_network: bool, ports: impl Iterator<Item = &'a Port<'a>>) -> Box<[HostPort]> {
    let ports = ports.filter(|_| !host_network).filter_map(|port| {
        let host = number(port.host_port)?;
        let (protocol, container) = port.place()?;
        Some(HostPort { protocol, host, container, address: port.host_ip.as_deref().unwrap_or_default().into() })
    });
    in_order(ports.collect())
}

/// The ports that have names, in order.
pub(super) fn named_ports<'a>(ports: impl Iterator<Item = &'a Port<'a>>) -> Box<[ContainerPort]> {
    let named = ports.filter_map(|port| {
        let name = port.name.as_deref().filter(|name| !name.is_empty())?;
        let (protocol, number) = port.place()?;
        // One that no policy can name concerns nobody.
        Some(ContainerPort { name: port_name(name, "").ok()?, protocol, number })
    });
    in_order(named.collect())
}

fn in_order<T: Ord>(mut list: Vec<T>) -> Box<[T]> {
    list.sort_unstable();
    list.dedup();
    list.into()
}
