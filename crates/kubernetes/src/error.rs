//! How calls to the API server fail, told apart by what a caller does about it.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

/// A call that did not succeed. Messages are the server's own where it gave one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// 404: no such object, or no such type of object.
    #[error("not found: {0}")]
    NotFound(String),
    /// 409: the object is not as the caller believed (resourceVersion, uid); read it again. A patch for another uid
    /// is refused with 422, and is told as what it is.
    #[error("conflict: {0}")]
    Conflict(String),
    /// 409 for a creation: the name is taken.
    #[error("exists already: {0}")]
    AlreadyExists(String),
    /// 410: the resourceVersion or the continue token is too old; list again.
    #[error("gone: {0}")]
    Gone(String),
    /// 400 or 422: the object or the request is wrong; trying again does not help.
    #[error("invalid: {0}")]
    Invalid(String),
    /// 403: our role lacks a right.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// 401: the server does not accept who we say we are.
    #[error("unauthorized: {0}")]
    Unauthorized(String),
    /// 429: the server asks for patience.
    #[error("too many requests: {message}")]
    TooMany {
        /// How long it wants us to wait, if it said.
        retry_after: Option<Duration>,
        /// Its words.
        message: String,
    },
    /// Any other refusal.
    #[error("refused with status {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// 5xx: the server, etcd, a webhook or an aggregated API is in trouble.
    #[error("server error {status}: {message}")]
    Server {
        /// The HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// No complete answer in time. A change may have happened or not.
    #[error("no answer within {after:?}")]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// No connection, or it broke. A change may have happened or not.
    #[error("{0}")]
    Transport(String),
    /// The answer is not what an API server answers.
    #[error("unreadable answer: {0}")]
    Unreadable(String),
}

impl ApiError {
    /// Whether the same call may succeed later, without anybody changing anything.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::TooMany { .. } | Self::Server { .. } | Self::Timeout { .. } | Self::Transport(_))
    }

    /// How long the server asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooMany { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// An answer with a status other than success.
    pub(crate) fn from_answer(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let retry_after = headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        Self::from_status(status.as_u16(), &Status::read(body), retry_after)
    }

    /// A `Status` object of this code, as an answer or as an ERROR event of a watch.
    pub(crate) fn from_status(code: u16, status: &Status, retry_after: Option<Duration>) -> Self {
        let message = status.message.clone();
        match (code, status.reason.as_str()) {
            // A watch may say "Expired" with a code of its own.
            (410, _) | (_, "Expired" | "Gone") => Self::Gone(message),
            (404, _) => Self::NotFound(message),
            (409, "AlreadyExists") => Self::AlreadyExists(message),
            (409, _) => Self::Conflict(message),
            (422, _) if status.blames("metadata.uid") => Self::Conflict(message),
            (400 | 422, _) => Self::Invalid(message),
            (403, _) => Self::Forbidden(message),
            (401, _) => Self::Unauthorized(message),
            (429, _) => {
                let told = status.details.as_ref().and_then(|details| details.retry_after_seconds);
                Self::TooMany { retry_after: retry_after.or(told.map(Duration::from_secs)), message }
            }
            (500.., _) => Self::Server { status: code, message },
            _ => Self::Refused { status: code, message },
        }
    }
}

/// What of `metav1.Status` matters here.
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

/// A proxy's error page is told as far as this.
const LONGEST_MESSAGE: usize = 500;

impl Status {
    /// Whether this field is what is wrong.
    fn blames(&self, field: &str) -> bool {
        self.details.as_ref().is_some_and(|details| details.causes.iter().any(|cause| cause.field == field))
    }

    /// Reads a body; one that is no `Status` (a proxy's page, "404 page not found") becomes the message.
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
        ApiError::from_answer(StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn statuses_are_told_apart_and_keep_the_servers_words() {
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
    fn a_patch_for_another_incarnation_is_a_conflict() {
        let body = |field: &str| format!(r#"{{"message":"m","details":{{"causes":[{{"field":"{field}"}}]}}}}"#);
        assert_eq!(error(422, &body("metadata.uid")), ApiError::Conflict("m".into()));
        assert_eq!(error(422, &body("spec.replicas")), ApiError::Invalid("m".into()));
    }

    #[test]
    fn patience_is_read_from_the_header_or_the_status() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, "7".parse().unwrap());
        let told = ApiError::from_answer(StatusCode::TOO_MANY_REQUESTS, &headers, b"{}");
        assert_eq!(told.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(error(429, r#"{"details":{"retryAfterSeconds":3}}"#).retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(error(429, "").retry_after(), None);
    }

    #[test]
    fn only_what_may_pass_is_temporary() {
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
    fn an_error_page_is_cut_between_characters() {
        let page = "é".repeat(2000);
        let ApiError::Server { message, .. } = error(502, &page) else { panic!("not a server error") };
        assert_eq!(message.chars().count(), LONGEST_MESSAGE);
    }
}
