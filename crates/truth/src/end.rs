//! Sources and destinations of traffic: as queried, and as policies see them.

use std::fmt;
use std::net::IpAddr;

use crate::address::Family;
use crate::cluster::Cluster;
use crate::objects::{Node, Pod};

/// A source or destination of a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficEnd {
    /// A pod. A host-network pod counts as its node.
    Pod {
        /// Namespace, which must exist for its labels to be matched.
        namespace: String,
        /// Unique in the namespace.
        name: String,
    },
    /// A node itself: the kubelet, or a process on the host.
    Node(String),
    /// An address; one of a pod or node stands for that pod or node.
    External(IpAddr),
}

impl TrafficEnd {
    /// Whether it exists is checked when the query is evaluated.
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::Pod { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Whether it exists is checked when the query is evaluated.
    pub fn node(name: &str) -> Self {
        Self::Node(name.to_owned())
    }
}

impl fmt::Display for TrafficEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(formatter, "pod {namespace}/{name}"),
            Self::Node(name) => write!(formatter, "node {name}"),
            Self::External(address) => write!(formatter, "address {address}"),
        }
    }
}

/// A source or destination as policies see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) owner: AddressOwner<'a>,
    pub(crate) address: IpAddr,
}

/// Who sends from, or receives at, an address.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AddressOwner<'a> {
    /// A pod on the cluster network.
    Pod(&'a Pod),
    /// A node, or a host-network pod on it.
    Node(&'a Node),
    /// Outside the cluster.
    External,
}

impl<'a> End<'a> {
    /// The pod, if it is on the cluster network.
    pub(crate) fn pod(&self) -> Option<&'a Pod> {
        match self.owner {
            AddressOwner::Pod(pod) => Some(pod),
            AddressOwner::Node(_) | AddressOwner::External => None,
        }
    }
}

impl fmt::Display for End<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            AddressOwner::Pod(pod) => write!(formatter, "pod {pod}"),
            AddressOwner::Node(node) => write!(formatter, "node {}", node.metadata.name),
            AddressOwner::External => write!(formatter, "address {}", self.address),
        }
    }
}

impl Cluster {
    /// Resolves a place; an error says why there is no traffic of this family.
    pub(crate) fn end(&self, place: &TrafficEnd, family: Family) -> Result<End<'_>, String> {
        let lacks = || format!("{place} has no {family} address");
        match place {
            TrafficEnd::Pod { namespace, name } => {
                let pod = self.pod(namespace, name).ok_or_else(|| format!("{place} does not exist"))?;
                let address = pod.address(family).ok_or_else(lacks)?;
                if pod.on_network() {
                    return Ok(End { owner: AddressOwner::Pod(pod), address });
                }
                // The node's address, or that of a completed pod, which may have another owner.
                Ok(End { owner: self.owner_of(address), address })
            }
            TrafficEnd::Node(name) => {
                let node = self.nodes.iter().find(|node| node.metadata.name == *name);
                let node = node.ok_or_else(|| format!("{place} does not exist"))?;
                let address = node.addresses().find(|address| Family::of(*address) == family).ok_or_else(lacks)?;
                Ok(End { owner: AddressOwner::Node(node), address })
            }
            TrafficEnd::External(address) if Family::of(*address) == family => {
                Ok(End { owner: self.owner_of(*address), address: *address })
            }
            TrafficEnd::External(_) => Err(lacks()),
        }
    }

    /// The end as a sender: with the source address that arrives.
    pub(crate) fn speaking<'a>(&self, end: End<'a>) -> End<'a> {
        let AddressOwner::Node(node) = end.owner else { return end };
        let own = self.speaking.get(&node.metadata.name).into_iter().flatten();
        let address = own.copied().find(|address| Family::of(*address) == Family::of(end.address));
        End { address: address.unwrap_or(end.address), ..end }
    }

    /// Who sends from, or receives at, an address.
    pub(crate) fn owner_of(&self, address: IpAddr) -> AddressOwner<'_> {
        let mut pods = self.pods.iter().filter(|pod| pod.on_network());
        if let Some(pod) = pods.find(|pod| pod.addresses().any(|own| own == address)) {
            return AddressOwner::Pod(pod);
        }
        let node = self.nodes.iter().find(|node| node.addresses().any(|own| own == address));
        node.map_or(AddressOwner::External, AddressOwner::Node)
    }
}
