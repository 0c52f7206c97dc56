//! The Secrets and the ConfigMap in the API.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use jiff::Timestamp;
use kubernetes::{Api, ApiError, ObjectReference};
use serde_json::{Map, Value, json};

use crate::apply::Write;
use crate::plan::Object;
use crate::stored::{AuthoritySet, Bundle, Data, Leaf, Observed, Requests, Stored};
use crate::{BUNDLE_KEY, CA_CONFIG_MAP, CA_SECRET, ISSUED_FOR, LEAF_SECRET, RETIRE, ROTATE_CA, ROTATE_LEAF};

/// Reads and writes the objects of one namespace.
#[derive(Debug, Clone)]
pub struct Store {
    api: Api,
    namespace: String,
}

/// Why the objects cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{object}: {error}")]
pub struct ReadError {
    /// Kind and name.
    pub object: &'static str,
    /// Cause.
    pub error: ApiError,
}

/// The objects as they were read.
#[derive(Debug, Clone)]
pub struct Objects {
    /// Their content.
    pub observed: Observed,
    raw: BTreeMap<Object, Value>,
}

impl Object {
    /// Kind, name and plural.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::CaSecret => ("Secret", CA_SECRET, "secrets"),
            Self::CaConfigMap => ("ConfigMap", CA_CONFIG_MAP, "configmaps"),
            Self::LeafSecret => ("Secret", LEAF_SECRET, "secrets"),
        }
    }
}

/// The object that a write concerns, for messages.
pub(super) fn object_of(write: &Write) -> &'static str {
    object(write).text()
}

fn object(write: &Write) -> Object {
    match write {
        Write::Authorities(_) => Object::CaSecret,
        Write::Bundle(_) => Object::CaConfigMap,
        Write::Leaf { .. } => Object::LeafSecret,
    }
}

impl Objects {
    /// For Events about an object; it may not exist yet.
    pub(super) fn reference(&self, object: Object, namespace: &str) -> ObjectReference {
        reference(object, namespace, self.raw.get(&object))
    }
}

fn reference(object: Object, namespace: &str, raw: Option<&Value>) -> ObjectReference {
    let (kind, name, _) = object.names();
    let uid = raw.and_then(|raw| raw["metadata"]["uid"].as_str()).unwrap_or_default();
    ObjectReference {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
    }
}

impl Store {
    /// Sends no request.
    pub fn new(api: Api, namespace: &str) -> Self {
        Self { api, namespace: namespace.to_owned() }
    }

    /// Reads all three, the CA last ([`Observed`]).
    pub async fn read(&self) -> Result<Objects, ReadError> {
        let mut raw = BTreeMap::new();
        for object in [Object::LeafSecret, Object::CaConfigMap, Object::CaSecret] {
            match self.get(object).await {
                Ok(Some(value)) => _ = raw.insert(object, value),
                Ok(None) => {}
                Err(error) => return Err(ReadError { object: object.text(), error }),
            }
        }
        Ok(Objects { observed: observed(|object| Ok(raw.get(&object))), raw })
    }

    /// Reads what this user may read. CAs that cannot be read are unusable.
    pub async fn read_allowed(&self) -> Result<Observed, ReadError> {
        let mut values = BTreeMap::new();
        for object in [Object::LeafSecret, Object::CaConfigMap, Object::CaSecret] {
            let value = match self.get(object).await {
                Ok(value) => Ok(value),
                Err(ApiError::Forbidden(why)) => Err(format!("you may not read it: {why}")),
                Err(error) => return Err(ReadError { object: object.text(), error }),
            };
            values.insert(object, value);
        }
        Ok(observed(|object| match values.get(&object) {
            Some(Ok(value)) => Ok(value.as_ref()),
            Some(Err(why)) => Err(why.clone()),
            None => Ok(None),
        }))
    }

