//! Where traffic comes from and goes to: as one asks, and as policies see it.

use std::fmt;
use std::net::IpAddr;

use crate::address::Family;
use crate::cluster::Cluster;
use crate::objects::{Node, Pod};

/// One end of the traffic, as one asks for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A pod. One on the host's network is its node to everybody else.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A node itself: the kubelet, or a process on the host.
    Node(String),
    /// An address. One that a pod or node has stands for that pod or node.
    External(IpAddr),
}

impl Place {
    /// A pod.
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::Pod { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// A node.
    pub fn node(name: &str) -> Self {
        Self::Node(name.to_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(formatter, "pod {namespace}/{name}"),
            Self::Node(name) => write!(formatter, "node {name}"),
            Self::External(address) => write!(formatter, "address {address}"),
        }
    }
}

/// One end of the traffic, as policies see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) who: Who<'a>,
    pub(crate) address: IpAddr,
}

/// Who is at that end?
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who<'a> {
    /// A pod on the cluster's network.
    Pod(&'a Pod),
    /// A node, or a pod on its network.
    Node(&'a Node),
    /// Nobody in the cluster.
    Stranger,
}

impl<'a> End<'a> {
    /// The pod on the cluster's network that is at this end.
    pub(crate) fn pod(&self) -> Option<&'a Pod> {
        match self.who {
            Who::Pod(pod) => Some(pod),
            Who::Node(_) | Who::Stranger => None,
        }
    }
}

impl fmt::Display for End<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            Who::Pod(pod) => write!(formatter, "pod {pod}"),
            Who::Node(node) => write!(formatter, "node {}", node.metadata.name),
            Who::Stranger => write!(formatter, "address {}", self.address),
        }
    }
}

impl Cluster {
    /// Who is at a place; or why there cannot be traffic of this family.
    pub(crate) fn end(&self, place: &Place, family: Family) -> Result<End<'_>, String> {
        let lacks = || format!("{place} has no {family} address");
        match place {
            Place::Pod { namespace, name } => {
                let pod = self.pod(namespace, name).ok_or_else(|| format!("there is no {place}"))?;
                let address = pod.address(family).ok_or_else(lacks)?;
                if pod.on_network() {
                    return Ok(End { who: Who::Pod(pod), address });
                }
                // The node's address, or one that is free for the next pod.
                Ok(End { who: self.who_has(address), address })
            }
            Place::Node(name) => {
                let node = self.nodes.iter().find(|node| node.metadata.name == *name);
                let node = node.ok_or_else(|| format!("there is no {place}"))?;
                let address = node.addresses().find(|address| Family::of(*address) == family).ok_or_else(lacks)?;
                Ok(End { who: Who::Node(node), address })
            }
            Place::External(address) if Family::of(*address) == family => {
                Ok(End { who: self.who_has(*address), address: *address })
            }
            Place::External(_) => Err(lacks()),
        }
    }

    /// The same end, as the one that sends: with the address that arrives.
    pub(crate) fn speaking<'a>(&self, end: End<'a>) -> End<'a> {
        let Who::Node(node) = end.who else { return end };
        let own = self.speaking.get(&node.metadata.name).into_iter().flatten();
        let address = own.copied().find(|address| Family::of(*address) == Family::of(end.address));
        End { address: address.unwrap_or(end.address), ..end }
    }

    /// Who has an address: a pod on the cluster's network, a node, or a stranger.
    pub(crate) fn who_has(&self, address: IpAddr) -> Who<'_> {
        let mut pods = self.pods.iter().filter(|pod| pod.on_network());
        if let Some(pod) = pods.find(|pod| pod.addresses().any(|own| own == address)) {
            return Who::Pod(pod);
        }
        let node = self.nodes.iter().find(|node| node.addresses().any(|own| own == address));
        node.map_or(Who::Stranger, Who::Node)
    }
}
