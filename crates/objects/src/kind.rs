//! The kinds of objects that the network follows from, and where the API has them.

/// The kinds of objects that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Nodes.
    Node,
    /// Namespaces.
    Namespace,
    /// Pods.
    Pod,
    /// Services.
    Service,
    /// The endpoints of Services.
    EndpointSlice,
    /// NetworkPolicies.
    Policy,
    /// AdminNetworkPolicies; a cluster may do without the type.
    AdminPolicy,
    /// The BaselineAdminNetworkPolicy; a cluster may do without the type.
    BaselinePolicy,
}

impl ObjectKind {
    /// All of them, in the order in which they matter to each other.
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

    /// As the API calls it.
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

    /// Whether a cluster may do without it: then there are none.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::AdminPolicy | Self::BaselinePolicy)
    }

    /// The group of the API that it is in; the core one has no name.
    pub fn group(self) -> &'static str {
        match self {
            Self::Node | Self::Namespace | Self::Pod | Self::Service => "",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Policy => "networking.k8s.io",
            Self::AdminPolicy | Self::BaselinePolicy => "policy.networking.k8s.io",
        }
    }

    /// As paths call its objects.
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

    /// The kind that the API calls so.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The version that is spoken, with its group.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => "v1".to_owned(),
            group if self.is_optional() => format!("{group}/v1alpha1"),
            group => format!("{group}/v1"),
        }
    }

    /// Where all its objects are listed, as in `/api/v1/pods`.
    pub fn collection(self) -> String {
        let root = if self.group().is_empty() { "/api" } else { "/apis" };
        format!("{root}/{}/{}", self.api_version(), self.plural())
    }

    /// Whether its objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Pod | Self::Service | Self::EndpointSlice | Self::Policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_place_in_the_api() {
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
