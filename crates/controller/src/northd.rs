//! ovn-northd as a child process of the leader, if requested (`--run-northd`).

use std::convert::Infallible;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backoff::{Backoff, Retries};
use daemon::{Control, Daemon};
use ovsdb::client::{Client, Remote, TlsFiles, control_command};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Mutation, Mutator};
use ovsdb::transaction::Transaction;
use remotes::{DatabaseAccess, RemoteUpdates, Servers};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::leader_proxy::{LeaderProxy, Replaced};
use crate::options::Options;
use crate::recorded_cluster::RecordedCluster;

/// First and longest delay before northd is restarted; doubled each time that it exits soon or cannot be started.
const RESTART_DELAY: Duration = Duration::from_secs(1);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);

/// How long it may be silent without using CPU.
const HUNG_AFTER: Duration = Duration::from_secs(10);

/// Interval of looking whether it has its lock.
const LOCK_CHECKS: Duration = Duration::from_secs(3);
/// A northd that computes replies late.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// It waits at most this long for rows that are missing: with changes all the time, the resync might never be complete.
const ROWS_LIMIT: Duration = Duration::from_secs(20);

/// northd's inactivity probe of both databases, in milliseconds: it leaves a hung server after two of these. OVN's default
/// is 5 s. There is one active northd, regardless of the size of the cluster.
const PROBE_MS: &str = "2000";

/// How often northd is given the address of a [`LeaderProxy`]. Over its lifetime it reconnects without a delay as often as it
/// has addresses, and from then on after a second. The proxy keeps a connection waiting until there is a leader, so northd
/// does not reconnect in a tight loop.
const RECONNECTS_AT_ONCE: usize = 16;

/// Sets northd's inactivity probe unless it is set already: inserting an existing key changes nothing.
pub(crate) fn set_probe_interval(northbound: &Client) {
    let client = northbound.clone();
    tokio::spawn(async move {
        let pair = (Atom::String("northd_probe_interval".into()), Atom::String(PROBE_MS.into()));
        let mutations = vec![Mutation::new("options", Mutator::Insert, Datum::map([pair]))];
        let mut transaction = Transaction::new();
        transaction.mutate("NB_Global", Vec::new(), mutations);
        if let Err(error) = client.transact(&transaction).await {
            tracing::warn!(%error, "cannot set northd_probe_interval; northd keeps its default until the next takeover");
        }
    });
}

/// A supervised northd; killed on drop.
#[derive(Debug)]
pub(crate) struct Northd {
    task: AbortHandle,
    /// Whether the northbound database has all rows.
    complete: watch::Sender<bool>,
    /// Its ways to the leaders of both databases; none for a database that has always one server.
    _proxies: [Option<LeaderProxy>; 2],
}

impl Drop for Northd {
    fn drop(&mut self) {
        // The child is killed with its task; the database releases its lock with its connection.
        self.task.abort();
    }
}

impl Northd {
    /// None without `--run-northd`. Unless the northbound database is `complete`, it is started when it is.
    pub(crate) fn start(
        options: &Options,
        servers: &Servers,
        recorded: &[RecordedCluster; 2],
        complete: bool,
    ) -> Option<Self> {
        let program = options.northd.clone()?;
        let (directory, control) = control(&options.northd_control);
        let socket = |kind: &str| directory.join(format!("northd-{kind}.sock"));
        let [north, south] = recorded;
        let north = proxy(&socket("nb"), &options.northbound, &servers.northbound, north, Replaced::Refused);
        let south = proxy(&socket("sb"), &options.southbound, &servers.southbound, south, Replaced::Followed);
        let through = |proxy: &Option<LeaderProxy>, access: &DatabaseAccess| match proxy {
            Some(proxy) => {
                let remotes = vec![Remote::Unix(proxy.path().to_owned()); RECONNECTS_AT_ONCE];
                DatabaseAccess { remotes, ..access.clone() }
            }
            None => access.clone(),
        };
        let mut arguments = arguments(&through(&north, &options.northbound), &through(&south, &options.southbound));
        if let Control::Path(socket) = &control {
            arguments.push(format!("--unixctl={}", socket.display()));
        }
        let daemon = Daemon { name: "ovn-northd", program, arguments, control, hung_after: HUNG_AFTER };
        let reconnect = south.as_ref().map(LeaderProxy::reconnector);
        let (complete, completed) = watch::channel(complete);
        let task = tokio::spawn(async move {
            await_rows(completed).await;
            supervise(daemon, reconnect).await;
        });
        Some(Self { task: task.abort_handle(), complete, _proxies: [north, south] })
    }

