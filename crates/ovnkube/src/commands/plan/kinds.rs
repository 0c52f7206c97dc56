//! Which kinds concern the network.

use objects::ObjectKind;

use crate::suggest;

/// Kinds of the core group that do not concern the network. The group is closed, so any other name is a mistake.
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

/// Classification of a kind.
#[derive(Debug)]
pub(super) enum Known {
    /// Planned, because the network follows from it.
    Network(ObjectKind),
    /// Does not concern the network.
    Other,
    /// Does not exist; the hint says what was probably meant.
    Nothing(String),
}

/// Classifies a kind of an apiVersion.
pub(super) fn known(version: &str, kind: &str) -> Known {
    let of = version.split_once('/').map_or("", |(group, _)| group);
    if let Some(known) = ObjectKind::ALL.into_iter().find(|known| known.name() == kind && known.group() == of) {
        return Known::Network(known);
    }
    // A network kind in a wrong group of Kubernetes would otherwise be ignored.
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
