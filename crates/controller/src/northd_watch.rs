//! An ovn-northd that no longer follows the databases: noticed, reported, and told to start over.
//!
//! OVN's clients remember how far a raft cluster was and refuse servers that are behind. After the files of a database
//! were lost on all members, the new cluster is "behind" for ever, and northd loops on `clustered database server has
//! stale data`. Its command `nb-cluster-state-reset` makes it forget that. The command does no harm to a northd that is
//! well, so it is sent on suspicion, to every northd whose control socket is within reach.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubernetes::{LeaseSettings, Note, ObjectReference, Severity};
use ovsdb::client::control_command;
use tokio::time::{Instant, timeout};

use crate::outlet::Outlet;

/// A northd that has not copied `nb_cfg` for so long is suspected, and told again after as long.
const SUSPECTED: Duration = Duration::from_secs(10);
/// From then on it is an operator's concern.
const REPORTED: Duration = Duration::from_secs(30);
/// One that computes answers late.
const PATIENCE: Duration = Duration::from_secs(30);
const RESETS: [&str; 2] = ["nb-cluster-state-reset", "sb-cluster-state-reset"];

/// Watches northd from the databases' side.
#[derive(Debug)]
pub(crate) struct NorthdWatch {
    /// A control socket, or the directory where it is.
    control: PathBuf,
    /// When northd was told to start over last.
    reset: Option<Instant>,
    reported: bool,
    /// How often the databases were replaced by new clusters.
    replacements: u64,
}

impl NorthdWatch {
    pub(crate) fn new(control: PathBuf) -> Self {
        Self { control, reset: None, reported: false, replacements: 0 }
    }

    /// Looks once; `behind` is for how long northd has owed an answer, if that is known, and `replacements` how often
    /// either database was replaced by a new cluster so far.
    pub(crate) fn look(&mut self, behind: Option<Duration>, replacements: u64, lease: &LeaseSettings, outlet: &Outlet) {
        let follows = behind == Some(Duration::ZERO);
        let behind = behind.unwrap_or_default();
        let replaced = std::mem::replace(&mut self.replacements, replacements) != replacements;
        let again = self.reset.is_none_or(|reset| reset.elapsed() >= SUSPECTED);
        if replaced || behind >= SUSPECTED && again {
            self.reset = Some(Instant::now());
            outlet.metrics.northd_resets.inc();
            tokio::spawn(reset(self.control.clone(), behind));
        }
        if follows && std::mem::take(&mut self.reported) {
            tracing::info!("ovn-northd follows the northbound database again");
        }
        if behind >= REPORTED && !std::mem::replace(&mut self.reported, true) {
            outlet.recorder.record(note(behind, lease));
        }
    }
}

/// An Event on the Lease: where operators look for who leads, and there is no object of northd's.
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

/// Tells every northd within reach to forget how far the clusters were.
async fn reset(control: PathBuf, behind: Duration) {
    let sockets = sockets(&control);
    let seconds = behind.as_secs();
    if sockets.is_empty() {
        let hint = "run `ovn-appctl -t ovn-northd nb-cluster-state-reset` where ovn-northd runs, or restart it";
        tracing::warn!(seconds, control = %control.display(), hint, "ovn-northd may be stuck, no control socket of it found");
    }
    for socket in sockets {
        for command in RESETS {
            match timeout(PATIENCE, control_command(&socket, command, &[])).await {
                Ok(Ok(_)) => {
                    tracing::warn!(seconds, socket = %socket.display(), command, "told ovn-northd to start over");
                }
                // Whoever is killed leaves its socket behind.
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, socket = %socket.display(), command, "cannot reach ovn-northd; retrying");
                }
                Err(_) => tracing::warn!(socket = %socket.display(), command, "ovn-northd does not answer; retrying"),
            }
        }
    }
}

/// The control sockets at a place: the one that it is, or those of every northd in it.
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
    fn sockets_of_northd_are_found_and_no_others() {
        let folder = std::env::temp_dir().join(format!("northd-watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["ovn-northd.7.ctl", "northd-2.ctl", "ovnnb_db.ctl", "ovn-northd.pid"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let names: Vec<String> =
            sockets(&folder).iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["northd-2.ctl", "ovn-northd.7.ctl"]);
        assert_eq!(sockets(&folder.join("northd-2.ctl")).len(), 1);
        assert!(sockets(&folder.join("nothing")).is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
