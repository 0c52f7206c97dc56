//! Our thin edge to the Kubernetes API: calls, watches, leases, Events.
//!
//! ```text
//!   kubeconfig, service account ──kube──▶ credentials, TLS ──▶ Api ──▶ get · put · patch · post · delete ──▶ ApiError
//!                                                               │
//!        watch(api, Resource, parse) ◀──── lists in pages, lines of a watch ──── bytes, borrowed, never copied whole
//!              │                                                │
//!              └─▶ Relisting · Upsert(fact) · Deleted · Listed  ├──▶ Elector: acquire · hold · release
//!                  Unreadable · Trouble · Resumed · Absent      └──▶ Recorder: record ──▶ Events
//! ```
//!
//! Configuration, authentication and TLS are [kube](https://kube.rs)'s. Lists and watches are ours: an object is parsed
//! straight from the bytes that arrived into the few fields that a caller keeps, and one that cannot be parsed spoils
//! nothing but itself. Everything runs on tokio, a `current_thread` runtime included.

mod api;
mod backoff;
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

pub use api::{Api, Patch};
pub use calls::{Calls, Outcome, Verb};
pub use config::{ConfigError, check_kubeconfig};
pub use error::ApiError;
pub use events::{Note, ObjectReference, Recorder, Severity};
pub use lease::{Elector, LeaseSettings, LeaseSettingsError, LossReason};
pub use resource::Resource;
pub use watch::{Observed, Watch, watch};
pub use wire::Identity;

/// How we name ourselves to the server.
pub(crate) const USER_AGENT: &str = concat!("ovnkube/", env!("CARGO_PKG_VERSION"));

/// Now, as Kubernetes writes times: in whole seconds, UTC.
pub fn timestamp() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

/// A moment, as Kubernetes writes times; nothing if there is none so far from now.
pub fn timestamp_of_milliseconds(since_1970: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(since_1970).ok().map(|moment| format!("{moment:.0}"))
}

/// Nanoseconds since 1970, for names that nobody has used before.
pub fn timestamp_nanoseconds() -> i128 {
    jiff::Timestamp::now().as_nanosecond()
}
