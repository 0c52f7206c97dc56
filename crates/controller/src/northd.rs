//! ovn-northd, started and watched by whoever leads, where that is asked for.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ovsdb::client::{Client, TlsFiles, control_command};
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Mutation, Mutator};
use ovsdb::transaction::Transaction;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::options::{DatabaseAccess, Options};

/// A northd that ends is started again after this time; longer each time if it ends at once, or cannot be started.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How often it is asked whether it is alive, and how long it may be silent without using any CPU.
const LOOK: Duration = Duration::from_secs(5);
const HANGS: Duration = Duration::from_secs(10);

/// northd's inactivity probe of both databases, in milliseconds: it leaves a hung server after two of these. Its own default
/// is 5 s. There is one active northd, whatever the size of the cluster.
const PROBE: &str = "2000";

/// Sets northd's inactivity probe where nobody has set one: inserting a key that is there changes nothing.
pub(crate) fn set_probe_interval(northbound: &Client) {
    let client = northbound.clone();
    tokio::spawn(async move {
        let pair = (Atom::String("northd_probe_interval".into()), Atom::String(PROBE.into()));
        let mutations = vec![Mutation::new("options", Mutator::Insert, Datum::map([pair]))];
        let mut transaction = Transaction::new();
        transaction.mutate("NB_Global", Vec::new(), mutations);
        if let Err(error) = client.transact(&transaction).await {
            tracing::warn!(%error, "cannot set northd_probe_interval; northd keeps its default until the next take-over");
        }
    });
}

/// A northd that runs as long as this is held.
#[derive(Debug)]
pub(crate) struct Northd(AbortHandle);

impl Drop for Northd {
    fn drop(&mut self) {
        // The child is killed with the task that waits for it; its lock in the database goes with its connection.
        self.0.abort();
    }
}

impl Northd {
    /// Starts one, if that is asked for.
    pub(crate) fn start(options: &Options) -> Option<Self> {
        let program = options.northd.clone()?;
        let arguments = arguments(&options.northbound, &options.southbound);
        let keep = keep(program, arguments, options.northd_control.clone());
        Some(Self(tokio::spawn(keep).abort_handle()))
    }
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

/// The files of the database that is reached by TLS. ovn-northd takes them once for both, and that two differ is refused
/// before it comes to this.
fn tls<'a>(northbound: &'a DatabaseAccess, southbound: &'a DatabaseAccess) -> Option<&'a TlsFiles> {
    [northbound, southbound].into_iter().find(|access| access.uses_tls()).and_then(|access| access.tls.as_ref())
}

/// How often it went wrong, and what was told of it.
#[derive(Debug)]
struct Trouble {
    pause: Duration,
    told: Option<String>,
}

impl Trouble {
    fn new() -> Self {
        Self { pause: PAUSE, told: None }
    }

    /// It ran for so long: whoever runs for a while is not broken, only unlucky.
    fn ran(&mut self, long: Duration) {
        self.told = None;
        if long >= LONGEST_PAUSE {
            self.pause = PAUSE;
        }
    }

    /// It could not be started; says whether that is news.
    fn is_news(&mut self, problem: String) -> bool {
        self.told.replace(problem.clone()) != Some(problem)
    }

