//! Requests of nodes in the API: `CertificateSigningRequest` objects, and the Nodes that they are for.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use jiff::Timestamp;
use kubernetes::{Api, ApiError, Resource};
use serde_json::{Value, json};

use crate::chassis::{ChassisRequest, KnownNode, LONGEST_REQUEST};
use crate::{CHASSIS_ANNOTATION, CHASSIS_SIGNER};

const GROUP: &str = "/apis/certificates.k8s.io/v1";
const PLURAL: &str = "certificatesigningrequests";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
/// Reason of the condition of a request that is granted.
const GRANTED: &str = "ChassisOfTheRequester";

/// A request and what has happened to it.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) request: ChassisRequest,
    /// It has a certificate, or was denied, or has failed.
    pub(super) is_finished: bool,
}

/// All requests to this signer.
pub(super) fn requests() -> Resource {
    Resource::all(GROUP, PLURAL).fields(&format!("spec.signerName={CHASSIS_SIGNER}"))
}

/// All Nodes, without spec and status.
pub(super) fn nodes() -> Resource {
    Resource::all("/api/v1", "nodes").metadata_only()
}

/// Parses a request.
pub(super) fn pending(text: &str) -> Result<(String, Pending), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let string = |value: &Value| value.as_str().map(str::to_owned);
    let (metadata, spec) = (&value["metadata"], &value["spec"]);
    let name = string(&metadata["name"]).ok_or("no name")?;
    let created = metadata["creationTimestamp"].as_str().unwrap_or_default();
    let created: Timestamp = created.parse().map_err(|error: jiff::Error| error.to_string())?;
    let usages = spec["usages"].as_array().into_iter().flatten().filter_map(string).collect();
    let is_finished = is_finished(&value);
    // Finished requests stay in the API for an hour, and can have a megabyte each: they are kept without it.
    let encoded = spec["request"].as_str().filter(|_| !is_finished).unwrap_or_default();
    let mut request = BASE64.decode(encoded).unwrap_or_default();
    // Of one that is too long, enough to see that it is.
    request.truncate(LONGEST_REQUEST + 1);
    request.shrink_to_fit();
    let request = ChassisRequest {
        name: name.clone(),
        uid: string(&metadata["uid"]).unwrap_or_default(),
        created,
        username: string(&spec["username"]).unwrap_or_default(),
        node: string(&spec["extra"][NODE_NAME][0]),
        node_uid: string(&spec["extra"][NODE_UID][0]),
        usages,
        request,
    };
    Ok((name, Pending { request, is_finished }))
}

fn is_finished(request: &Value) -> bool {
    let certificate = request["status"]["certificate"].as_str().unwrap_or_default();
    !certificate.is_empty() || has(request, "Denied") || has(request, "Failed")
}

/// Parses a Node.
pub(super) fn node(text: &str) -> Result<(String, KnownNode), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let metadata = &value["metadata"];
    let string = |value: &Value| value.as_str().map(str::to_owned);
    let name = string(&metadata["name"]).ok_or("no name")?;
    let chassis = string(&metadata["annotations"][CHASSIS_ANNOTATION]).filter(|chassis| !chassis.is_empty());
    Ok((name, KnownNode { uid: string(&metadata["uid"]).ok_or("no UID")?, chassis }))
}

fn has(request: &Value, condition: &str) -> bool {
    let conditions = request["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == condition)
}

/// A condition, with texts as short as the API demands.
fn condition(kind: &str, reason: &str, message: &str) -> Value {
    let now = kubernetes::timestamp();
    json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now })
}

fn add(request: &mut Value, condition: Value) {
    if !request["status"].is_object() {
        request["status"] = json!({});
    }
    match request["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => request["status"]["conditions"] = json!([condition]),
    }
}

/// Path of a request. Its name may have any character but `/` and `%`.
fn path(name: &str) -> String {
    let escaped = name.bytes().map(|byte| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    format!("{GROUP}/{PLURAL}/{}", escaped.collect::<String>())
}

fn parsed(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::Unreadable(error.to_string()))
}