    /// The northbound database has all rows.
    pub(crate) fn northbound_complete(&self) {
        // Called with every reconciliation.
        self.complete.send_if_modified(|complete| !std::mem::replace(complete, true));
    }
}

/// The directory of northd's sockets and its control socket, given either. A path that does not exist is a socket if its name
/// has an extension, as `ovn-northd.ctl` has.
fn control(given: &Path) -> (PathBuf, Control) {
    if given.is_dir() || !given.exists() && given.extension().is_none() {
        return (given.to_owned(), Control::Default(given.to_owned()));
    }
    (given.parent().unwrap_or(Path::new("/")).to_owned(), Control::Path(given.to_owned()))
}

/// A way to the leader of a database with several servers. Without one, northd looks for the leader itself, and needs longer.
fn proxy(
    socket: &Path,
    access: &DatabaseAccess,
    servers: &RemoteUpdates,
    recorded: &RecordedCluster,
    replaced: Replaced,
) -> Option<LeaderProxy> {
    if access.remotes.len() < 2 && access.service.is_none() {
        return None;
    }
    LeaderProxy::start(socket.to_owned(), access, servers, recorded.clone(), replaced)
        .inspect_err(|error| {
            let socket = socket.display();
            tracing::warn!(%error, %socket, "cannot listen for ovn-northd; it finds the database leader by itself, but slower");
        })
        .ok()
}

fn arguments(northbound: &DatabaseAccess, southbound: &DatabaseAccess) -> Vec<String> {
    let list = |access: &DatabaseAccess| {
        let remotes: Vec<String> = access.remotes.iter().map(ToString::to_string).collect();
        remotes.join(",")
    };
    let mut arguments = vec![
        format!("--ovnnb-db={}", list(northbound)),
        format!("--ovnsb-db={}", list(southbound)),
        "-vconsole:warn".into(),
        "--log-file=/dev/null".into(),
        // `ovn-appctl -t ovn-northd` finds it.
        "--pidfile".into(),
    ];
    if let Some(tls) = tls(northbound, southbound) {
        let path = |path: &Path| path.display().to_string();
        arguments.extend(["-p".into(), path(&tls.private_key), "-c".into(), path(&tls.certificate)]);
        arguments.extend(["-C".into(), path(&tls.authorities)]);
    }
    arguments
}

/// The files of the database that uses TLS. ovn-northd has one set for both databases; different ones are refused at start.
fn tls<'a>(northbound: &'a DatabaseAccess, southbound: &'a DatabaseAccess) -> Option<&'a TlsFiles> {
    [northbound, southbound].into_iter().find(|access| access.uses_tls()).and_then(|access| access.tls.as_ref())
}

/// Waits until the northbound database has all rows. From a database that was lost and is being filled, northd would compute that
/// pods have no ports any more: their flows and connections would be gone until it is full.
async fn await_rows(mut completed: watch::Receiver<bool>) {
    if *completed.borrow() {
        return;
    }
    tracing::info!("the northbound database lacks rows; ovn-northd starts when they are written");
    if timeout(ROWS_LIMIT, completed.wait_for(|complete| *complete)).await.is_err() {
        let seconds = ROWS_LIMIT.as_secs();
        tracing::warn!(
            seconds,
            "rows are still being written to the northbound database; starting ovn-northd with what it has"
        );
    }
}

/// Restart delay, and the last logged error.
#[derive(Debug)]
struct StartFailures {
    retries: Retries,
    logged: Option<String>,
}

impl StartFailures {
    fn new() -> Self {
        Self { retries: Retries::without_jitter(Backoff::new(RESTART_DELAY, MAX_RESTART_DELAY)), logged: None }
    }

    /// It ran for this long: after a long run the delay starts from the beginning.
    fn ran(&mut self, long: Duration) {
        self.logged = None;
        if long >= MAX_RESTART_DELAY {
            self.retries.reset();
        }
    }

    /// It could not be started; true if the error is not logged yet.
    fn is_new(&mut self, error: String) -> bool {
        self.logged.replace(error.clone()) != Some(error)
    }

    /// The delay before the next attempt.
    fn next_delay(&mut self) -> Duration {
        self.retries.next_delay()
    }
}

