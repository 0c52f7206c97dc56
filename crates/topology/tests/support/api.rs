//! A simulated API server: objects, a history of events, and patches with a UID precondition.

use std::collections::BTreeMap;
use std::sync::Arc;

use objects::{Condition, ObjectKey, ObjectKind, POD_NETWORKS, READY, record_network};
use serde_json::{Value, json};
use topology::engine::Observed;

/// Kind, namespace, name.
pub(crate) type Key = (ObjectKind, String, String);

#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) key: Key,
    /// The new object; the last one for a deletion.
    pub(crate) object: Arc<Value>,
    pub(crate) gone: bool,
}

#[derive(Default)]
pub(crate) struct Api {
    pub(crate) objects: BTreeMap<Key, Arc<Value>>,
    pub(crate) history: Vec<Event>,
    uids: u64,
    clock: u64,
}

impl Api {
    pub(crate) fn create(&mut self, kind: ObjectKind, namespace: &str, name: &str, mut object: Value) -> bool {
        let key = (kind, namespace.to_owned(), name.to_owned());
        if self.objects.contains_key(&key) {
            return false;
        }
        self.uids += 1;
        self.clock += 1;
        object["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        object["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:00.{:06}Z", self.clock));
        self.put(key, object);
        true
    }

    fn put(&mut self, key: Key, object: Value) {
        if std::env::var("SIMULATION_TRACE").is_ok() {
            eprintln!("-- object {key:?} {object}");
        }
        let object = Arc::new(object);
        self.objects.insert(key.clone(), object.clone());
        self.history.push(Event { key, object, gone: false });
    }

    pub(crate) fn change(&mut self, key: &Key, change: impl FnOnce(&mut Value)) {
        if let Some(object) = self.objects.get(key) {
            let mut changed = (**object).clone();
            change(&mut changed);
            if changed["spec"] != object["spec"] {
                let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
                changed["metadata"]["generation"] = json!(generation + 1);
            }
            if changed != **object {
                self.put(key.clone(), changed);
            }
        }
    }

    pub(crate) fn delete(&mut self, key: &Key) {
        if let Some(object) = self.objects.remove(key) {
            if std::env::var("SIMULATION_TRACE").is_ok() {
                eprintln!("-- gone {key:?} {}", object["metadata"]["uid"]);
            }
            self.history.push(Event { key: key.clone(), object, gone: true });
        }
    }

    /// Writes annotations onto the object with this UID; false if there is none.
    pub(crate) fn annotate(&mut self, key: &Key, uid: &str, annotations: &[(&'static str, String)]) -> bool {
        if self.objects.get(key).is_none_or(|object| object["metadata"]["uid"] != uid) {
            return false;
        }
        self.change(key, |object| {
            for (key, value) in annotations {
                object["metadata"]["annotations"][*key] = json!(value);
                if *key == POD_NETWORKS {
                    record_network(object, value);
                }
            }
        });
        true
    }

    /// Writes a policy's condition onto the object with this UID; false if there is none.
    pub(crate) fn write_condition(&mut self, key: &Key, uid: &str, said: &Condition) -> bool {
        if self.objects.get(key).is_none_or(|object| object["metadata"]["uid"] != uid) {
            return false;
        }
        let now = format!("2026-01-02T00:00:00.{:06}Z", self.history.len());
        let since = if said.since.is_empty() { now } else { said.since.to_string() };
        let condition = json!({"type": READY, "status": if said.ready { "True" } else { "False" }, "reason": said.reason,
            "message": said.message, "observedGeneration": said.generation, "lastTransitionTime": since});
        self.change(key, |object| object["status"]["conditions"] = json!([condition]));
        true
    }

    /// Writes a node's `NetworkUnavailable` onto the object with this UID; false if there is none.
    pub(crate) fn write_network_unavailable(&mut self, key: &Key, uid: &str, available: bool) -> bool {
        if self.objects.get(key).is_none_or(|object| object["metadata"]["uid"] != uid) {
            return false;
        }
        self.change(key, |object| {
            let said = json!({"type": "NetworkUnavailable", "status": if available { "False" } else { "True" }});
            let ready = match &object["status"]["conditions"][0] {
                Value::Null => json!({"type": "Ready", "status": "True"}),
                ready => ready.clone(),
            };
            object["status"]["conditions"] = json!([ready, said]);
        });
        true
    }

    pub(crate) fn keys(&self, kind: ObjectKind) -> Vec<Key> {
        self.objects.keys().filter(|key| key.0 == kind).cloned().collect()
    }
}

/// The event as a controller observes it.
pub(crate) fn observed(event: &Event) -> Observed {
    let text = event.object.to_string();
    let uid = || Some(event.object["metadata"]["uid"].as_str().unwrap().into());
    let (_, namespace, name) = &event.key;
    let kind = event.key.0;
    if event.gone {
        return Observed::Gone(kind, Arc::new(ObjectKey::new(namespace, name)), uid());
    }
    Observed::reader(kind)(&text).unwrap()
}

/// A controller's position in the history, by kind.
#[derive(Clone, Default)]
pub(crate) struct Watches {
    cursors: BTreeMap<ObjectKind, usize>,
}

pub(crate) const KINDS: [ObjectKind; 8] = ObjectKind::ALL;

impl Watches {
    /// Lists a kind.
    pub(crate) fn list(&mut self, api: &Api, kind: ObjectKind) -> Vec<Observed> {
        self.cursors.insert(kind, api.history.len());
        let mut all = vec![Observed::Relisting(kind)];
        for (key, object) in api.objects.iter().filter(|(key, _)| key.0 == kind) {
            all.push(observed(&Event { key: key.clone(), object: object.clone(), gone: false }));
        }
        all.push(Observed::Listed(kind));
        all
    }

    /// The next events of a kind, at most `most`.
    pub(crate) fn next(&mut self, api: &Api, kind: ObjectKind, most: usize) -> Vec<Observed> {
        let cursor = self.cursors.entry(kind).or_default();
        let mut events = Vec::new();
        while *cursor < api.history.len() && events.len() < most {
            let event = &api.history[*cursor];
            if event.key.0 == kind {
                events.push(observed(event));
            }
            *cursor += 1;
        }
        events
    }
}
