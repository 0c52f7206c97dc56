//! Detects an ovn-northd that no longer follows the databases, reports it, and resets its cluster state.
//!
//! OVN's clients remember the index of a raft cluster and refuse servers that are behind. After the files of a database were
//! lost on all members, the new cluster stays "behind", and northd loops on `clustered database server has stale data`. Its
//! command `nb-cluster-state-reset` clears that state. It is harmless to a healthy northd, so it is sent on suspicion, to
//! every northd whose control socket is accessible.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubernetes::{LeaseSettings, Note, ObjectReference, Severity};
use ovsdb::client::control_command;
use tokio::time::{Instant, timeout};

use crate::effect_runner::EffectRunner;

/// A northd that has not copied `nb_cfg` for this long is reset, and again after each such interval.
const RESET_AFTER: Duration = Duration::from_secs(10);
/// After this long, an Event is created.
const REPORT_AFTER: Duration = Duration::from_secs(30);
/// A northd that computes replies late.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const RESETS: [&str; 2] = ["nb-cluster-state-reset", "sb-cluster-state-reset"];

/// Watches northd by its acknowledgements in the southbound database.
#[derive(Debug)]
pub(crate) struct NorthdWatch {
    /// A control socket, or its directory.
    control: PathBuf,
    /// Time of the last reset.
    reset: Option<Instant>,
    reported: bool,
    /// Number of times that a database was replaced by a new cluster.
    replacements: u64,
}

impl NorthdWatch {
    pub(crate) fn new(control: PathBuf) -> Self {
        Self { control, reset: None, reported: false, replacements: 0 }
    }

    /// Checks once. `behind` is how long northd has not acknowledged, none if unknown; `replacements` is how often either
    /// database was replaced by a new cluster so far.
    pub(crate) fn check(
        &mut self,
        behind: Option<Duration>,
        replacements: u64,
        lease: &LeaseSettings,
        effects: &EffectRunner,
    ) {
        let follows = behind == Some(Duration::ZERO);
        let behind = behind.unwrap_or_default();
        let replaced = std::mem::replace(&mut self.replacements, replacements) != replacements;
        let again = self.reset.is_none_or(|reset| reset.elapsed() >= RESET_AFTER);
        if replaced || behind >= RESET_AFTER && again {
            self.reset = Some(Instant::now());
            effects.metrics.northd_resets.inc();
            tokio::spawn(reset(self.control.clone(), behind));
        }
        if follows && std::mem::take(&mut self.reported) {
            tracing::info!("ovn-northd follows the northbound database again");
        }
        if behind >= REPORT_AFTER && !std::mem::replace(&mut self.reported, true) {
            effects.recorder.record(note(behind, lease));
        }
    }
}

/// An Event on the Lease: northd has no object of its own, and operators look at the Lease for the leader.
fn note(behind: Duration, lease: &LeaseSettings) -> Note {
    let object = ObjectReference {
        api_version: "coordination.k8s.io/v1".into(),
        kind: "Lease".into(),
        namespace: lease.namespace.clone(),
        name: lease.name.clone(),
        uid: String::new(),
    };
    let message = format!(
        "ovn-northd has not copied nb_cfg to the southbound database for {} s: network changes do not reach the nodes; check \
         that it runs, and run `ovn-appctl -t ovn-northd nb-cluster-state-reset` and `sb-cluster-state-reset`, or restart it",
        behind.as_secs()
    );
    Note { object, severity: Severity::Warning, reason: "NorthdStuck".into(), message }
}

/// Resets the cluster state of every accessible northd.
async fn reset(control: PathBuf, behind: Duration) {
    let sockets = sockets(&control);
    let seconds = behind.as_secs();
    if sockets.is_empty() {
        let error = format!("no control socket in {}", control.display());
        let hint = "run `ovn-appctl -t ovn-northd nb-cluster-state-reset` where ovn-northd runs, or restart it";
        tracing::warn!(seconds, error, hint, "ovn-northd may be stuck, and cannot be reset; checking again");
    }
    for socket in sockets {
        for command in RESETS {
            match timeout(COMMAND_TIMEOUT, control_command(&socket, command, &[])).await {
                Ok(Ok(_)) => {
                    tracing::warn!(seconds, socket = %socket.display(), command, "reset cluster state of ovn-northd");
                }
                // The socket of a killed process.
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, socket = %socket.display(), command, "cannot reach ovn-northd; retrying");
                }
                Err(_) => {
                    tracing::warn!(error = "timed out", socket = %socket.display(), command, "ovn-northd does not reply; retrying");
                }
            }
        }
    }
}

/// The control sockets at a path: the path itself, or those of every northd in the directory.
fn sockets(control: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(control) else {
        return if control.exists() { vec![control.to_owned()] } else { Vec::new() };
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "ctl"))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("northd")))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_sockets_of_northd_are_found() {
        let directory = std::env::temp_dir().join(format!("northd-watch-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for name in ["ovn-northd.7.ctl", "northd-2.ctl", "ovnnb_db.ctl", "ovn-northd.pid"] {
            std::fs::write(directory.join(name), "").unwrap();
        }
        let names: Vec<String> =
            sockets(&directory).iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["northd-2.ctl", "ovn-northd.7.ctl"]);
        assert_eq!(sockets(&directory.join("northd-2.ctl")).len(), 1);
        assert!(sockets(&directory.join("nothing")).is_empty());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
