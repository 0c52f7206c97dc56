//! The objects of a cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::address::Cidr;
use crate::admin::{AdminPolicy, BaselinePolicy};
use crate::error::Error;
use crate::network_policy::NetworkPolicy;
use crate::objects::{EndpointSlice, Namespace, Node, Pod, ServiceObject};
use crate::selector::Labels;

/// The objects of a cluster; nothing is precomputed.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) network_policies: Vec<NetworkPolicy>,
    pub(crate) admin_policies: Vec<AdminPolicy>,
    pub(crate) baseline_policies: Vec<BaselinePolicy>,
    pub(crate) services: Vec<ServiceObject>,
    pub(crate) slices: Vec<EndpointSlice>,
    pub(crate) egress_to_own_node_is_filtered: bool,
    pub(crate) speaking: BTreeMap<String, Vec<IpAddr>>,
    pub(crate) service_networks: Vec<Cidr>,
}

impl Cluster {
    /// Parses API objects from JSON. A pod's addresses are its `status.podIPs`.
    pub fn from_objects(objects: &[Value]) -> Result<Self, Error> {
        let mut cluster = Self::default();
        for object in objects {
            match object["kind"].as_str().unwrap_or_default() {
                "Namespace" => cluster.namespaces.push(read(object)?),
                "Node" => cluster.nodes.push(read(object)?),
                "Pod" => cluster.pods.push(read(object)?),
                "NetworkPolicy" => cluster.network_policies.push(read(object)?),
                "AdminNetworkPolicy" => cluster.admin_policies.push(read(object)?),
                "BaselineAdminNetworkPolicy" => cluster.baseline_policies.push(read(object)?),
                "Service" => cluster.services.push(read(object)?),
                "EndpointSlice" => cluster.slices.push(read(object)?),
                _ => return Err(problem(object, "unsupported kind")),
            }
        }
        Ok(cluster)
    }

    /// NetworkPolicies also filter egress from a pod to its own node.
    ///
    /// The documentation says that traffic *to and from* the node where a pod runs is always allowed. Implementations follow
    /// "from", which probes need; this is for those that do not follow "to".
    #[must_use]
    pub fn filter_egress_to_own_node(mut self) -> Self {
        self.egress_to_own_node_is_filtered = true;
        self
    }

    /// A node's traffic to pods has other source addresses than those in its status.
    ///
    /// The documentation leaves open what policies see of a translated address: for an `ipBlock` the address counts that
    /// arrives.
    #[must_use]
    pub fn node_speaks_from(mut self, node: &str, addresses: &[IpAddr]) -> Self {
        self.speaking.insert(node.to_owned(), addresses.to_vec());
        self
    }

    /// Sets the service ranges, such as `10.96.0.0/16`: no other endpoint has addresses there.
    pub fn service_networks(mut self, networks: &[&str]) -> Result<Self, String> {
        let networks = networks.iter().map(|network| Cidr::try_from((*network).to_owned()));
        self.service_networks = networks.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Whether the address is in a service range.
    pub(crate) fn is_service_address(&self, address: IpAddr) -> bool {
        self.service_networks.iter().any(|network| network.contains(address))
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.metadata.namespace == namespace && pod.metadata.name == name)
    }

    /// The labels of a namespace; none if it does not exist.
    pub(crate) fn namespace_labels(&self, name: &str) -> Labels {
        let namespace = self.namespaces.iter().find(|namespace| namespace.metadata.name == name);
        namespace.map(|namespace| namespace.metadata.labels.clone()).unwrap_or_default()
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, Error> {
    T::deserialize(object).map_err(|error| problem(object, &error.to_string()))
}

fn problem(object: &Value, problem: &str) -> Error {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
    let name = format!("{kind} {}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    Error { object: name, problem: problem.to_owned() }
}
