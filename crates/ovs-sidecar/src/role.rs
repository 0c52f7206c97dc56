//! The role: starts the parts, and waits for the shutdown.

use std::io;

use hostovs::units::{Daemon, Layout, LayoutError};
use telemetry::Telemetry;
use tokio::sync::watch;

use crate::logs::LogThread;
use crate::metrics::Metrics;
use crate::supervision::Supervision;
use crate::{Options, probes};

/// Printing one read takes less, unless nobody reads stdout.
const LOGS_STALLED_AFTER: std::time::Duration = std::time::Duration::from_secs(60);

/// Why the role cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The configured unit has no valid name.
    #[error(transparent)]
    Unit(#[from] LayoutError),
    /// The positions in the logs cannot be kept.
    #[error(
        "cannot create the state directory {path} ({error}); mount a directory of the host there, or set --state-dir"
    )]
    State {
        /// The directory.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread ({0})")]
    Thread(io::Error),
}

/// Runs until shutdown is requested. Open vSwitch goes on.
pub async fn run(options: Options, telemetry: &Telemetry) -> Result<(), SidecarError> {
    if let Some(unit) = &options.unit {
        Layout::with_umbrella(unit)?;
    }
    let state = &options.state_directory;
    std::fs::create_dir_all(state).map_err(|error| SidecarError::State { path: state.display().to_string(), error })?;
    let metrics = Metrics::new(telemetry);
    let mut threads = Vec::new();
    for daemon in Daemon::ALL {
        let thread = LogThread {
            daemon,
            log_directory: options.log_directory.clone(),
            state_directory: state.clone(),
            heartbeat: telemetry.health().heartbeat(format!("log-of-{daemon}"), LOGS_STALLED_AFTER),
            metrics: metrics.clone(),
            shutdown: telemetry.shutdown(),
        };
        threads.push(thread.start().map_err(SidecarError::Thread)?);
    }
    let (process, seen_process) = watch::channel(None);
    let supervision = Supervision::new(options.unit, options.bus, telemetry, metrics, process);
    let shutdown = telemetry.shutdown();
    tokio::select! {
        () = supervision.run() => {}
        () = probes::run(options.run_directory, telemetry.health().clone(), seen_process) => {}
        () = shutdown.wait() => {}
    }
    // They print what is there, which ends if stdout is read.
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())));
    if tokio::time::timeout(std::time::Duration::from_secs(10), joined).await.is_err() {
        tracing::warn!(
            "the logs are not printed to their end, because nobody reads stdout; the next process continues"
        );
    }
    Ok(())
}
