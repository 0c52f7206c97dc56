//! The southbound port for nodes. ovsdb-server has one CA for all its ports, that between raft members included, so it must not
//! trust the nodes' CA. This listener does, and stands for each node with the same name:
//!
//! ```text
//!   node ──TLS, certificate of the nodes' CA──▶ listener ──TLS, the same name, authority in memory──▶ ovsdb-server
//!                                                 │ ▲                                        127.0.0.1, role ovn-controller
//!              bundle, `revoked`: closes sessions ┘ └ certificate, bundle of the control plane
//! ```
//!
//! It runs in a thread of its own, so that what nodes do delays no check and no Lease of the manager. Its port is open only
//! while ovsdb-server listens: otherwise clients would not go on to another server at once. And it is open only while the
//! database has the nodes' role: ovn-controller retries what the role forbids a thousand times a second.

mod handshakes;
mod identities;
mod material;
mod metrics;
mod refusal;
mod requests;
mod role;
mod run;
mod sessions;
mod splice;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trust;

use std::net::IpAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;

use ovsdb::client::TlsFiles;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::watch;

use crate::error::DatabaseError;
use crate::options::ServerRemote;
use material::Material;
use role::RoleCheck;
use run::Listener;

pub(crate) use metrics::NodeMetrics;

/// The role of OVN's RBAC that nodes have: a chassis may change its own rows only.
pub(crate) const ROLE: &str = "ovn-controller";
/// Where ovsdb-server listens for this listener.
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// Most sessions, if there may be enough open files.
const MOST_SESSIONS: usize = 4096;
/// Open files for everything else.
const OTHER_FILES: u64 = 512;

/// What ovsdb-server listens on for this listener.
pub(crate) fn server_remote(port: u16) -> ServerRemote {
    ServerRemote { address: format!("pssl:{port}:{LOOPBACK}"), role: Some(ROLE) }
}

/// How the listener for nodes works.
#[derive(Debug, Clone)]
pub(crate) struct ListenerOptions {
    /// The address to listen on, e.g. `0.0.0.0` or `::`.
    pub(crate) listen: String,
    /// The port for nodes.
    pub(crate) port: u16,
    /// The port of ovsdb-server on [`LOOPBACK`].
    pub(crate) local_port: u16,
    /// The socket of ovsdb-server for clients without a role, to look whether it has the role of nodes; see [`RoleCheck`].
    pub(crate) socket: Option<PathBuf>,
    /// The control plane's files.
    pub(crate) tls: TlsFiles,
    /// Bundle of the nodes' CAs; file `revoked` is next to it.
    pub(crate) authorities: PathBuf,
    /// The file with the authorities that ovsdb-server trusts; written by this listener.
    pub(crate) combined: PathBuf,
}

/// Files of the server behind the listener.
#[derive(Debug)]
pub(crate) struct ListenerFiles {
    /// Its socket for clients without a role.
    pub(crate) socket: PathBuf,
    /// The file with the authorities that it trusts; written by the listener.
    pub(crate) combined: PathBuf,
}

/// Why nodes cannot connect although ovsdb-server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenerProblem {
    /// The port cannot be opened: the error.
    Port(String),
    /// The bundle or the certificate cannot be used, and there is no earlier version.
    Files(String),
}

/// A handle of the running listener, which ends with it.
#[derive(Debug)]
pub(crate) struct NodeListener {
    process: watch::Sender<Option<u32>>,
    problem: watch::Receiver<Option<ListenerProblem>>,
    thread: JoinHandle<()>,
}

impl NodeListener {
    /// Reads the files, writes that for ovsdb-server, and starts the thread. The port stays closed until [`Self::open`].
    pub(crate) fn start(options: ListenerOptions, metrics: NodeMetrics) -> Result<Self, DatabaseError> {
        let listen = options.listen.trim_matches(['[', ']']);
        let listen: IpAddr = listen.parse().map_err(|_| DatabaseError::Listen(options.listen.clone()))?;
        let material =
            Material::open(options.tls, options.authorities, options.combined).map_err(DatabaseError::NodeListener)?;
        let (process, processes) = watch::channel(None);
        let (problems, problem) = watch::channel(None);
        let most = most_sessions();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DatabaseError::NodeListener)?;
        let addresses = ((listen, options.port).into(), (LOOPBACK, options.local_port).into());
        let role = RoleCheck::new(options.socket);
        let listener = Listener::new(addresses, material, role, most, metrics, problems);
        let thread = std::thread::Builder::new()
            .name("node-listener".into())
            .spawn(move || runtime.block_on(listener.run(processes)))
            .map_err(DatabaseError::NodeListener)?;
        Ok(Self { process, problem, thread })
    }

    /// Opens the port as soon as this ovsdb-server listens.
    pub(crate) fn open(&self, process: u32) {
        self.process.send_replace(Some(process));
    }

    /// Closes the port and all sessions.
    pub(crate) fn close(&self) {
        self.process.send_replace(None);
    }

    /// Why nodes cannot connect.
    pub(crate) fn problem(&self) -> Option<ListenerProblem> {
        if self.thread.is_finished() {
            return Some(ListenerProblem::Files("the listener for nodes ended; restart the pod".into()));
        }
        self.problem.borrow().clone()
    }
}

/// Raises the limit of open files as far as allowed; a session takes two here, and one in ovsdb-server, which inherits the limit.
fn most_sessions() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(u64::MAX, |maximum| maximum).min(3 * MOST_SESSIONS as u64);
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(wanted), ..limit })
    {
        tracing::warn!(%error, wanted, "cannot raise the limit of open files; fewer nodes can connect");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = files.saturating_sub(OTHER_FILES).max(files / 4) / 2;
    usize::try_from(most).unwrap_or(MOST_SESSIONS).min(MOST_SESSIONS)
}
