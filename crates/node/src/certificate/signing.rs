//! CertificateSigningRequests of the Kubernetes API.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kubernetes::{Api, ApiError};
use pki::{CHASSIS_REQUEST_PREFIX, CHASSIS_SIGNER, CHASSIS_USAGES};
use serde::Deserialize;
use serde_json::json;

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The signer's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// None yet.
    Pending,
    /// The certificate, in PEM.
    Issued(Vec<u8>),
    /// It refuses, or could not issue one: `reason: message`.
    Refused(String),
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    certificate: String,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Creates the object of a request; returns its name.
pub(super) async fn create(api: &Api, request: &str) -> Result<String, ApiError> {
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": CHASSIS_REQUEST_PREFIX},
        "spec": {
            "request": BASE64_STANDARD.encode(request),
            "signerName": CHASSIS_SIGNER,
            "usages": CHASSIS_USAGES,
        },
    });
    let created = api.post(PATH, body.to_string().into_bytes()).await?;
    let object: Object = parse(&created)?;
    Ok(object.metadata.name)
}

/// Reads the answer.
pub(super) async fn answer(api: &Api, name: &str) -> Result<Answer, ApiError> {
    answer_in(&api.get(&format!("{PATH}/{name}")).await?)
}

fn answer_in(object: &[u8]) -> Result<Answer, ApiError> {
    let Status { certificate, conditions } = parse::<Object>(object)?.status;
    // A denied request may not be signed, but the API does not prevent it.
    let refused = conditions.iter().find(|condition| matches!(condition.kind.as_str(), "Denied" | "Failed"));
    if let Some(Condition { reason, message, .. }) = refused {
        return Ok(Answer::Refused(format!("{reason}: {message}")));
    }
    if certificate.is_empty() {
        return Ok(Answer::Pending);
    }
    let decoded = BASE64_STANDARD.decode(certificate);
    decoded.map(Answer::Issued).map_err(|error| ApiError::Unreadable(format!("status.certificate: {error}")))
}

fn parse<'a, T: Deserialize<'a>>(object: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(object).map_err(|error| ApiError::Unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_in_the_status() {
        let answer = |status: &str| answer_in(format!(r#"{{"metadata":{{"name":"x"}}{status}}}"#).as_bytes());
        assert_eq!(answer(""), Ok(Answer::Pending));
        assert_eq!(answer(r#","status":{}"#), Ok(Answer::Pending));
        let approved = r#","status":{"conditions":[{"type":"Approved","status":"True"}]}"#;
        assert_eq!(answer(approved), Ok(Answer::Pending));
        assert_eq!(answer(r#","status":{"certificate":"UEVN"}"#), Ok(Answer::Issued(b"PEM".into())));
        for kind in ["Denied", "Failed"] {
            let status = format!(
                r#","status":{{"certificate":"UEVN","conditions":[{{"type":"{kind}","reason":"Taken","message":"c1 is of n2"}}]}}"#
            );
            assert_eq!(answer(&status), Ok(Answer::Refused("Taken: c1 is of n2".into())));
        }
        assert!(matches!(answer(r#","status":{"certificate":"§"}"#), Err(ApiError::Unreadable(_))));
        assert!(matches!(answer_in(b"{}"), Err(ApiError::Unreadable(_))));
    }
}
