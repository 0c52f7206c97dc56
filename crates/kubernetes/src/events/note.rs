//! One thing to tell about one object, and the Event that says it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::timestamp;

/// The longest message that Kubernetes' own recorders write.
const LONGEST_MESSAGE: usize = 1024;
/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The object that an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ObjectReference {
    /// As in `v1` or `k8s.ovn.org/v1`.
    pub api_version: String,
    /// As in `Pod`.
    pub kind: String,
    /// Empty for objects of the whole cluster, whose Events are in `default`.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; `kubectl describe` shows only Events of this incarnation.
    pub uid: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

/// One thing to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// About what.
    pub object: ObjectReference,
    /// How bad it is.
    pub severity: Severity,
    /// One word for machines, as in `ErrorAllocatingIP`.
    pub reason: String,
    /// A sentence for people; cut at 1024 bytes.
    pub message: String,
}

impl Note {
    /// Where its Event lives.
    pub(crate) fn namespace(&self) -> &str {
        if self.object.namespace.is_empty() { "default" } else { &self.object.namespace }
    }

    /// The Event's name: the same for the same thing, in every process and after every restart.
    pub(crate) fn event_name(&self) -> String {
        let mut hash = Sha256::new();
        let ObjectReference { api_version, kind, namespace, name, uid } = &self.object;
        for part in [api_version, kind, namespace, name, uid, &self.reason, &self.message] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let hash: String = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        // Names of some types allow what names of Events do not.
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

    /// A new Event.
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

/// What changes in an Event when the same happens again.
pub(crate) fn again(count: u64) -> Value {
    json!({ "count": count, "lastTimestamp": timestamp() })
}

/// The beginning of a text, in whole characters.
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
    fn the_same_thing_has_the_same_name_and_another_another() {
        let name = note("web-1", "m").event_name();
        assert_eq!(name, note("web-1", "m").event_name());
        assert_eq!(name.len(), "web-1.".len() + 16);
        assert_ne!(name, note("web-1", "n").event_name());
        let mut successor = note("web-1", "m");
        successor.object.uid = "v".into();
        assert_ne!(name, successor.event_name());
        // Where one part ends and the next begins matters.
        let mut shifted = note("web-1", "");
        shifted.reason = "Whym".into();
        assert_ne!(name, shifted.event_name());
    }

    #[test]
    fn names_are_cut_and_made_fit() {
        assert_eq!(note(&"a".repeat(400), "m").event_name().len(), LONGEST_NAME);
        assert!(note("system:node é", "m").event_name().starts_with("system-node."));
        assert!(note("", "m").event_name().starts_with("object."));
        let dotted = format!("{}.b", "a".repeat(LONGEST_NAME - 18));
        assert!(!note(&dotted, "m").event_name().contains(".."));
    }

    #[test]
    fn messages_are_cut_between_characters() {
        let event = note("x", &"é".repeat(1000)).event("c", "i", 1);
        assert_eq!(event["message"].as_str().unwrap().len(), LONGEST_MESSAGE);
        let event = note("x", &format!("a{}", "é".repeat(1000))).event("c", "i", 1);
        assert_eq!(event["message"].as_str().unwrap().len(), LONGEST_MESSAGE - 1);
        assert_eq!(cut("short", LONGEST_MESSAGE), "short");
    }

    #[test]
    fn events_of_cluster_wide_objects_are_in_default() {
        let mut about_node = note("n1", "m");
        about_node.object.namespace = String::new();
        let event = about_node.event("c", "i", 1);
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["involvedObject"]["namespace"], "");
        let time = event["lastTimestamp"].as_str().unwrap();
        assert!(time.len() == "2026-01-01T00:00:00Z".len() && time.ends_with('Z'), "{time}");
    }
}