/// The Node as it is now; `None` if it does not exist.
pub(super) async fn current_node(api: &Api, name: &str) -> Result<Option<KnownNode>, ApiError> {
    let text = match api.get(&format!("/api/v1/nodes/{name}")).await {
        Ok(text) => text,
        Err(ApiError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8(text).map_err(|error| ApiError::Unreadable(error.to_string()))?;
    node(&text).map(|(_, node)| Some(node)).map_err(ApiError::Unreadable)
}

/// Approves a request and hands the certificate out. Nothing happens to one that was denied or deleted meanwhile, or created anew.
pub(super) async fn grant(api: &Api, request: &ChassisRequest, message: &str, pem: &str) -> Result<bool, ApiError> {
    let Some(mut value) = current(api, request).await? else { return Ok(false) };
    let path = path(&request.name);
    if !has(&value, "Approved") {
        add(&mut value, condition("Approved", GRANTED, message));
        value = parsed(&api.put(&format!("{path}/approval"), value.to_string().into_bytes()).await?)?;
    }
    value["status"]["certificate"] = BASE64.encode(pem).into();
    api.put(&format!("{path}/status"), value.to_string().into_bytes()).await?;
    Ok(true)
}

/// Denies a request; one that an administrator approved fails instead.
pub(super) async fn deny(api: &Api, request: &ChassisRequest, reason: &str, message: &str) -> Result<bool, ApiError> {
    let Some(mut value) = current(api, request).await? else { return Ok(false) };
    let (kind, part) = if has(&value, "Approved") { ("Failed", "status") } else { ("Denied", "approval") };
    add(&mut value, condition(kind, reason, message));
    api.put(&format!("{}/{part}", path(&request.name)), value.to_string().into_bytes()).await?;
    Ok(true)
}

async fn current(api: &Api, request: &ChassisRequest) -> Result<Option<Value>, ApiError> {
    let text = match api.get(&path(&request.name)).await {
        Ok(text) => text,
        Err(ApiError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let value = parsed(&text)?;
    let is_open = value["metadata"]["uid"] == request.uid && !is_finished(&value);
    Ok(is_open.then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_with_the_node_of_its_token() {
        let mut value = json!({
            "metadata": {"name": "r", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"username": "n", "usages": ["client auth"], "request": BASE64.encode("pem"),
                "extra": {NODE_NAME: ["n1"], NODE_UID: ["nu"]}},
        });
        let (name, read) = pending(&value.to_string()).unwrap();
        let request = &read.request;
        assert_eq!((name.as_str(), request.request.as_slice(), read.is_finished), ("r", &b"pem"[..], false));
        assert_eq!((request.node.as_deref(), request.node_uid.as_deref()), (Some("n1"), Some("nu")));
        add(&mut value, condition("Approved", "A", "m"));
        assert!(!pending(&value.to_string()).unwrap().1.is_finished, "approved, but not signed");
        add(&mut value, condition("Failed", "A", "m"));
        assert!(pending(&value.to_string()).unwrap().1.is_finished);
        assert!(pending("{}").is_err() && pending("").is_err());
    }

    #[test]
    fn a_node_announces_its_chassis_or_not() {
        let read = |annotations: Value| {
            node(&json!({"metadata": {"name": "n1", "uid": "u", "annotations": annotations}}).to_string()).unwrap().1
        };
        assert_eq!(read(json!({CHASSIS_ANNOTATION: "c"})).chassis.as_deref(), Some("c"));
        assert_eq!(read(json!({CHASSIS_ANNOTATION: ""})).chassis, None);
        assert_eq!(read(Value::Null).chassis, None);
    }

    #[test]
    fn names_of_requests_are_escaped() {
        assert_eq!(path("a-b.c"), "/apis/certificates.k8s.io/v1/certificatesigningrequests/a-b.c");
        assert!(path("a b?é:").ends_with("/a%20b%3F%C3%A9%3A"));
    }
}
