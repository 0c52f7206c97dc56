//! `/metrics` for scrapers on other machines: over TLS, for clients that the API server authorizes. And `/status` for processes of
//! the same kind, with a certificate of a trusted authority: no API server takes part in that.
//!
//! ```text
//!   connection ──▶ Slots: limits ──▶ TLS, certificate of the files ──▶ GET /metrics, bearer token
//!                                                                          │
//!        metrics ◀── allowed ── Gate: cached authorizations ◀── Authorizer ◀─────┘     401 · 403 · 503
//! ```
//!
//! It is a listener of its own: probes and `log-level` stay on the plain one, which listens on loopback. A failure of
//! the certificate or the address is logged and retried; it never ends the role.

mod access;
mod cache;
mod certificate;
mod peers;
mod slots;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

pub use access::{Authorization, Authorizer, ReviewFuture};

use crate::{Metrics, StatusPage, metrics};
use access::{Gate, Refusal};
use certificate::{CertificateFiles, Material};
use slots::{Slot, Slots};

/// Delay before another attempt to read the certificate or to listen.
const RETRY: Duration = Duration::from_secs(10);
/// Limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Limit of the request line and headers.
const HEADERS: Duration = Duration::from_secs(5);
/// Limit of a connection after the handshake, reviews included. Prometheus' own default is 10 s.
const CONNECTION: Duration = Duration::from_secs(20);
/// Longest request head, in bytes; tokens are about 1 KiB.
const LONGEST_HEAD: usize = 64 << 10;

/// Options of the listener for scrapers.
#[derive(Debug, Clone)]
pub struct ScrapeOptions {
    /// For scrapers on other machines.
    pub listen: SocketAddr,
    /// Certificate chain of the server (PEM). It is read again when the file changes.
    pub certificate: PathBuf,
    /// Private key of the certificate (PEM).
    pub private_key: PathBuf,
    /// Authorities of clients that may read `/status` (PEM); none if no client may.
    pub authorities: Option<PathBuf>,
    /// Decides which clients may read the metrics.
    pub authorizer: Arc<dyn Authorizer>,
}

/// Listens and serves until the future is dropped.
pub(crate) async fn run(options: ScrapeOptions, metrics: Metrics, status: StatusPage) {
    let files = options.clone();
    let mut certificates = CertificateFiles::new(files.certificate, files.private_key, files.authorities);
    let listener = open(&options, &mut certificates).await;
    tracing::info!(
        address = %options.listen,
        certificate = %options.certificate.display(),
        "metrics are served over TLS to authorized clients"
    );
    serve(listener, certificates, Server::new(metrics, status, options.authorizer)).await;
}

/// Opens the listener once there is a certificate.
async fn open(options: &ScrapeOptions, certificates: &mut CertificateFiles) -> TcpListener {
    let mut reported = String::new();
    loop {
        if certificates.current().is_some() {
            let problem = match TcpListener::bind(options.listen).await {
                Ok(listener) => return listener,
                Err(error) => format!("cannot listen on {}: {error}", options.listen),
            };
            if problem != reported {
                tracing::warn!(
                    error = problem,
                    retry_seconds = RETRY.as_secs(),
                    "metrics are not served to other machines; retrying"
                );
                reported = problem;
            }
        }
        sleep(RETRY).await;
    }
}

async fn serve(listener: TcpListener, mut certificates: CertificateFiles, server: Server) {
    let slots = Slots::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the metrics; retrying");
                // For example, too many open files: they do not become fewer at once.
                sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let peer = peer.ip().to_canonical();
        let Some(slot) = slots.take(peer) else {
            tracing::debug!(%peer, "connection to the metrics closed: too many are open");
            continue;
        };
        // There was one when the listener opened, so this is that one or a later one.
        let Some(material) = certificates.current() else { continue };
        tokio::spawn(serve_connection(stream, peer, slot, material, server.router.clone()));
    }
}

async fn serve_connection(stream: TcpStream, peer: IpAddr, _slot: Slot, material: Material, router: Router) {
    let failed = |error: &dyn std::fmt::Display| tracing::debug!(%peer, %error, "connection to the metrics failed");
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(material.config).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return failed(&error),
        Err(late) => return failed(&late),
    };
    let chain = stream.get_ref().1.peer_certificates();
    let trusted = material.peers.is_some_and(|peers| peers.trusts(chain));
    let router = router.layer(Extension(Peer { trusted }));
    // One request per connection: an idle client must not keep a place that another one needs.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .keep_alive(false)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => failed(&error),
        Err(late) => failed(&late),
    }
}

/// The endpoint behind the TLS listener.
struct Server {
    router: Router,
}

/// The client of a connection.
#[derive(Debug, Clone, Copy)]
struct Peer {
    /// Whether it has a certificate of the authorities of [`ScrapeOptions::authorities`].
    trusted: bool,
}

#[derive(Clone)]
struct ScrapeState {
    metrics: Metrics,
    status: StatusPage,
    gate: Arc<Gate>,
}

impl Server {
    fn new(metrics: Metrics, status: StatusPage, authorizer: Arc<dyn Authorizer>) -> Self {
        let state = ScrapeState { metrics, status, gate: Arc::new(Gate::new(authorizer)) };
        let router = Router::new()
            .route("/metrics", get(scrape))
            .route("/status", get(show_status))
            .fallback(unknown_path)
            .with_state(state);
        Self { router }
    }
}

async fn scrape(State(state): State<ScrapeState>, headers: HeaderMap) -> Response {
    if let Err(refusal) = state.gate.admit(&headers).await {
        return refused(&refusal);
    }
    match state.metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "cannot encode the metrics\n").into_response(),
    }
}

async fn show_status(State(state): State<ScrapeState>, Extension(peer): Extension<Peer>) -> Response {
    if peer.trusted {
        return state.status.response();
    }
    let text = "forbidden: needs a client certificate of the CA of the databases\n";
    (StatusCode::FORBIDDEN, text).into_response()
}

fn refused(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Unauthenticated => StatusCode::UNAUTHORIZED,
        Refusal::Forbidden { .. } => StatusCode::FORBIDDEN,
        Refusal::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = (status, format!("{refusal}\n")).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

async fn unknown_path() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not found; available: /metrics, /status\n")
}
