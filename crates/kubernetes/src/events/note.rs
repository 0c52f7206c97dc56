//! The content of an Event, and its JSON.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::timestamp;

/// Longest message of client-go's recorder, in bytes.
const LONGEST_MESSAGE: usize = 1024;
/// Longest name of an object, in bytes.
const LONGEST_NAME: usize = 253;

/// The object that an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ObjectReference {
    /// Such as `v1` or `k8s.ovn.org/v1`.
    pub api_version: String,
    /// Such as `Pod`.
    pub kind: String,
    /// Empty for cluster-scoped objects, whose Events are in `default`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; `kubectl describe` shows only Events with the object's uid.
    pub uid: String,
}

/// Type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Informational; nothing to do.
    Normal,
    /// Needs attention.
    Warning,
}

/// Content of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Where the Event is listed: `kubectl describe` shows it with this object.
    pub object: ObjectReference,
    /// Type of the Event.
    pub severity: Severity,
    /// CamelCase identifier such as `ErrorAllocatingIP`.
    pub reason: String,
    /// A sentence; truncated to 1024 bytes.
    pub message: String,
}

impl Note {
    /// Events of cluster-scoped objects are in `default`.
    pub(crate) fn namespace(&self) -> &str {
        if self.object.namespace.is_empty() { "default" } else { &self.object.namespace }
    }

    /// Name of the Event: a hash of the content, so that it is the same in every process.
    pub(crate) fn event_name(&self) -> String {
        let mut hash = Sha256::new();
        let ObjectReference { api_version, kind, namespace, name, uid } = &self.object;
        for part in [api_version, kind, namespace, name, uid, &self.reason, &self.message] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let hash: String = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        // Some types allow characters that names of Events do not.
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c.to_ascii_lowercase() } else { '-' })
            .take(LONGEST_NAME - 1 - hash.len())
            .collect();
        match name.trim_matches(['.', '-']) {
            "" => format!("object.{hash}"),
            name => format!("{name}.{hash}"),
        }
    }

    /// JSON of a new Event.
    pub(crate) fn event(&self, component: &str, instance: &str, count: u64) -> Value {
        let now = timestamp();
        let ObjectReference { api_version, kind, namespace, name, uid } = &self.object;
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "namespace": self.namespace(), "name": self.event_name() },
            "involvedObject": {
                "apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name, "uid": uid,
            },
            "type": match self.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
            "reason": self.reason,
            "message": cut(&self.message, LONGEST_MESSAGE),
            "source": { "component": component, "host": instance },
            "reportingComponent": component,
            "reportingInstance": instance,
            "count": count,
            "firstTimestamp": now,
            "lastTimestamp": now,
        })
    }
}

/// Merge patch for a repeated Event.
pub(crate) fn repetition(count: u64) -> Value {
    json!({ "count": count, "lastTimestamp": timestamp() })
}

/// The first `limit` bytes, in whole characters.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &str, message: &str) -> Note {
        let object = ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "ns".into(),
            name: name.into(),
            uid: "u".into(),
        };
        Note { object, severity: Severity::Warning, reason: "Why".into(), message: message.into() }
    }

    #[test]
    fn the_name_depends_on_all_of_the_content() {
        let name = note("web-1", "m").event_name();
        assert_eq!(name, note("web-1", "m").event_name());
        assert_eq!(name.len(), "web-1.".len() + 16);
        assert_ne!(name, note("web-1", "n").event_name());
        let mut successor = note("web-1", "m");
        successor.object.uid = "v".into();
        assert_ne!(name, successor.event_name());
        // Boundaries between the parts count.
        let mut shifted = note("web-1", "");
        shifted.reason = "Whym".into();
        assert_ne!(name, shifted.event_name());
    }

    #[test]
    fn names_are_truncated_and_sanitized() {
        assert_eq!(note(&"a".repeat(400), "m").event_name().len(), LONGEST_NAME);
        assert!(note("system:node é", "m").event_name().starts_with("system-node."));
        assert!(note("", "m").event_name().starts_with("object."));
        let dotted = format!("{}.b", "a".repeat(LONGEST_NAME - 18));
        assert!(!note(&dotted, "m").event_name().contains(".."));
    }

    #[test]
    fn messages_are_truncated_at_a_character_boundary() {
        let event = note("x", &"é".repeat(1000)).event("c", "i", 1);
        assert_eq!(event["message"].as_str().unwrap().len(), LONGEST_MESSAGE);
        let event = note("x", &format!("a{}", "é".repeat(1000))).event("c", "i", 1);
        assert_eq!(event["message"].as_str().unwrap().len(), LONGEST_MESSAGE - 1);
        assert_eq!(cut("short", LONGEST_MESSAGE), "short");
    }

    #[test]
    fn events_of_cluster_scoped_objects_are_in_default() {
        let mut about_node = note("n1", "m");
        about_node.object.namespace = String::new();
        let event = about_node.event("c", "i", 1);
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["involvedObject"]["namespace"], "");
        let time = event["lastTimestamp"].as_str().unwrap();
        assert!(time.len() == "2026-01-01T00:00:00Z".len() && time.ends_with('Z'), "{time}");
    }
}
