//! What a role reports about itself besides health and metrics: one JSON document, at `/status`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;
use axum::http::header::{AGE, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

/// The document of a role; clones share it. Until it is set there is none.
#[derive(Debug, Clone, Default)]
pub struct StatusPage(Arc<Mutex<Option<Document>>>);

#[derive(Debug)]
struct Document {
    json: String,
    /// A reader cannot tell an old document from a new one by a time in it: its clock may be another one.
    since: Instant,
}

impl StatusPage {
    /// Replaces the document.
    pub fn set(&self, json: String) {
        let document = Document { json, since: Instant::now() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(document);
    }

    /// The document, with its age in seconds.
    pub(crate) fn response(&self) -> Response {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Document { json, since }) => {
                let age = since.elapsed().as_secs().to_string();
                ([(CONTENT_TYPE, "application/json".to_owned()), (AGE, age)], json.clone()).into_response()
            }
            None => (StatusCode::NOT_FOUND, "not found: this process reports no status\n").into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_served_with_its_age() {
        let page = StatusPage::default();
        assert_eq!(page.response().status(), StatusCode::NOT_FOUND);
        page.clone().set("{}".into());
        let response = page.response();
        assert_eq!((response.status(), &response.headers()[AGE]), (StatusCode::OK, &"0".parse().unwrap()));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    }
}
