//! Logs, metrics, health endpoints and graceful shutdown of long-running roles.
//!
//! A role is one process (the controller, a node agent, the lab's keeper). It starts a [`Telemetry`],
//! reports its state to it, and waits for the [`Shutdown`]:
//!
//! ```text
//!   role ── health().condition("northbound").ready() ──▶ Health ──▶ GET /readyz
//!   role ── health().heartbeat("commits", …).beat()  ──▶ Health ──▶ GET /livez
//!   role ── registry(|r| r.register(…))              ──▶ Registry ▶ GET /metrics, on another listener also over TLS
//!   role ── status_page().set(json)                ──▶ StatusPage ▶ GET /status, on the other listener with a certificate
//!   role ── tracing::info!(…) ──▶ LogLevel filter ──▶ stderr        GET, PUT /log-level
//!   SIGTERM, SIGINT ──▶ readiness "stopping" ──▶ Shutdown::wait() ──▶ role ends ──▶ Telemetry::stop()
//! ```
//!
//! Endpoints and signals have their own thread, so a busy (or synchronous) role still answers probes, and a failing
//! probe shows the reason instead of timing out.
//! Short commands use [`init_logs`] alone.

pub mod build;
mod error;
mod health;
mod logs;
mod metrics;
mod process;
mod scrape;
mod server;
mod shutdown;
mod status_page;
mod telemetry;
mod watched;

pub use error::Error;
pub use health::{Check, Condition, Health, Heartbeat, Report};
pub use logs::{LogFormat, LogLevel, LogOptions, check_filter, init_logs};
pub use metrics::Metrics;
pub use prometheus_client;
pub use scrape::{Authorization, Authorizer, ReviewFuture, ScrapeOptions};
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use status_page::StatusPage;
pub use telemetry::{Options, Telemetry};
pub use watched::Watched;