    /// Writes one object, if it is still as it was read. The result is for Events about it.
    pub(super) async fn write(&self, write: &Write, objects: &Objects) -> Result<ObjectReference, ApiError> {
        let object = object(write);
        let (kind, name, _) = object.names();
        let collection = self.collection(object);
        let existing = objects.raw.get(&object);
        let mut value = existing.cloned().unwrap_or_else(|| {
            let mut new = json!({
                "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": self.namespace },
            });
            if kind == "Secret" {
                new["type"] = "kubernetes.io/tls".into();
            }
            new
        });
        match write {
            Write::Authorities(set) => {
                value["data"] = encoded(&set.data());
                let Requests { rotate_ca, rotate_leaf, retire } = &set.requests;
                annotate(&mut value, ROTATE_CA, rotate_ca.as_deref());
                annotate(&mut value, ROTATE_LEAF, rotate_leaf.as_deref());
                annotate(&mut value, RETIRE, retire.as_deref());
            }
            Write::Bundle(text) => value["data"][BUNDLE_KEY] = text.as_str().into(),
            Write::Leaf { pair, issued_for } => {
                value["data"] = encoded(&Leaf::data(pair));
                annotate(&mut value, ISSUED_FOR, issued_for.as_deref());
            }
        }
        let body = value.to_string().into_bytes();
        let response = match existing {
            Some(_) => self.api.put(&format!("{collection}/{name}"), body).await?,
            None => self.api.post(&collection, body).await?,
        };
        let written: Value = serde_json::from_slice(&response).unwrap_or_default();
        Ok(reference(object, &self.namespace, Some(&written)))
    }

    /// Sets annotations of Secret `ovn-ca`, which request a rotation.
    pub async fn request(&self, annotations: &[(&str, &str)]) -> Result<(), ApiError> {
        let annotations: Map<String, Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let body = json!({ "metadata": { "annotations": annotations } }).to_string().into_bytes();
        let path = format!("{}/{CA_SECRET}", self.collection(Object::CaSecret));
        self.api.patch(&path, kubernetes::Patch::Merge, body).await.map(drop)
    }

    /// The time of the API server, by the creation of an object that is not stored.
    pub(super) async fn server_time(&self) -> Result<Timestamp, ApiError> {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "ovnkube-pki-clock-" },
        });
        let path = format!("{}?dryRun=All", self.collection(Object::CaConfigMap));
        let response = self.api.post(&path, body.to_string().into_bytes()).await?;
        let value: Value =
            serde_json::from_slice(&response).map_err(|error| ApiError::Unreadable(error.to_string()))?;
        let time = value["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        time.parse().map_err(|error: jiff::Error| ApiError::Unreadable(error.to_string()))
    }

    /// Names of the pods that mount the Secret or the ConfigMap, by their owner.
    pub async fn users(&self) -> Result<BTreeMap<String, Vec<String>>, ApiError> {
        let response = self.api.get(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await?;
        let pods: Value = serde_json::from_slice(&response).map_err(|error| ApiError::Unreadable(error.to_string()))?;
        let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let mounts = pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| {
                volume["secret"]["secretName"] == LEAF_SECRET || volume["configMap"]["name"] == CA_CONFIG_MAP
            });
            if mounts {
                let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let metadata = &pod["metadata"];
                let owner = &metadata["ownerReferences"][0];
                let owner = format!("{}/{}", name(&owner["kind"]).to_lowercase(), name(&owner["name"]));
                users.entry(owner).or_default().push(name(&metadata["name"]));
            }
        }
        Ok(users)
    }

    fn collection(&self, object: Object) -> String {
        format!("/api/v1/namespaces/{}/{}", self.namespace, object.names().2)
    }

    async fn get(&self, object: Object) -> Result<Option<Value>, ApiError> {
        match self.api.get(&format!("{}/{}", self.collection(object), object.names().1)).await {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|error| ApiError::Unreadable(error.to_string()))
            }
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Parses the objects. `value` returns one as it was read: none if it is missing, an error if it could not be read.
fn observed<'a>(value: impl Fn(Object) -> Result<Option<&'a Value>, String>) -> Observed {
    Observed {
        authorities: parsed(value(Object::CaSecret), authorities),
        bundle: parsed(value(Object::CaConfigMap), bundle),
        leaf: parsed(value(Object::LeafSecret), leaf),
    }
}

fn parsed<T>(value: Result<Option<&Value>, String>, parse: impl Fn(&Value) -> Result<T, String>) -> Stored<T> {
    match value {
        Ok(None) => Stored::Missing,
        Ok(Some(value)) => parse(value).map_or_else(Stored::Unusable, Stored::Present),
        Err(why) => Stored::Unusable(why),
    }
}

fn authorities(value: &Value) -> Result<AuthoritySet, String> {
    let requests = Requests {
        rotate_ca: annotation(value, ROTATE_CA),
        rotate_leaf: annotation(value, ROTATE_LEAF),
        retire: annotation(value, RETIRE),
    };
    AuthoritySet::parse(&secret_data(value)?, requests)
}

fn bundle(value: &Value) -> Result<Bundle, String> {
    Ok(Bundle::parse(value["data"][BUNDLE_KEY].as_str().unwrap_or_default()))
}

fn leaf(value: &Value) -> Result<Leaf, String> {
    Leaf::parse(&secret_data(value)?, annotation(value, ISSUED_FOR))
}

fn annotation(value: &Value, key: &str) -> Option<String> {
    value["metadata"]["annotations"][key].as_str().map(str::to_owned)
}

fn annotate(value: &mut Value, key: &str, text: Option<&str>) {
    match text {
        Some(text) => value["metadata"]["annotations"][key] = text.into(),
        None => {
            if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
                annotations.remove(key);
            }
        }
    }
}

fn secret_data(value: &Value) -> Result<Data, String> {
    let entries = value["data"].as_object().into_iter().flatten();
    let decode = |(key, value): (&String, &Value)| {
        let text = value.as_str().unwrap_or_default();
        BASE64.decode(text).map(|bytes| (key.clone(), bytes)).map_err(|error| format!("{key}: {error}"))
    };
    entries.map(decode).collect()
}

fn encoded(data: &Data) -> Value {
    data.iter().map(|(key, value)| (key.clone(), Value::from(BASE64.encode(value)))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_set_and_removed() {
        let mut value = json!({"metadata": {"name": "n"}});
        annotate(&mut value, "a", None);
        annotate(&mut value, "a", Some("1"));
        assert_eq!(annotation(&value, "a"), Some("1".into()));
        annotate(&mut value, "a", None);
        assert_eq!(annotation(&value, "a"), None);
    }

    #[test]
    fn data_of_secrets_are_base64() {
        let data = Data::from([("k".to_owned(), b"\xffv".to_vec())]);
        assert_eq!(secret_data(&json!({ "data": encoded(&data) })), Ok(data));
        assert!(secret_data(&json!({"data": {"k": "é"}})).unwrap_err().starts_with("k: "));
        assert_eq!(secret_data(&json!({})), Ok(Data::new()));
    }
}
