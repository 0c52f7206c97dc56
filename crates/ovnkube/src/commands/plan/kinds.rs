//! Which objects are part of the network.

use topology::store::ObjectKind;

use crate::suggest;

/// The groups of the kinds that we know.
fn group(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Node | ObjectKind::Namespace | ObjectKind::Pod | ObjectKind::Service => "",
        ObjectKind::EndpointSlice => "discovery.k8s.io",
        ObjectKind::Policy => "networking.k8s.io",
        ObjectKind::AdminPolicy | ObjectKind::BaselinePolicy => "policy.networking.k8s.io",
    }
}

/// Where objects of a kind are listed.
pub(super) fn collection(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Node => "/api/v1/nodes",
        ObjectKind::Namespace => "/api/v1/namespaces",
        ObjectKind::Pod => "/api/v1/pods",
        ObjectKind::Service => "/api/v1/services",
        ObjectKind::EndpointSlice => "/apis/discovery.k8s.io/v1/endpointslices",
        ObjectKind::Policy => "/apis/networking.k8s.io/v1/networkpolicies",
        ObjectKind::AdminPolicy => "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies",
        ObjectKind::BaselinePolicy => "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies",
    }
}

/// The kinds of the core group that are no part of the network. Nobody can add to that group, so another name is a mistake.
const CORE: [&str; 13] = [
    "Binding",
    "ComponentStatus",
    "ConfigMap",
    "Endpoints",
    "Event",
    "LimitRange",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodTemplate",
    "ReplicationController",
    "ResourceQuota",
    "Secret",
    "ServiceAccount",
];

/// What a kind is to us.
#[derive(Debug)]
pub(super) enum Known {
    /// A part of the network.
    Network(ObjectKind),
    /// Something else.
    Other,
    /// It cannot be; what was meant.
    Nothing(String),
}

/// What a kind of an apiVersion is to us.
pub(super) fn known(version: &str, kind: &str) -> Known {
    let of = version.split_once('/').map_or("", |(group, _)| group);
    if let Some(known) = ObjectKind::ALL.into_iter().find(|known| known.name() == kind && group(*known) == of) {
        return Known::Network(known);
    }
    if !of.is_empty() || CORE.contains(&kind) {
        return Known::Other;
    }
    if let Some(elsewhere) = ObjectKind::ALL.into_iter().find(|known| known.name() == kind) {
        return Known::Nothing(format!("{kind} is in {}", group(elsewhere)));
    }
    let core = ObjectKind::ALL.into_iter().filter(|known| group(*known).is_empty()).map(ObjectKind::name);
    let core: Vec<(String, &str)> = core.chain(CORE).map(|name| (name.to_lowercase(), name)).collect();
    let near = suggest::nearest(kind, core.iter().map(|(lower, _)| lower.as_str()));
    let near = near.and_then(|near| core.iter().find(|(lower, _)| lower == near));
    Known::Nothing(
        near.map_or_else(|| "see kubectl api-resources".to_owned(), |(_, near)| format!("did you mean {near}?")),
    )
}

/// Whether its objects are in namespaces.
pub(super) fn is_namespaced(kind: ObjectKind) -> bool {
    matches!(kind, ObjectKind::Pod | ObjectKind::Service | ObjectKind::EndpointSlice | ObjectKind::Policy)
}
