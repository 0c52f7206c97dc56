//! Leader election on a `coordination.k8s.io/v1` Lease, as client-go does it.
//!
//! ```text
//!   acquire ──watch──▶ Candidate (pure: look, wait, take) ──PUT with resourceVersion──▶ held
//!      ▲                                                                                  │
//!      └──────────── LossReason ◀── hold: renew every retry_period ◀──────────────────────┘ ──▶ release
//! ```
//!
//! Every write carries the resourceVersion that was read, so of several only one succeeds.

mod decision;
mod elector;
mod record;
mod settings;

pub use decision::LossReason;
pub use elector::{Elector, LeaseAccess};
pub use settings::{LeaseSettings, LeaseSettingsError};
