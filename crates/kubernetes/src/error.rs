//! Errors of API calls, by how a caller reacts.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

/// A call that failed, with the server's message if there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// 404: no such object or type.
    #[error("not found: {0}")]
    NotFound(String),
    /// 409: the object changed (resourceVersion, uid); read it again. Also a patch for another uid, which the server
    /// rejects with 422.
    #[error("conflict: {0}")]
    Conflict(String),
    /// 409 of a creation: the name is in use.
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// 410: the resourceVersion or the continue token is too old; list again.
    #[error("gone: {0}")]
    Gone(String),
    /// 400 or 422: invalid object or request; a retry does not help.
    #[error("invalid: {0}")]
    Invalid(String),
    /// 403: RBAC does not allow it.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// 401: invalid credentials.
    #[error("unauthorized: {0}")]
    Unauthorized(String),
    /// 429: the server throttles.
    #[error("too many requests: {message}")]
    TooMany {
        /// `Retry-After`, if given.
        retry_after: Option<Duration>,
        /// Message of the server.
        message: String,
    },
    /// Any other 4xx.
    #[error("rejected with status {status}: {message}")]
    Refused {
        /// HTTP status code.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// 5xx: the server, etcd, a webhook or an aggregated API failed.
    #[error("server error {status}: {message}")]
    Server {
        /// HTTP status code.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// No complete response in time: a change is in doubt.
    #[error("no response within {after:?}")]
    Timeout {
        /// Limit of the call.
        after: Duration,
    },
    /// No connection, or it was cut off: a change is in doubt.
    #[error("{0}")]
    Transport(String),
    /// The response cannot be parsed.
    #[error("malformed response: {0}")]
    Unreadable(String),
}

impl ApiError {
    /// Whether a retry of the same call may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::TooMany { .. } | Self::Server { .. } | Self::Timeout { .. } | Self::Transport(_))
    }

    /// Delay that the server requested.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooMany { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// From a response with a status other than success.
    pub(crate) fn from_response(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let retry_after = headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        Self::from_status(status.as_u16(), &Status::read(body), retry_after)
    }

    /// From a `Status` object, of a response or of an ERROR event of a watch.
    pub(crate) fn from_status(code: u16, status: &Status, retry_after: Option<Duration>) -> Self {
        let message = status.message.clone();
        match (code, status.reason.as_str()) {
            // A watch may send "Expired" with another code.
            (410, _) | (_, "Expired" | "Gone") => Self::Gone(message),
            (404, _) => Self::NotFound(message),
            (409, "AlreadyExists") => Self::AlreadyExists(message),
            (409, _) => Self::Conflict(message),
            (422, _) if status.blames("metadata.uid") => Self::Conflict(message),
            (400 | 422, _) => Self::Invalid(message),
            (403, _) => Self::Forbidden(message),
            (401, _) => Self::Unauthorized(message),
            (429, _) => {
                let in_body = status.details.as_ref().and_then(|details| details.retry_after_seconds);
                Self::TooMany { retry_after: retry_after.or(in_body.map(Duration::from_secs)), message }
            }
            (500.., _) => Self::Server { status: code, message },
            _ => Self::Refused { status: code, message },
        }
    }
}

/// The fields of `metav1.Status` that are used.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    #[serde(default, rename = "retryAfterSeconds")]
    retry_after_seconds: Option<u64>,
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Debug, Deserialize)]
struct Cause {
    #[serde(default)]
    field: String,
}

/// Longest message taken from an error page of a proxy, in bytes.
const LONGEST_MESSAGE: usize = 500;

impl Status {
    /// Whether this field is a cause.
    fn blames(&self, field: &str) -> bool {
        self.details.as_ref().is_some_and(|details| details.causes.iter().any(|cause| cause.field == field))
    }

    /// Parses a body; one that is not a `Status` (a proxy's page, "404 page not found") becomes the message.
    pub(crate) fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(body);
            Self { message: text.trim().chars().take(LONGEST_MESSAGE).collect(), ..Self::default() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, body: &str) -> ApiError {
        ApiError::from_response(StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn statuses_map_to_errors_with_the_servers_message() {
        let conflict = r#"{"kind":"Status","reason":"Conflict","message":"uid differs","code":409}"#;
        let exists = r#"{"kind":"Status","reason":"AlreadyExists","message":"leases \"x\" already exists","code":409}"#;
        assert_eq!(error(409, conflict), ApiError::Conflict("uid differs".into()));
        assert_eq!(error(409, exists), ApiError::AlreadyExists("leases \"x\" already exists".into()));
        assert_eq!(error(404, "404 page not found\n"), ApiError::NotFound("404 page not found".into()));
        assert_eq!(error(410, "{}"), ApiError::Gone(String::new()));
        assert_eq!(error(422, r#"{"message":"m"}"#), ApiError::Invalid("m".into()));
        assert_eq!(error(400, r#"{"message":"m"}"#), ApiError::Invalid("m".into()));
        assert_eq!(error(403, r#"{"message":"m"}"#), ApiError::Forbidden("m".into()));
        assert_eq!(error(401, r#"{"message":"m"}"#), ApiError::Unauthorized("m".into()));
        assert_eq!(error(503, "busy"), ApiError::Server { status: 503, message: "busy".into() });
        assert_eq!(error(415, "what"), ApiError::Refused { status: 415, message: "what".into() });
    }

    #[test]
    fn a_patch_for_another_uid_is_a_conflict() {
        let body = |field: &str| format!(r#"{{"message":"m","details":{{"causes":[{{"field":"{field}"}}]}}}}"#);
        assert_eq!(error(422, &body("metadata.uid")), ApiError::Conflict("m".into()));
        assert_eq!(error(422, &body("spec.replicas")), ApiError::Invalid("m".into()));
    }

    #[test]
    fn retry_after_is_read_from_the_header_or_the_status() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, "7".parse().unwrap());
        let throttled = ApiError::from_response(StatusCode::TOO_MANY_REQUESTS, &headers, b"{}");
        assert_eq!(throttled.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(error(429, r#"{"details":{"retryAfterSeconds":3}}"#).retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(error(429, "").retry_after(), None);
    }

    #[test]
    fn only_throttling_and_server_errors_are_temporary() {
        for code in [429, 500, 503, 504] {
            assert!(error(code, "").is_temporary(), "{code}");
        }
        for code in [400, 401, 403, 404, 409, 410, 415, 422] {
            assert!(!error(code, "").is_temporary(), "{code}");
        }
        assert!(ApiError::Timeout { after: Duration::from_secs(1) }.is_temporary());
        assert!(ApiError::Transport("refused".into()).is_temporary());
    }

    #[test]
    fn an_expired_watch_is_gone_whatever_its_code() {
        let status = Status::read(br#"{"kind":"Status","reason":"Expired","code":500,"message":"too old"}"#);
        assert_eq!(ApiError::from_status(status.code, &status, None), ApiError::Gone("too old".into()));
    }

    #[test]
    fn an_error_page_is_truncated_at_a_character_boundary() {
        let page = "é".repeat(2000);
        let ApiError::Server { message, .. } = error(502, &page) else { panic!("not a server error") };
        assert_eq!(message.chars().count(), LONGEST_MESSAGE);
    }
}
