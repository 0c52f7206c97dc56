//! The relevant fields of Pods, Namespaces, Nodes, Services and EndpointSlices, in the shape of the API.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;

use crate::address::Family;
use crate::selector::Labels;

/// Transport protocol of a port, as the API spells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// The API's default.
    #[default]
    Tcp,
    /// `UDP` in the API.
    Udp,
    /// `SCTP` in the API.
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Meta {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) labels: Labels,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) metadata: Meta,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Node {
    pub(crate) metadata: Meta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    addresses: Vec<NodeAddress>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeAddress {
    address: String,
}

impl Node {
    /// IP addresses in the order of the object; host names are skipped.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.status.addresses.iter().filter_map(|address| address.address.parse().ok())
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Pod {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    #[serde(default)]
    pub(crate) node_name: String,
    #[serde(default)]
    host_network: bool,
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    ports: Vec<ContainerPort>,
    #[serde(default)]
    restart_policy: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    #[serde(default)]
    name: String,
    container_port: u16,
    #[serde(default)]
    protocol: Protocol,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    phase: String,
    #[serde(default, rename = "podIPs")]
    pod_ips: Vec<PodIp>,
}

#[derive(Debug, Clone, Deserialize)]
struct PodIp {
    ip: IpAddr,
}

impl Pod {
    /// A completed pod's address may belong to another pod.
    pub(crate) fn completed(&self) -> bool {
        self.status.phase == "Succeeded" || self.status.phase == "Failed"
    }

    /// Whether it is on the cluster network, so that policies apply to it.
    pub(crate) fn on_network(&self) -> bool {
        !self.spec.host_network && !self.completed()
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.status.pod_ips.iter().map(|entry| entry.ip)
    }

    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses().find(|address| Family::of(*address) == family)
    }

    /// Whether it has a port with this name, protocol and number. Sidecars (restarting init containers) count.
    pub(crate) fn has_named_port(&self, name: &str, protocol: Protocol, number: u16) -> bool {
        let sidecars = self.spec.init_containers.iter().filter(|container| container.restart_policy == "Always");
        let mut ports = self.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        ports.any(|port| port.name == name && port.protocol == protocol && port.container_port == number)
    }

    /// Protocol and number of all container ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (Protocol, u16)> {
        let ports = self.spec.containers.iter().flat_map(|container| &container.ports);
        ports.map(|port| (port.protocol, port.container_port))
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.metadata.namespace, self.metadata.name)
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServiceObject {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) spec: ServiceSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceSpec {
    #[serde(default, rename = "type")]
    pub(crate) kind: String,
    #[serde(default, rename = "clusterIP")]
    cluster_ip: String,
    #[serde(default, rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(default)]
    pub(crate) ports: Vec<ServicePort>,
    #[serde(default)]
    pub(crate) internal_traffic_policy: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServicePort {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl ServiceSpec {
    /// Cluster IPs; a headless Service (`None`) has none.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let first = std::iter::once(&self.cluster_ip).filter(|_| self.cluster_ips.is_empty());
        first.chain(&self.cluster_ips).filter_map(|address| address.parse().ok())
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointSlice {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) endpoints: Vec<SliceEndpoint>,
    #[serde(default)]
    pub(crate) ports: Vec<SlicePort>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SlicePort {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) protocol: Protocol,
    #[serde(default)]
    pub(crate) port: Option<u16>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceEndpoint {
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) conditions: Conditions,
    #[serde(default)]
    pub(crate) node_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

impl Conditions {
    /// Defaults to true.
    pub(crate) fn ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// `serving` defaults to `ready`.
    pub(crate) fn serving_while_terminating(&self) -> bool {
        self.serving.unwrap_or(self.ready()) && self.terminating.unwrap_or(false)
    }
}