    /// How long to wait before the next try.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

async fn keep(program: PathBuf, arguments: Vec<String>, run_directory: PathBuf) {
    let mut trouble = Trouble::new();
    loop {
        let began = Instant::now();
        let mut command = Command::new(&program);
        match command.args(&arguments).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn() {
            Ok(mut child) => {
                tracing::info!(program = %program.display(), pid = child.id(), "ovn-northd started");
                let ended = supervise(&mut child, &run_directory).await;
                trouble.ran(began.elapsed());
                tracing::error!(ended, "ovn-northd ended; starting it again");
            }
            Err(error) => {
                let why = if error.kind() == ErrorKind::NotFound {
                    "there is no such program".into()
                } else {
                    error.to_string()
                };
                if trouble.is_news(why.clone()) {
                    tracing::error!(
                        program = %program.display(),
                        why,
                        "ovn-northd cannot be started, and nothing reaches the nodes; trying again; hint: install it, or \
                         name it by --run-northd=PROGRAM"
                    );
                }
            }
        }
        sleep(trouble.next_pause()).await;
    }
}

/// Waits for its end, and kills it when it hangs. What it logs becomes part of our log.
async fn supervise(child: &mut Child, run_directory: &Path) -> String {
    let log = child.stderr.take().map(|stderr| tokio::spawn(copy_log(stderr)));
    let process = child.id().unwrap_or_default();
    let socket = run_directory.join(format!("ovn-northd.{process}.ctl"));
    let ended = tokio::select! {
        ended = child.wait() => ended,
        () = hangs(process, &socket) => {
            tracing::error!(process, "ovn-northd answers nothing and uses no CPU; killing it");
            let _ = child.start_kill();
            child.wait().await
        }
    };
    // A killed one leaves its socket behind.
    let _ = std::fs::remove_file(&socket);
    if let Some(log) = log {
        // It ends with the pipe.
        let _ = log.await;
    }
    ended.map_or_else(|error| error.to_string(), |status| status.to_string())
}

async fn copy_log(stderr: ChildStderr) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::warn!(target: "ovn_northd", "{line}");
    }
}

/// Returns when it hangs. One that computes does not answer either, for minutes in a large cluster, but uses CPU.
async fn hangs(process: u32, socket: &Path) {
    let mut silent: Option<(Instant, String)> = None;
    loop {
        sleep(LOOK).await;
        let answers = timeout(LOOK, control_command(socket, "version", &[])).await.is_ok_and(|answer| answer.is_ok());
        if answers || !socket.exists() {
            silent = None;
            continue;
        }
        let used = cpu_time(process);
        match &silent {
            Some((since, before)) if *before == used => {
                if since.elapsed() >= HANGS {
                    return;
                }
            }
            _ => silent = Some((Instant::now(), used)),
        }
    }
}

/// The CPU time that a process has used, as the kernel writes it.
fn cpu_time(process: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: the state is the first word, user and system time the 12th and 13th.
    let words = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(11).take(2).collect::<Vec<_>>());
    words.unwrap_or_default().join(" ")
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
        DatabaseAccess { remotes: ovsdb::client::Remote::parse_list(remote).unwrap(), tls }
    }

    #[test]
    fn it_gets_the_files_of_the_database_that_needs_them() {
        let key = |northbound: &DatabaseAccess, southbound: &DatabaseAccess| {
            let arguments = arguments(northbound, southbound);
            arguments.iter().position(|word| word == "-p").map(|place| arguments[place + 1].clone())
        };
        let (unix, tls) = ("unix:/run/ovn.sock", "ssl:192.0.2.1:6642");
        assert_eq!(key(&access(unix, None), &access(unix, None)), None);
        assert_eq!(key(&access(unix, Some("nb")), &access(tls, Some("sb"))).as_deref(), Some("/sb/key"));
        assert_eq!(key(&access(tls, Some("nb")), &access(unix, Some("sb"))).as_deref(), Some("/nb/key"));
        assert_eq!(key(&access(unix, None), &access(tls, Some("sb"))).as_deref(), Some("/sb/key"));
    }

    #[test]
    fn cpu_time_is_read() {
        let own = cpu_time(std::process::id());
        let numbers: Vec<u64> = own.split(' ').map(|word| word.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 2, "{own}");
        assert_eq!(cpu_time(0), "");
    }

    #[test]
    fn what_cannot_be_started_is_told_once_and_tried_ever_more_seldom() {
        let mut trouble = Trouble::new();
        let told = (0..10).filter(|_| trouble.is_news("there is no such program".into())).count();
        let pauses: Vec<u64> = (0..8).map(|_| trouble.next_pause().as_secs()).collect();
        assert_eq!((told, pauses), (1, vec![1, 2, 4, 8, 16, 32, 60, 60]));
        // It ended at once: that is told, but no reason to be quicker.
        trouble.ran(Duration::from_secs(1));
        assert_eq!(trouble.next_pause(), LONGEST_PAUSE);
        trouble.ran(LONGEST_PAUSE);
        assert_eq!(trouble.next_pause(), PAUSE);
        assert!(trouble.is_news("there is no such program".into()));
    }
}
