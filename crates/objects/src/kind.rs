//! The kinds of objects that determine the network, and their API paths.

/// A kind that the controller watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Cluster-scoped; `v1`.
    Node,
    /// Cluster-scoped; `v1`.
    Namespace,
    /// Namespaced; `v1`.
    Pod,
    /// Namespaced; `v1`.
    Service,
    /// Namespaced; `discovery.k8s.io/v1`.
    EndpointSlice,
    /// NetworkPolicy of `networking.k8s.io/v1`.
    Policy,
    /// AdminNetworkPolicy; the cluster may lack the CRD.
    AdminPolicy,
    /// BaselineAdminNetworkPolicy; the cluster may lack the CRD.
    BaselinePolicy,
}

impl ObjectKind {
    /// Every kind; those that others depend on come first.
    pub const ALL: [Self; 8] = [
        Self::Node,
        Self::Namespace,
        Self::Pod,
        Self::Service,
        Self::EndpointSlice,
        Self::Policy,
        Self::AdminPolicy,
        Self::BaselinePolicy,
    ];

    /// The API's `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Namespace => "Namespace",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Policy => "NetworkPolicy",
            Self::AdminPolicy => "AdminNetworkPolicy",
            Self::BaselinePolicy => "BaselineAdminNetworkPolicy",
        }
    }

    /// Whether the cluster may lack the CRD; it then has no objects of this kind.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::AdminPolicy | Self::BaselinePolicy)
    }

    /// API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Node | Self::Namespace | Self::Pod | Self::Service => "",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Policy => "networking.k8s.io",
            Self::AdminPolicy | Self::BaselinePolicy => "policy.networking.k8s.io",
        }
    }

    /// The resource name in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Namespace => "namespaces",
            Self::Pod => "pods",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::Policy => "networkpolicies",
            Self::AdminPolicy => "adminnetworkpolicies",
            Self::BaselinePolicy => "baselineadminnetworkpolicies",
        }
    }

    /// By the `kind` of the API, such as `NetworkPolicy`; `None` for a kind that is not watched.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Group and version, as in `apiVersion`.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => "v1".to_owned(),
            group if self.is_optional() => format!("{group}/v1alpha1"),
            group => format!("{group}/v1"),
        }
    }

    /// The path of all objects, as in `/api/v1/pods`.
    pub fn collection(self) -> String {
        let root = if self.group().is_empty() { "/api" } else { "/apis" };
        format!("{root}/{}/{}", self.api_version(), self.plural())
    }

    /// False for Node, Namespace and the policies of administrators.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Pod | Self::Service | Self::EndpointSlice | Self::Policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_path() {
        let places: Vec<String> = ObjectKind::ALL.into_iter().map(ObjectKind::collection).collect();
        assert_eq!(
            places,
            [
                "/api/v1/nodes",
                "/api/v1/namespaces",
                "/api/v1/pods",
                "/api/v1/services",
                "/apis/discovery.k8s.io/v1/endpointslices",
                "/apis/networking.k8s.io/v1/networkpolicies",
                "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies",
                "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies",
            ]
        );
    }
}
