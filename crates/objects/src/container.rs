//! Ports of a Pod's containers: those with names, which policies and Services refer to, and host ports.

use std::borrow::Cow;
use std::net::IpAddr;

use netmodel::Family;
use serde::Deserialize;

use super::Protocol;
use super::rule::port_name;
use crate::Name;

/// A list of containers; null and missing are the same.
pub(super) type Containers<'a> = Option<Vec<Container<'a>>>;

/// The fields of a container that concern its ports.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container<'a> {
    #[serde(borrow)]
    ports: Option<Vec<Port<'a>>>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
}

/// A port of a container, unchecked.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Port<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    protocol: Option<Cow<'a, str>>,
    container_port: i64,
    host_port: i64,
    #[serde(borrow, rename = "hostIP")]
    host_ip: Option<Cow<'a, str>>,
}

/// A port that policies and Services can refer to by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerPort {
    /// A valid port name: at most 15 lower-case letters, digits and '-'.
    pub name: Name,
    /// TCP unless given.
    pub protocol: Protocol,
    /// Never 0.
    pub number: u16,
}

/// A port of a pod's node that leads to the pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// TCP unless given.
    pub protocol: Protocol,
    /// Port on the node's addresses, never 0.
    pub host: u16,
    /// Port on the pod's addresses, never 0.
    pub container: u16,
    /// `hostIP`, unparsed; empty means all addresses of the node.
    pub address: Box<str>,
}

/// The addresses of a node on which a host port listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAddress {
    /// No `hostIP`: every address of the node.
    All,
    /// `0.0.0.0` or `::`: every address of one family.
    Family(Family),
    /// This address only; it must be one of the node's.
    One(IpAddr),
}

impl HostPort {
    /// Where it listens; an error if `hostIP` is not an address.
    pub fn listen_address(&self) -> Result<HostAddress, String> {
        if self.address.is_empty() {
            return Ok(HostAddress::All);
        }
        match self.address.parse::<IpAddr>() {
            Err(_) => Err(format!("{:?} is not an IP address", self.address)),
            Ok(any) if any.is_unspecified() => Ok(HostAddress::Family(Family::of(any))),
            Ok(address) => Ok(HostAddress::One(address)),
        }
    }
}

impl Port<'_> {
    /// Protocol and container port; none if one is invalid.
    fn target(&self) -> Option<(Protocol, u16)> {
        let protocol = self.protocol.as_deref().map_or(Some(Protocol::Tcp), Protocol::parse)?;
        Some((protocol, number(self.container_port)?))
    }
}

fn number(port: i64) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port > 0)
}

/// Ports of containers that run as long as the pod: `containers`, and the sidecars among `initContainers`.
pub(super) fn long_running_ports<'a>(
    containers: &'a Containers<'_>,
    init: &'a Containers<'_>,
) -> impl Iterator<Item = &'a Port<'a>> {
    let sidecar = |container: &&Container<'_>| container.restart_policy.as_deref() == Some("Always");
    let sidecars = init.iter().flatten().filter(sidecar);
    containers.iter().flatten().chain(sidecars).flat_map(|container| container.ports.iter().flatten())
}

/// Host ports, sorted; none with `hostNetwork`. Invalid ones are skipped: the API server does not admit them.
pub(super) fn host_ports<'a>(host_network: bool, ports: impl Iterator<Item = &'a Port<'a>>) -> Box<[HostPort]> {
    let ports = ports.filter(|_| !host_network).filter_map(|port| {
        let host = number(port.host_port)?;
        let (protocol, container) = port.target()?;
        Some(HostPort { protocol, host, container, address: port.host_ip.as_deref().unwrap_or_default().into() })
    });
    in_order(ports.collect())
}

/// Ports without a name are left out; sorted.
pub(super) fn named_ports<'a>(ports: impl Iterator<Item = &'a Port<'a>>) -> Box<[ContainerPort]> {
    let named = ports.filter_map(|port| {
        let name = port.name.as_deref().filter(|name| !name.is_empty())?;
        let (protocol, number) = port.target()?;
        // No policy can refer to an invalid name.
        Some(ContainerPort { name: port_name(name, "").ok()?, protocol, number })
    });
    in_order(named.collect())
}

fn in_order<T: Ord>(mut list: Vec<T>) -> Box<[T]> {
    list.sort_unstable();
    list.dedup();
    list.into()
}
