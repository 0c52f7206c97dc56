//! Namespaces.

use std::borrow::Cow;

use serde::Deserialize;

use super::annotation::shortened;
use super::{Annotated, Labels, Metadata};
use crate::Name;

/// Annotation: `true` allows multicast among the pods of the namespace.
const MULTICAST: &str = "k8s.ovn.org/multicast-enabled";

/// Annotation: severities of ACL log entries, as in `{"deny":"alert","allow":"notice"}`.
const LOGGING: &str = "k8s.ovn.org/acl-logging";
const SEVERITIES: [&str; 5] = ["alert", "warning", "notice", "info", "debug"];

/// Severities of ACL log entries; None is not logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AclLogging {
    /// Log severity of dropped packets.
    pub deny: Option<&'static str>,
    /// Log severity of allowed connections.
    pub allow: Option<&'static str>,
}

/// The fields of a Namespace that the network depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Unique among namespaces at one time.
    pub name: Name,
    /// Tells objects apart that had the same name one after the other.
    pub uid: Box<str>,
    /// Only effective if multicast is enabled for the cluster.
    pub multicast: bool,
    /// Policies select namespaces by them.
    pub labels: Labels,
    /// Whether it is being deleted, with its objects.
    pub terminating: bool,
    /// Annotation `k8s.ovn.org/acl-logging`: severities for its NetworkPolicies.
    pub logging: Annotated<AclLogging>,
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
    /// Parses the object's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check("Namespace")?;
        Ok(Self {
            name: metadata.name.as_ref().into(),
            uid: metadata.uid.as_ref().into(),
            multicast: metadata.annotation(MULTICAST) == Some("true"),
            terminating: metadata.deletion_timestamp.is_some() || status.phase == "Terminating",
            logging: metadata.annotated(LOGGING, read_logging),
            labels: metadata.labels,
        })
    }

    /// The logging settings; None if nothing is logged.
    pub fn logs(&self) -> Option<AclLogging> {
        let logging = self.logging.valid().copied();
        logging.filter(|logging| logging.deny.is_some() || logging.allow.is_some())
    }
}

fn read_logging(text: &str) -> Result<AclLogging, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Words {
        deny: String,
        allow: String,
    }
    if text.is_empty() {
        return Ok(AclLogging::default());
    }
    let words: Words =
        serde_json::from_str(text).map_err(|error| format!("{} is not JSON: {error}", shortened(text)))?;
    let severity = |word: &str| match word {
        "" => Ok(None),
        _ => SEVERITIES
            .into_iter()
            .find(|known| *known == word)
            .map(Some)
            .ok_or_else(|| format!("{} is not one of alert, warning, notice, info, debug", shortened(word))),
    };
    Ok(AclLogging { deny: severity(&words.deny)?, allow: severity(&words.allow)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_severities_are_refused() {
        let both = AclLogging { deny: Some("alert"), allow: Some("notice") };
        assert_eq!(read_logging(r#"{"deny":"alert","allow":"notice"}"#), Ok(both));
        assert_eq!(read_logging("{}"), Ok(AclLogging::default()));
        assert!(read_logging(r#"{"deny":"loud"}"#).unwrap_err().contains("\"loud\""));
        assert!(read_logging("alert").is_err());
    }
}
