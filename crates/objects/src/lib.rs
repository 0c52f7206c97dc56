//! Facts of Kubernetes objects: the fields that matter to the network, parsed from JSON; the rest is dropped. Pure: no I/O.
//!
//! ```text
//!  JSON of a watch ──parse──▶ NodeFacts, NamespaceFacts, PodFacts, ServiceFacts, SliceFacts, PolicyFacts, AdminPolicyFacts
//!                                                          └ LocalPodFacts: pods of the agent's own node
//! ```
//!
//! An invalid annotation or field does not make an object unreadable: it is [`Annotated::Broken`] or in `broken`, so that the
//! rest of the object is used and the problem can be reported.

mod admin_policy;
mod annotation;
mod container;
mod field;
mod key;
mod kind;
mod labels;
mod local_pod;
mod namespace;
mod node;
mod pod;
mod pod_options;
mod pod_record;
mod policy;
mod protocol;
mod quantity;
mod rule;
mod service;
mod slice;

pub use admin_policy::{AdminPolicyFacts, AdminPolicySpec, BASELINE_NAME, Condition, LAST_PRIORITY, READY};
pub use annotation::{Annotated, POD_NETWORKS};
pub use container::{ContainerPort, HostAddress, HostPort};
pub use key::{Name, ObjectKey, PodKey};
pub use kind::ObjectKind;
pub use labels::{LabelSelector, Labels};
pub use local_pod::{LocalPodFacts, PodInterface, PodRoute};
pub use namespace::{AclLogging, NamespaceFacts};
pub use node::{
    AgentReport, EXPECTED_NB_CFG, GatewayFacts, MANAGEMENT_MACS, NETWORK_READY, NODE_ID, NODE_SUBNETS, NodeFacts,
};
pub use pod::{PodFacts, PodNetwork};
pub use pod_options::{PodOptions, Rate, StaticRequest};
pub use pod_record::{AnnotationState, NETWORK_ALLOCATED, network_condition, record_network};
pub use policy::{PolicyFacts, PolicySpec};
pub use protocol::Protocol;
pub use rule::{Action, Peer, PortRule, Ports, Rule};
pub use service::{ServiceFacts, ServicePort, ServiceSpec, ServiceType};
pub use slice::{Endpoint, Hints, SliceFacts, SlicePort, SliceSpec};

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use self::local_pod::STATIC_POD_UID;
use self::pod_options::{EGRESS_BANDWIDTH, INGRESS_BANDWIDTH};
use self::pod_record::PodStatus;

/// The metadata fields that are read.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    creation_timestamp: Cow<'a, str>,
    generation: i64,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    annotations: Annotations,
    labels: Labels,
}

/// Annotations that are read. Others, which can be large, are skipped without a copy.
#[derive(Debug, Default)]
struct Annotations(Vec<(String, String)>);

/// Prefixes of the annotations that are read.
const PREFIXES: [&str; 5] = ["k8s.ovn.org/", "v1.multus-cni.io/", INGRESS_BANDWIDTH, EGRESS_BANDWIDTH, STATIC_POD_UID];

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByPrefix;

        impl<'de> Visitor<'de> for ByPrefix {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of annotations")
            }

            fn visit_unit<E>(self) -> Result<Annotations, E> {
                Ok(Annotations::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut kept = Vec::new();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    if PREFIXES.iter().any(|prefix| key.0.starts_with(prefix)) {
                        kept.push((key.0.into_owned(), map.next_value()?));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Annotations(kept))
            }
        }

        deserializer.deserialize_any(ByPrefix)
    }
}

/// A string, borrowed unless it has escapes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl std::borrow::Borrow<str> for Key<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Metadata<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn annotated<T>(&self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Annotated<T> {
        match self.annotation(key) {
            None => Annotated::Absent,
            Some(text) => match read(text) {
                Ok(value) => Annotated::Valid(value),
                Err(why) => Annotated::Broken(format!("annotation {key}: {why}").into()),
            },
        }
    }

    /// The API's timestamps have one format, so their text compares as time does.
    fn created(&self) -> Box<str> {
        self.creation_timestamp.as_ref().into()
    }

    fn check(&self, kind: &str) -> Result<(), String> {
        if self.name.is_empty() || self.uid.is_empty() {
            return Err(format!("{kind} has no metadata.name or no metadata.uid"));
        }
        Ok(())
    }
}
