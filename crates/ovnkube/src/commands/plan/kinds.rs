//! Which objects are part of the network.

use topology::store::ObjectKind;

use crate::suggest;

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
    if let Some(known) = ObjectKind::ALL.into_iter().find(|known| known.name() == kind && known.group() == of) {
        return Known::Network(known);
    }
    // In one of Kubernetes' own groups, or where it was once, it would be taken for no part of the network.
    let own = matches!(of, "" | "extensions") || of.ends_with("k8s.io");
    let elsewhere = ObjectKind::ALL.into_iter().find(|known| known.name() == kind && !known.group().is_empty());
    if let Some(elsewhere) = elsewhere.filter(|_| own) {
        return Known::Nothing(format!("{kind} is in {}", elsewhere.group()));
    }
    if of == "policy.networking.k8s.io" {
        return Known::Nothing("of this group AdminNetworkPolicy and BaselineAdminNetworkPolicy are read".to_owned());
    }
    if !of.is_empty() || CORE.contains(&kind) {
        return Known::Other;
    }
    let core = ObjectKind::ALL.into_iter().filter(|known| known.group().is_empty()).map(ObjectKind::name);
    let core: Vec<(String, &str)> = core.chain(CORE).map(|name| (name.to_lowercase(), name)).collect();
    let near = suggest::nearest(kind, core.iter().map(|(lower, _)| lower.as_str()));
    let near = near.and_then(|near| core.iter().find(|(lower, _)| lower == near));
    Known::Nothing(
        near.map_or_else(|| "see kubectl api-resources".to_owned(), |(_, near)| format!("did you mean {near}?")),
    )
}
