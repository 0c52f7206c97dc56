//! What we need to know of a Namespace.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Labels, Metadata};
use crate::identity::Name;

/// Says that pods of the namespace may send to each other by multicast.
const MULTICAST: &str = "k8s.ovn.org/multicast-enabled";

/// What we need to know of a Namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub uid: Box<str>,
    /// Whether its pods may use multicast among themselves.
    pub multicast: bool,
    /// Its labels.
    pub labels: Labels,
    /// Whether it is being deleted, with everything in it.
    pub terminating: bool,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
}

impl NamespaceFacts {
    /// Reads the object's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check("Namespace")?;
        Ok(Self {
            name: metadata.name.as_ref().into(),
            uid: metadata.uid.as_ref().into(),
            multicast: metadata.annotation(MULTICAST) == Some("true"),
            terminating: metadata.deletion_timestamp.is_some() || status.phase == "Terminating",
            labels: metadata.labels,
        })
    }
}
