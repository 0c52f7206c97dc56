//! The sidecar of the host's Open vSwitch: keeps systemd's units running, reports their health, and prints their logs.
//!
//! ```text
//!  systemd ──D-Bus──▶ states ──▶ hostovs::units ──▶ enable, start ──▶ systemd      findings ──▶ /readyz, log, metrics
//!  control sockets, database, /proc ──▶ probes ──▶ /readyz
//!  log files ──▶ hostovs::logs ──▶ stdout            position ──▶ resume record in a file
//! ```
//!
//! It never stops, disables or restarts anything, and leaves everything running when it ends.

mod control;
mod logs;
mod metrics;
mod probes;
mod processes;
mod role;
mod supervision;
mod systemd;

use std::path::PathBuf;

pub use role::{SidecarError, run};

/// Options of the role.
#[derive(Debug, Clone)]
pub struct Options {
    /// The unit that starts Open vSwitch at boot; none to detect it.
    pub unit: Option<String>,
    /// Address of the system bus, such as `unix:path=/run/dbus/system_bus_socket`; none for the usual one.
    pub bus: Option<String>,
    /// Directory of the log files of Open vSwitch.
    pub log_directory: PathBuf,
    /// Directory of its sockets and pidfiles.
    pub run_directory: PathBuf,
    /// Directory where this program keeps how far it has printed the logs.
    pub state_directory: PathBuf,
}
