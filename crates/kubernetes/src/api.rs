//! Calls to one API server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use crate::calls::{Calls, Outcome, Verb};
use crate::config::{self, ConfigError, chain};
use crate::error::ApiError;

/// What carries a request.
pub(crate) type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// How long a call may take unless [`Api::with_timeout`] says otherwise.
const TIMEOUT: Duration = Duration::from_secs(15);
/// No answer is longer: a page of 500 objects of etcd's usual largest size would be 750 MiB, and is not ours to hold.
const LONGEST_ANSWER: usize = 256 << 20;
/// Of an answer that tells of an error, not more than this is read.
const LONGEST_ERROR: usize = 1 << 20;

/// How a patch is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7396: what is named is set, `null` deletes. A `metadata.uid` or `resourceVersion` in it must match,
    /// or else it is [`ApiError::Conflict`].
    Merge,
    /// RFC 6902: a list of operations, with tests.
    Json,
    /// Kubernetes' own: lists of built-in types are merged by their keys.
    Strategic,
    /// Server-side apply; the path must name a `fieldManager`.
    Apply,
}

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// One API server, as one user. Cheap to clone; clones share connections and counts.
///
/// Connections: kube's TLS offers the server HTTP/1.1 only, so every call in flight has a connection of its own, taken
/// from a pool without an upper bound, and idle ones are closed after a minute. Calls are therefore never queued here;
/// a caller that starts a thousand at once opens a thousand connections, and bounds itself if it does not want that.
/// In return a watch whose consumer is slow holds back nobody else, as it would on a shared HTTP/2 connection.
///
/// Nothing is tried again: whoever calls knows better what a second try means.
#[derive(Debug, Clone)]
pub struct Api {
    inner: Arc<Inner>,
    timeout: Duration,
}

struct Inner {
    service: Service,
    server: String,
    namespace: String,
    calls: Calls,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Api {
    /// Connects as a kubeconfig says: the named file, or else what KUBECONFIG names, or else as the pod that we are.
    ///
    /// Sends nothing yet. Tokens in files and of credential plugins are renewed by kube as they expire, and so is the
    /// pod's CA bundle; client certificates are read once.
    pub async fn from_kubeconfig(file: Option<&Path>, context: Option<&str>) -> Result<Self, ConfigError> {
        let config = config::load(file, context).await?;
        let server = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let service = config::connect(config).await?;
        let inner = Inner { service, server, namespace, calls: Calls::default() };
        Ok(Self { inner: Arc::new(inner), timeout: TIMEOUT })
    }

    /// The same, with another limit for each call.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { inner: self.inner.clone(), timeout }
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// The namespace of the kubeconfig's context or of our pod.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// How many calls there were.
    pub fn calls(&self) -> &Calls {
        &self.inner.calls
    }

    /// Reads.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Get, Method::GET, path, None, Vec::new()).await
    }

    /// Creates; the path is the collection's.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Post, Method::POST, path, Some("application/json"), body).await
    }

    /// Replaces. With a `resourceVersion` in the body only if nobody else did meanwhile.
    pub async fn put(&self, path: &str, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Put, Method::PUT, path, Some("application/json"), body).await
    }

    /// Changes a part.
    pub async fn patch(&self, path: &str, patch: Patch, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Patch, Method::PATCH, path, Some(patch.content_type()), body).await
    }

    /// Deletes; the body may hold `DeleteOptions` (preconditions) or nothing.
    pub async fn delete(&self, path: &str, options: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        let content_type = (!options.is_empty()).then_some("application/json");
        self.call(Verb::Delete, Method::DELETE, path, content_type, options).await
    }

    /// Reads a page of a list.
    pub(crate) async fn list(&self, path: &str, accept: &'static str) -> Result<Vec<u8>, ApiError> {
        let mut request = request(Method::GET, path, None, Vec::new())?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        self.within(Verb::List, async { read(self.send(request).await?.into_body(), LONGEST_ANSWER).await }).await
    }

    /// Opens a stream; the limit is for its beginning.
    pub(crate) async fn open(&self, path: &str, accept: &'static str) -> Result<Incoming, ApiError> {
        let mut request = request(Method::GET, path, None, Vec::new())?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        self.within(Verb::Watch, async { Ok(self.send(request).await?.into_body()) }).await
    }

    async fn call(
        &self,
        verb: Verb,
        method: Method,
        path: &str,
        content_type: Option<&'static str>,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, ApiError> {
        let request = request(method, path, content_type, body)?;
        self.within(verb, async { read(self.send(request).await?.into_body(), LONGEST_ANSWER).await }).await
    }

    async fn within<T>(&self, verb: Verb, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let result =
            tokio::time::timeout(self.timeout, work).await.unwrap_or(Err(ApiError::Timeout { after: self.timeout }));
        self.inner.calls.add(verb, Outcome::of(&result));
        result
    }

    /// Sends a request; an answer other than success is an error with the server's words.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ApiError> {
        let answer = self.inner.service.clone().oneshot(request).await.map_err(|error| {
            ApiError::Transport(format!("cannot reach {}: {}", self.inner.server, chain(error.as_ref())))
        })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        // The status says what happened even if its explanation does not arrive.
        let body = read(body, LONGEST_ERROR).await.unwrap_or_default();
        Err(ApiError::from_answer(head.status, &head.headers, &body))
    }
}

fn request(
    method: Method,
    path: &str,
    content_type: Option<&'static str>,
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, ApiError> {
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    request
        .body(Full::from(body))
        .map_err(|error| ApiError::Invalid(format!("no request can be made to {path}: {error}")))
}

/// Reads a body to its end, into one piece of memory.
async fn read(mut body: Incoming, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::Transport(format!("the answer broke off: {}", chain(&error))))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(ApiError::Unreadable(format!("it is longer than {limit} bytes")));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}