/// `reconnect` closes its southbound connection.
async fn supervise(daemon: Daemon, reconnect: Option<Arc<Notify>>) {
    let mut failures = StartFailures::new();
    let program = daemon.program.display();
    loop {
        let began = Instant::now();
        match daemon.spawn() {
            Ok(mut northd) => {
                tracing::info!(%program, pid = northd.process(), "ovn-northd started");
                let control = northd.control().to_owned();
                let exit = tokio::select! {
                    exit = northd.wait() => exit,
                    never = keep_lock(&control, reconnect.as_deref()) => match never {},
                };
                failures.ran(began.elapsed());
                tracing::error!(error = %exit, "ovn-northd exited; restarting");
            }
            Err(error) => {
                let error =
                    if error.kind() == ErrorKind::NotFound { "no such program".into() } else { error.to_string() };
                if failures.is_new(error.clone()) {
                    tracing::error!(
                        %program,
                        error,
                        "cannot start ovn-northd; changes do not reach the nodes; retrying; hint: install it, or set \
                         --run-northd=PROGRAM"
                    );
                }
            }
        }
        sleep(failures.next_delay()).await;
    }
}

/// Reconnects a northd that stays without its lock. A session that lost the lock to another one does not get it back when the
/// other one ends: a former leader that hung may take it before it notices that it no longer leads.
async fn keep_lock(control: &Path, reconnect: Option<&Notify>) -> Infallible {
    let Some(reconnect) = reconnect else { return std::future::pending().await };
    let mut waiting = false;
    loop {
        sleep(LOCK_CHECKS).await;
        let waited = std::mem::replace(&mut waiting, waits_for_lock(control).await);
        if waited && waiting {
            tracing::warn!(
                "ovn-northd is connected, but another session has its lock; reconnecting it, which takes the lock"
            );
            reconnect.notify_one();
            waiting = false;
        }
    }
}

/// Whether northd is connected to the southbound database and not active.
async fn waits_for_lock(control: &Path) -> bool {
    let says = async |command: &str, reply: &str| {
        let answer = timeout(COMMAND_LIMIT, control_command(control, command, &[])).await;
        matches!(answer, Ok(Ok(text)) if text.trim() == reply)
    };
    says("sb-connection-status", "connected").await && says("status", "Status: standby").await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(remote: &str, files: Option<&str>) -> DatabaseAccess {
        let path = |name: &str| PathBuf::from(format!("/{}/{name}", files.unwrap_or_default()));
        let tls = files.map(|_| TlsFiles {
            certificate: path("cert"),
            private_key: path("key"),
            authorities: path("ca"),
            verify_host_name: false,
        });
        DatabaseAccess { remotes: ovsdb::client::Remote::parse_list(remote).unwrap(), tls, service: None }
    }

    #[test]
    fn the_control_socket_or_its_directory_can_be_given() {
        let directory = std::env::temp_dir().join(format!("northd-control-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("run.d")).unwrap();
        std::fs::write(directory.join("northd"), "").unwrap();
        let is_socket = |name: &str| {
            let (parent, control) = control(&directory.join(name));
            match control {
                Control::Path(path) => path == directory.join(name) && parent == directory,
                Control::Default(path) => {
                    assert!(path == directory.join(name) && parent == path);
                    false
                }
            }
        };
        assert!(is_socket("northd") && is_socket("ovn-northd.ctl"));
        assert!(!is_socket("run.d") && !is_socket("later"));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn northd_gets_the_files_of_the_database_that_uses_tls() {
        let key = |northbound: &DatabaseAccess, southbound: &DatabaseAccess| {
            let arguments = arguments(northbound, southbound);
            arguments.iter().position(|word| word == "-p").map(|index| arguments[index + 1].clone())
        };
        let (unix, tls) = ("unix:/run/ovn.sock", "ssl:192.0.2.1:6642");
        assert_eq!(key(&access(unix, None), &access(unix, None)), None);
        assert_eq!(key(&access(unix, Some("nb")), &access(tls, Some("sb"))).as_deref(), Some("/sb/key"));
        assert_eq!(key(&access(tls, Some("nb")), &access(unix, Some("sb"))).as_deref(), Some("/nb/key"));
        assert_eq!(key(&access(unix, None), &access(tls, Some("sb"))).as_deref(), Some("/sb/key"));
    }

    #[test]
    fn a_start_failure_is_logged_once_and_retried_with_growing_delay() {
        let mut failures = StartFailures::new();
        let logged = (0..10).filter(|_| failures.is_new("no such program".into())).count();
        let pauses: Vec<u64> = (0..8).map(|_| failures.next_delay().as_secs()).collect();
        assert_eq!((logged, pauses), (1, vec![1, 2, 4, 8, 16, 32, 60, 60]));
        // It exited at once: logged, without a shorter delay.
        failures.ran(Duration::from_secs(1));
        assert_eq!(failures.next_delay(), MAX_RESTART_DELAY);
        failures.ran(MAX_RESTART_DELAY);
        assert_eq!(failures.next_delay(), RESTART_DELAY);
        assert!(failures.is_new("no such program".into()));
    }
}
