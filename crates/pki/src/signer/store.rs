//! The Secrets and ConfigMaps in the API.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use jiff::Timestamp;
use kubernetes::{Api, ApiError, ObjectReference};
use serde_json::{Map, Value, json};

use crate::apply::Write;
use crate::chassis::{NodeCertificate, Record, Revoked};
use crate::domain::{Domain, Object};
use crate::stored::{AuthoritySet, Bundle, Data, Issued, Leaf, Observed, Requests, Stored};
use crate::{BUNDLE_KEY, CA_CONFIG_MAP, ISSUED_FOR, LEAF_SECRET, RETIRE, REVOKED_KEY, ROTATE_CA, ROTATE_LEAF};

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
    /// Which one.
    pub object: Object,
    /// Cause.
    pub error: ApiError,
}

/// The objects of a domain as they were read.
#[derive(Debug, Clone)]
pub struct Objects {
    /// Their content.
    pub observed: Observed,
    raw: BTreeMap<Object, Value>,
}

impl Object {
    fn plural(self) -> &'static str {
        if self.kind() == "Secret" { "secrets" } else { "configmaps" }
    }
}

impl Objects {
    /// The object that a write concerns.
    pub(super) fn object_of(&self, write: &Write) -> Object {
        let domain = self.observed.domain();
        match write {
            Write::Authorities(_) => domain.secret(),
            Write::Bundle(_) => domain.config_map(),
            Write::Leaf { .. } => Object::LeafSecret,
        }
    }

    /// For Events about an object; it may not exist yet.
    pub(super) fn reference(&self, object: Object, namespace: &str) -> ObjectReference {
        reference(object, namespace, self.raw.get(&object))
    }

    /// The record of node certificates.
    pub fn record(&self) -> Record {
        self.raw.get(&Object::ChassisConfigMap).map(record).unwrap_or_default()
    }

    /// The revoked node certificates.
    pub fn revoked(&self) -> Revoked {
        Revoked::parse(self.raw.get(&Object::NodeCaConfigMap).map(revoked_text).unwrap_or_default())
    }
}

fn reference(object: Object, namespace: &str, raw: Option<&Value>) -> ObjectReference {
    let uid = raw.and_then(|raw| raw["metadata"]["uid"].as_str()).unwrap_or_default();
    ObjectReference {
        api_version: "v1".into(),
        kind: object.kind().into(),
        namespace: namespace.into(),
        name: object.name().into(),
        uid: uid.into(),
    }
}

fn objects_of(domain: Domain) -> [Object; 3] {
    [domain.issued(), domain.config_map(), domain.secret()]
}

impl Store {
    /// Sends no request.
    pub fn new(api: Api, namespace: &str) -> Self {
        Self { api, namespace: namespace.to_owned() }
    }

    /// Reads all three of a domain, the CA last ([`Observed`]).
    pub async fn read(&self, domain: Domain) -> Result<Objects, ReadError> {
        let mut raw = BTreeMap::new();
        for object in objects_of(domain) {
            match self.get(object).await {
                Ok(Some(value)) => _ = raw.insert(object, value),
                Ok(None) => {}
                Err(error) => return Err(ReadError { object, error }),
            }
        }
        Ok(Objects { observed: observed(domain, |object| Ok(raw.get(&object))), raw })
    }

    /// Reads what this user may read. What cannot be read is unusable.
    pub async fn read_allowed(&self, domain: Domain) -> Result<Objects, ReadError> {
        let (mut raw, mut forbidden) = (BTreeMap::new(), BTreeMap::new());
        for object in objects_of(domain) {
            match self.get(object).await {
                Ok(Some(value)) => _ = raw.insert(object, value),
                Ok(None) => {}
                Err(ApiError::Forbidden(why)) => _ = forbidden.insert(object, format!("you may not read it: {why}")),
                Err(error) => return Err(ReadError { object, error }),
            }
        }
        let observed = observed(domain, |object| match forbidden.get(&object) {
            Some(why) => Err(why.clone()),
            None => Ok(raw.get(&object)),
        });
        Ok(Objects { observed, raw })
    }

