//! A Lease object: parsed leniently, written as client-go writes it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

/// A Lease as read. Unknown parts (labels, owners, newer fields) are written back unchanged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    object: Value,
}

/// The part that a holder changes with every renewal; not labels and annotations.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term(Value);

impl Record {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let object: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if object.is_object() { Ok(Self { object }) } else { Err("a Lease is not an object".into()) }
    }

    pub(crate) fn term(&self) -> Term {
        Term(self.object["spec"].clone())
    }

    /// Identity of the holder; empty if there is none.
    pub(crate) fn holder(&self) -> &str {
        self.object["spec"]["holderIdentity"].as_str().unwrap_or_default()
    }

    /// Time of the renewal, as the holder wrote it.
    pub(crate) fn renew_time(&self) -> &str {
        self.object["spec"]["renewTime"].as_str().unwrap_or_default()
    }

    /// Lease duration in seconds, unchecked.
    pub(crate) fn seconds(&self) -> &Value {
        &self.object["spec"]["leaseDurationSeconds"]
    }

    fn transitions(&self) -> i64 {
        self.object["spec"]["leaseTransitions"].as_i64().unwrap_or(0).clamp(0, i64::from(i32::MAX))
    }

    /// A new Lease, held by us.
    pub(crate) fn first(namespace: &str, name: &str, identity: &str, duration: Duration) -> Self {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "namespace": namespace, "name": name },
        });
        let now = micro_time(Timestamp::now(), "");
        Self { object }.with(identity, duration, &now, &now, 0)
    }

    /// The same Lease, held by us from now on.
    pub(crate) fn taken(&self, identity: &str, duration: Duration) -> Self {
        let now = micro_time(Timestamp::now(), self.renew_time());
        // A holder that takes its own Lease again is not a transition.
        let transitions = self.transitions() + i64::from(self.holder() != identity);
        self.with(identity, duration, &now, &now, transitions.min(i64::from(i32::MAX)))
    }

    /// The same Lease, renewed.
    pub(crate) fn renewed(&self, identity: &str, duration: Duration) -> Self {
        let now = micro_time(Timestamp::now(), self.renew_time());
        let acquired = self.object["spec"]["acquireTime"].as_str().unwrap_or(&now);
        self.with(identity, duration, acquired, &now, self.transitions())
    }

    /// The same Lease, without a holder.
    pub(crate) fn released(&self) -> Self {
        let now = micro_time(Timestamp::now(), self.renew_time());
        self.with("", Duration::from_secs(1), &now, &now, self.transitions())
    }

    /// JSON with the resourceVersion that was read, so that a concurrent change makes the write fail.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.object.to_string().into_bytes()
    }

    fn with(&self, holder: &str, duration: Duration, acquired: &str, renewed: &str, transitions: i64) -> Self {
        let mut object = self.object.clone();
        if !object["spec"].is_object() {
            object["spec"] = json!({});
        }
        object["spec"]["holderIdentity"] = holder.into();
        object["spec"]["leaseDurationSeconds"] = whole_seconds(duration).into();
        object["spec"]["acquireTime"] = acquired.into();
        object["spec"]["renewTime"] = renewed.into();
        object["spec"]["leaseTransitions"] = transitions.into();
        Self { object }
    }
}

/// Rounded up: no other process may take the Lease before its holder expects it.
fn whole_seconds(duration: Duration) -> u64 {
    (duration.as_secs() + u64::from(duration.subsec_nanos() > 0)).max(1)
}

/// A MicroTime as client-go writes it. Always differs from `before`, even if the clock stands still: others detect a
/// renewal by the change.
fn micro_time(now: Timestamp, before: &str) -> String {
    let text = format!("{now:.6}");
    if text != before {
        return text;
    }
    now.checked_add(Duration::from_micros(1)).map_or(text, |later| format!("{later:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: &str = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",
        "metadata":{"name":"x","namespace":"n","resourceVersion":"5","labels":{"keep":"me"}},
        "spec":{"holderIdentity":"a","leaseDurationSeconds":4,"leaseTransitions":3,
                "acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:09.000000Z","strategy":"odd"}}"#;

    fn spec(record: &Record, field: &str) -> Value {
        record.object["spec"][field].clone()
    }

    #[test]
    fn writes_match_those_of_client_go() {
        let lease = Record::read(LEASE).unwrap();
        let taken = lease.taken("b", Duration::from_millis(3500));
        assert_eq!(taken.holder(), "b");
        assert_eq!(spec(&taken, "leaseDurationSeconds"), 4);
        assert_eq!(spec(&taken, "leaseTransitions"), 4);
        assert_eq!(spec(&taken, "acquireTime"), spec(&taken, "renewTime"));
        assert_eq!(spec(&taken, "strategy"), "odd");
        assert_eq!(taken.object["metadata"], lease.object["metadata"]);
        let renewed = taken.renewed("b", Duration::from_secs(4));
        assert_eq!(spec(&renewed, "acquireTime"), spec(&taken, "acquireTime"));
        assert_ne!(renewed.renew_time(), taken.renew_time());
        assert_eq!(spec(&renewed, "leaseTransitions"), 4);
        let released = renewed.released();
        assert_eq!(released.holder(), "");
        assert_eq!(spec(&released, "leaseDurationSeconds"), 1);
        assert_eq!(spec(&released, "leaseTransitions"), 4);
        assert_eq!(spec(&lease.taken("a", Duration::from_secs(4)), "leaseTransitions"), 3);
    }

    #[test]
    fn times_have_six_digits_and_never_repeat() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(micro_time(now, ""), "2026-01-01T00:00:00.000000Z");
        assert_eq!(micro_time(now, "2026-01-01T00:00:00.000000Z"), "2026-01-01T00:00:00.000001Z");
    }

    #[test]
    fn invalid_fields_are_treated_as_missing_and_corrected() {
        for odd in [
            r#"{}"#,
            r#"{"spec":null}"#,
            r#"{"spec":[]}"#,
            r#"{"spec":{"holderIdentity":7,"leaseTransitions":"x","renewTime":{},"acquireTime":[]}}"#,
            r#"{"spec":{"leaseTransitions":-5}}"#,
        ] {
            let record = Record::read(odd).unwrap();
            assert_eq!((record.holder(), record.renew_time()), ("", ""), "{odd}");
            let taken = record.taken("b", Duration::from_secs(4));
            assert_eq!((taken.holder(), spec(&taken, "leaseTransitions")), ("b", 1.into()), "{odd}");
        }
        let most = Record::read(&format!(r#"{{"spec":{{"leaseTransitions":{}}}}}"#, i32::MAX)).unwrap();
        assert_eq!(spec(&most.taken("b", Duration::from_secs(4)), "leaseTransitions"), i32::MAX);
        for wrong in ["", "[]", "7", "null"] {
            assert!(Record::read(wrong).is_err(), "{wrong}");
        }
    }
}
