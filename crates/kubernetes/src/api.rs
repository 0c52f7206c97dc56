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

/// HTTP client stack.
pub(crate) type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// Default limit of a call; see [`Api::with_timeout`].
const TIMEOUT: Duration = Duration::from_secs(15);
/// Longest accepted response, in bytes. 500 objects of etcd's usual largest size would be 750 MiB.
const LONGEST_RESPONSE: usize = 256 << 20;
/// Most bytes of an error response that are read.
const LONGEST_ERROR: usize = 1 << 20;

/// Content type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7396: named fields are set, `null` deletes. A `metadata.uid` or `resourceVersion` in it must match,
    /// else the call fails with [`ApiError::Conflict`].
    Merge,
    /// RFC 6902: a list of operations, with tests.
    Json,
    /// Strategic merge patch: lists of built-in types are merged by key.
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
/// kube's TLS negotiates HTTP/1.1 only, so every call in flight has its own connection, from a pool without an upper
/// bound; idle ones are closed after a minute. Calls are never queued: a caller that starts a thousand at once opens a
/// thousand connections. In return a slow watch consumer does not delay other calls, as it would on a shared HTTP/2
/// connection.
///
/// Calls are not retried: only the caller knows whether that is safe.
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
    /// Configured by `file`, else by KUBECONFIG, else by the pod's service account.
    ///
    /// Sends no request. kube renews tokens from files and credential plugins, and the pod's CA bundle; client
    /// certificates are read once.
    pub async fn from_kubeconfig(file: Option<&Path>, context: Option<&str>) -> Result<Self, ConfigError> {
        let config = config::load(file, context).await?;
        let server = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let service = config::connect(config).await?;
        let inner = Inner { service, server, namespace, calls: Calls::default() };
        Ok(Self { inner: Arc::new(inner), timeout: TIMEOUT })
    }

    /// A clone with another limit per call.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { inner: self.inner.clone(), timeout }
    }

    /// URL without a path, for messages.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// Namespace of the kubeconfig's context, or of the pod.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// Counters of all calls of this API and its clones, for metrics.
    pub fn calls(&self) -> &Calls {
        &self.inner.calls
    }

    /// Reads an object and returns its JSON.
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Get, Method::GET, path, None, Vec::new()).await
    }

    /// Creates an object; `path` is that of the collection.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Post, Method::POST, path, Some("application/json"), body).await
    }

    /// Replaces an object. A `resourceVersion` in the body makes it fail with [`ApiError::Conflict`] if the object
    /// changed.
    pub async fn put(&self, path: &str, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Put, Method::PUT, path, Some("application/json"), body).await
    }

    /// Changes parts of an object.
    pub async fn patch(&self, path: &str, patch: Patch, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        self.call(Verb::Patch, Method::PATCH, path, Some(patch.content_type()), body).await
    }

    /// Deletes an object; `options` is a `DeleteOptions` (preconditions) or empty.
    pub async fn delete(&self, path: &str, options: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        let content_type = (!options.is_empty()).then_some("application/json");
        self.call(Verb::Delete, Method::DELETE, path, content_type, options).await
    }

    /// Reads one page of a list.
    pub(crate) async fn list(&self, path: &str, accept: &'static str) -> Result<Vec<u8>, ApiError> {
        let mut request = request(Method::GET, path, None, Vec::new())?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        self.within(Verb::List, async { read(self.send(request).await?.into_body(), LONGEST_RESPONSE).await }).await
    }

    /// Opens a stream; the limit applies until the response starts.
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
        self.within(verb, async { read(self.send(request).await?.into_body(), LONGEST_RESPONSE).await }).await
    }

    async fn within<T>(&self, verb: Verb, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let result =
            tokio::time::timeout(self.timeout, work).await.unwrap_or(Err(ApiError::Timeout { after: self.timeout }));
        self.inner.calls.add(verb, Outcome::of(&result));
        result
    }

    /// Sends a request; a status other than success becomes an error with the server's message.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ApiError> {
        let answer = self.inner.service.clone().oneshot(request).await.map_err(|error| {
            ApiError::Transport(format!("cannot reach {}: {}", self.inner.server, chain(error.as_ref())))
        })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        // The status counts even if the body cannot be read.
        let body = read(body, LONGEST_ERROR).await.unwrap_or_default();
        Err(ApiError::from_response(head.status, &head.headers, &body))
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
    request.body(Full::from(body)).map_err(|error| ApiError::Invalid(format!("invalid request path {path}: {error}")))
}

/// Reads a whole body.
async fn read(mut body: Incoming, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ApiError::Transport(format!("the response was cut off: {}", chain(&error))))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(ApiError::Unreadable(format!("longer than {limit} bytes")));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}