    /// Writes one object, if it is still as it was read. The result is for Events about it.
    pub(super) async fn write(&self, write: &Write, objects: &Objects) -> Result<ObjectReference, ApiError> {
        self.change(objects.object_of(write), objects, |value| match write {
            Write::Authorities(set) => {
                value["data"] = encoded(&set.data());
                let Requests { rotate_ca, rotate_leaf, retire } = &set.requests;
                annotate(value, ROTATE_CA, rotate_ca.as_deref());
                annotate(value, ROTATE_LEAF, rotate_leaf.as_deref());
                annotate(value, RETIRE, retire.as_deref());
            }
            // Other keys stay: that of the nodes' CA also has the revoked certificates.
            Write::Bundle(text) => value["data"][BUNDLE_KEY] = text.as_str().into(),
            Write::Leaf { pair, issued_for } => {
                value["data"] = encoded(&Leaf::data(pair));
                annotate(value, ISSUED_FOR, issued_for.as_deref());
            }
        })
        .await
    }

    /// Writes the record of node certificates, if it is still as it was read.
    pub(super) async fn write_record(&self, record: &Record, objects: &Objects) -> Result<ObjectReference, ApiError> {
        let data = record.data().into_iter().map(|(chassis, text)| (chassis, Value::from(text)));
        let data = data.collect::<Map<_, _>>();
        self.change(Object::ChassisConfigMap, objects, |value| value["data"] = data.into()).await
    }

    /// Adds certificates to the revoked ones, with a text about each, and removes those that have expired. Fails with
    /// [`ApiError::Conflict`] if the ConfigMap has changed since it was read.
    pub async fn revoke(&self, certificates: &[(NodeCertificate, String)], objects: &Objects) -> Result<(), ApiError> {
        let change = |value: &mut Value| {
            let mut text = Revoked::without_expired(revoked_text(value), Timestamp::now());
            for (certificate, of) in certificates {
                text = Revoked::add(&text, certificate, of);
            }
            value["data"][REVOKED_KEY] = text.into();
        };
        self.change(Object::NodeCaConfigMap, objects, change).await.map(drop)
    }

    async fn change(
        &self,
        object: Object,
        objects: &Objects,
        change: impl FnOnce(&mut Value),
    ) -> Result<ObjectReference, ApiError> {
        let (kind, name) = (object.kind(), object.name());
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
        change(&mut value);
        let body = value.to_string().into_bytes();
        let response = match existing {
            Some(_) => self.api.put(&format!("{collection}/{name}"), body).await?,
            None => self.api.post(&collection, body).await?,
        };
        let written: Value = serde_json::from_slice(&response).unwrap_or_default();
        Ok(reference(object, &self.namespace, Some(&written)))
    }

    /// Sets annotations of the Secret of a domain's CAs, which request a rotation.
    pub async fn request(&self, domain: Domain, annotations: &[(&str, &str)]) -> Result<(), ApiError> {
        let annotations: Map<String, Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let body = json!({ "metadata": { "annotations": annotations } }).to_string().into_bytes();
        let path = format!("{}/{}", self.collection(domain.secret()), domain.name());
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
        format!("/api/v1/namespaces/{}/{}", self.namespace, object.plural())
    }

    async fn get(&self, object: Object) -> Result<Option<Value>, ApiError> {
        match self.api.get(&format!("{}/{}", self.collection(object), object.name())).await {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|error| ApiError::Unreadable(error.to_string()))
            }
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Parses the objects. `value` returns one as it was read: none if it is missing, an error if it could not be read.
fn observed<'a>(domain: Domain, value: impl Fn(Object) -> Result<Option<&'a Value>, String>) -> Observed {
    let issued = match domain {
        Domain::ControlPlane => Issued::Published(Box::new(parsed(value(Object::LeafSecret), leaf))),
        Domain::Nodes => {
            let record = value(Object::ChassisConfigMap).ok().flatten().map(record);
            Issued::OnRequest(record.map(|record| record.issuances()).unwrap_or_default())
        }
    };
    Observed {
        authorities: parsed(value(domain.secret()), authorities),
        bundle: parsed(value(domain.config_map()), bundle),
        issued,
    }
}

fn record(value: &Value) -> Record {
    let data = value["data"].as_object().into_iter().flatten();
    Record::parse(data.map(|(chassis, text)| (chassis.as_str(), text.as_str().unwrap_or_default())))
}

fn revoked_text(value: &Value) -> &str {
    value["data"][REVOKED_KEY].as_str().unwrap_or_default()
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
