//! Client of the Kubernetes API: calls, watches, Leases, Events.
//!
//! ```text
//!   kubeconfig, service account ──kube──▶ credentials, TLS ──▶ Api ──▶ get · put · patch · post · delete ──▶ ApiError
//!                                                               │
//!        watch(api, Resource, parse) ◀──── lists in pages, lines of a watch ──── bytes, borrowed, never copied whole
//!              │                                                │
//!              └─▶ Relisting · Upsert(fact) · Deleted · Listed  ├──▶ Elector: acquire · hold · release
//!                  Malformed · Failed · Resumed · Absent       └──▶ Recorder: record ──▶ Events
//! ```
//!
//! Configuration, authentication and TLS come from [kube](https://kube.rs). Lists and watches are implemented here: an
//! object is parsed directly from the received bytes into the few fields that a caller needs, and a malformed object
//! affects no other. Runs on any tokio runtime, `current_thread` included.

use std::time::Duration;

use backoff::Backoff;

mod access;
mod api;
mod calls;
mod config;
mod error;
mod events;
mod lease;
mod lines;
mod resource;
mod watch;
mod watcher;
mod wire;

pub use access::TokenOwner;
pub use api::{Api, Patch};
pub use calls::{Calls, Outcome, Verb};
pub use config::{ConfigError, check_kubeconfig};
pub use error::ApiError;
pub use events::{Note, ObjectReference, Recorder, Severity};
pub use lease::{Elector, LeaseAccess, LeaseSettings, LeaseSettingsError, LossReason};
pub use resource::Resource;
pub use watch::{Observed, Watch, watch};
pub use wire::Identity;

/// Delay between retries of watches and Events.
pub(crate) const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// Names this program in the API server's audit log.
pub(crate) const USER_AGENT: &str = concat!("ovnkube/", env!("CARGO_PKG_VERSION"));

/// The current time as Kubernetes writes it: whole seconds, UTC.
pub fn timestamp() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

/// Milliseconds since 1970 as Kubernetes writes times; `None` if out of range.
pub fn timestamp_of_milliseconds(since_1970: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(since_1970).ok().map(|moment| format!("{moment:.0}"))
}

/// Nanoseconds since 1970, for unique names.
pub fn timestamp_nanoseconds() -> i128 {
    jiff::Timestamp::now().as_nanosecond()
}
