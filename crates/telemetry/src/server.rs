//! The endpoints of a role: `/livez`, `/readyz`, `/metrics`, `/status` and `/log-level`.

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::health::Report;
use crate::{Health, LogLevel, Metrics, StatusPage, metrics};

/// Longest log filter, in bytes.
const LONGEST_BODY: usize = 4096;

/// What the handlers of all endpoints share.
#[derive(Debug, Clone)]
pub(crate) struct EndpointState {
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) level: LogLevel,
    pub(crate) status: StatusPage,
}

pub(crate) fn router(state: EndpointState) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/status", get(status))
        .route("/log-level", get(show_level).put(change_level))
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .with_state(state)
}

async fn livez(State(state): State<EndpointState>, headers: HeaderMap) -> Response {
    answer(&state.health.liveness(), &headers)
}

async fn readyz(State(state): State<EndpointState>, headers: HeaderMap) -> Response {
    answer(&state.health.readiness(), &headers)
}

fn answer(report: &Report, headers: &HeaderMap) -> Response {
    let status = if report.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let wants_json = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/json"));
    if !wants_json {
        return (status, report.to_string()).into_response();
    }
    match serde_json::to_string(report) {
        Ok(json) => (status, [(CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn metrics_text(State(state): State<EndpointState>) -> Response {
    match state.metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "cannot encode the metrics\n").into_response(),
    }
}

async fn status(State(state): State<EndpointState>) -> Response {
    state.status.response()
}

async fn show_level(State(state): State<EndpointState>) -> String {
    format!("{}\n", state.level.get())
}

async fn change_level(
    State(state): State<EndpointState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    filter: String,
) -> (StatusCode, String) {
    put_level(&state.level, peer.ip(), &filter)
}

/// Changes the level, for clients on the same host only: over the network, anyone could flood or silence the logs.
fn put_level(level: &LogLevel, peer: IpAddr, filter: &str) -> (StatusCode, String) {
    if !peer.to_canonical().is_loopback() {
        let refusal = "the log level can be changed from the same host only; hint: run ovnkube log-level there\n";
        return (StatusCode::FORBIDDEN, refusal.to_owned());
    }
    let old = level.get();
    match level.set(filter.trim()) {
        Ok(()) => {
            let new = level.get();
            tracing::warn!(%old, %new, "log level changed");
            (StatusCode::OK, format!("{new}\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

async fn unknown_path() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not found; available: /livez, /readyz, /metrics, /status and /log-level\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::tests::detached_level;

    #[test]
    fn only_the_same_host_may_change_the_level() {
        let (level, _layer) = detached_level("info");
        for stranger in ["192.0.2.7", "2001:db8::1", "::ffff:192.0.2.7"] {
            let (status, message) = put_level(&level, stranger.parse().unwrap(), "trace");
            assert_eq!(status, StatusCode::FORBIDDEN, "{stranger}");
            assert!(message.contains("same host only"), "{message}");
        }
        assert_eq!(level.get(), "info");
        for own in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(put_level(&level, own.parse().unwrap(), "debug\n").0, StatusCode::OK);
        }
        assert_eq!(level.get(), "debug");
    }

    #[test]
    fn an_invalid_directive_is_rejected_with_the_reason() {
        let (level, _layer) = detached_level("info");
        let (status, message) = put_level(&level, "::1".parse().unwrap(), "loud");
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(message.contains("\"loud\" is not a level"), "{message}");
        assert_eq!(level.get(), "info");
    }

    #[tokio::test]
    async fn metrics_have_the_openmetrics_content_type() {
        let (level, _layer) = detached_level("info");
        let metrics = Metrics::new("tester", "1.2.3", "abc");
        let state = EndpointState { health: Health::default(), metrics, level, status: StatusPage::default() };
        let answer = metrics_text(State(state)).await;
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    }

    #[test]
    fn reports_are_text_or_json_by_the_accept_header() {
        let health = Health::default();
        health.condition("northbound");
        let report = health.readiness();
        let mut headers = HeaderMap::new();
        let text = answer(&report, &headers);
        assert_eq!(text.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        headers.insert(ACCEPT, "text/html, application/json;q=0.9".parse().unwrap());
        let json = answer(&report, &headers);
        assert_eq!(json.headers()[CONTENT_TYPE], "application/json");
    }
}
