//! All objects of a cluster.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admin::{AdminPolicy, BaselinePolicy};
use crate::error::Error;
use crate::network_policy::NetworkPolicy;
use crate::objects::{EndpointSlice, Namespace, Node, Pod, ServiceObject};
use crate::selector::Labels;

/// The objects of a cluster, as they were given: nothing is computed before it is asked for.
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
}

impl Cluster {
    /// Reads API objects in their JSON form. A pod's addresses are those of its `status.podIPs`.
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
                _ => return Err(problem(object, "nothing is known of this kind")),
            }
        }
        Ok(cluster)
    }

    /// Lets NetworkPolicies also filter what a pod sends to its own node.
    ///
    /// The documentation says that traffic *to and from* the node where a pod runs is always allowed. Real networks keep
    /// to "from", which probes need; this is the switch for those that do not keep to "to".
    #[must_use]
    pub fn filter_egress_to_own_node(mut self) -> Self {
        self.egress_to_own_node_is_filtered = true;
        self
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.pods.iter().find(|pod| pod.metadata.namespace == namespace && pod.metadata.name == name)
    }

    /// The labels of a namespace; one without an object has none.
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
