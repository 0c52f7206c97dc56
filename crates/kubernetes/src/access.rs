//! Authentication and authorization of other clients, as kube-rbac-proxy does it: the API server reviews a bearer token, then
//! what its owner may do. Needs the ClusterRole `system:auth-delegator`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Api, ApiError};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The owner of a token, as the API server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct TokenOwner {
    /// Name, such as `system:serviceaccount:monitoring:prometheus`.
    #[serde(default, alias = "username", rename(serialize = "user"))]
    pub name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

impl Api {
    /// The owner of a bearer token; `None` if the token is invalid.
    pub async fn review_token(&self, token: &str) -> Result<Option<TokenOwner>, ApiError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
        });
        owner(&self.post(TOKEN_REVIEWS, review.to_string().into_bytes()).await?)
    }

    /// Whether the owner of a token may use this verb on a path that is not a resource, such as `get` on `/metrics`.
    pub async fn review_access(&self, owner: &TokenOwner, verb: &str, path: &str) -> Result<bool, ApiError> {
        let review = access_review(owner, verb, path).to_string().into_bytes();
        allowed(&self.post(ACCESS_REVIEWS, review).await?)
    }
}

#[derive(Deserialize)]
struct Review<S> {
    #[serde(default)]
    status: S,
}

#[derive(Default, Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: Option<TokenOwner>,
}

#[derive(Default, Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
}

fn owner(response: &[u8]) -> Result<Option<TokenOwner>, ApiError> {
    let review: Review<TokenStatus> = parse(response)?;
    // A token without a name would be the empty user, whom no rule may allow anything.
    let named = review.status.user.filter(|owner| !owner.name.is_empty());
    Ok(named.filter(|_| review.status.authenticated))
}

fn access_review(owner: &TokenOwner, verb: &str, path: &str) -> serde_json::Value {
    let mut spec = json!(owner);
    spec["nonResourceAttributes"] = json!({ "path": path, "verb": verb });
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec })
}

fn allowed(response: &[u8]) -> Result<bool, ApiError> {
    let review: Review<AccessStatus> = parse(response)?;
    Ok(review.status.allowed && !review.status.denied)
}

fn parse<S: for<'a> Deserialize<'a> + Default>(response: &[u8]) -> Result<Review<S>, ApiError> {
    serde_json::from_slice(response).map_err(|error| ApiError::Unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_authenticated_token_has_an_owner() {
        let valid = br#"{"kind":"TokenReview","status":{"authenticated":true,"user":{
            "username":"system:serviceaccount:m:p","uid":"7","groups":["g"],"extra":{"k":["v"]}},"audiences":["a"]}}"#;
        let found = owner(valid).unwrap().unwrap();
        assert_eq!(found.name, "system:serviceaccount:m:p");
        assert_eq!(
            access_review(&found, "get", "/metrics")["spec"],
            json!({"user": "system:serviceaccount:m:p", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]},
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
        );
        for invalid in [
            // As the API server replies.
            r#"{"status":{"user":{},"error":"[invalid bearer token, error]"}}"#,
            r#"{"status":{"error":"invalid bearer token"}}"#,
            r#"{"status":{"authenticated":false,"user":{"username":"a"}}}"#,
            r#"{"status":{"authenticated":true}}"#,
            r#"{"status":{"authenticated":true,"user":{"username":""}}}"#,
            "{}",
        ] {
            assert_eq!(owner(invalid.as_bytes()), Ok(None), "{invalid}");
        }
        assert!(owner(b"<html>").is_err());
    }

    #[test]
    fn access_must_be_allowed_and_not_denied() {
        assert_eq!(allowed(br#"{"status":{"allowed":true}}"#), Ok(true));
        for refused in [r#"{"status":{"allowed":false}}"#, r#"{"status":{"allowed":true,"denied":true}}"#, "{}"] {
            assert_eq!(allowed(refused.as_bytes()), Ok(false), "{refused}");
        }
        assert!(allowed(b"").is_err());
    }
}
