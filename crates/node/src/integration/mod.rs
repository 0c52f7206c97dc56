//! br-int as ovs-vswitchd has it: whether it answers, and whether somebody deletes flows that ovn-controller believes are
//! there. ovn-controller never looks at them again, so it is made to install them anew.
//!
//! ```text
//!  ovs-vswitchd ──br-int.mgmt──▶ echoes, flows that were deleted ─┐
//!  ovn-controller ──control socket──▶ messages that it sent ──────┴─▶ Balance ──▶ bridge/reconnect br-int
//! ```
//!
//! One connection and one question every few seconds; nothing is dumped. Flows are counted for each new ovn-controller, once
//! if they are there, for those that were deleted while nobody watched. After a reconnect ovn-controller deletes all flows
//! of the bridge and installs its own, at once.

mod balance;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubernetes::Recorder;
use ovsdb::client::Remote;
use prometheus_client::metrics::counter::Counter;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::balance::{Balance, Census, Finding};
use crate::daemon::{Daemon, switch_folder};
use crate::openflow_wire::{ECHO_REPLY, ECHO_REQUEST, Message, count_flows, echo_request, hello, monitor_removals};
use crate::options::INTEGRATION_BRIDGE;
use crate::own_node::OwnNode;
use crate::readiness::Part;
use crate::report;

/// How often ovs-vswitchd is asked for an echo, and ovn-controller how much it has sent.
const PERIOD: Duration = Duration::from_secs(3);
/// ovs-vswitchd hangs if it has not answered for so long: large changes of flows take it a second or two.
const HUNG: Duration = Duration::from_secs(5);
/// Deletions that come together are looked at together, and ovn-controller's counter is up to date after this time.
const SETTLING: Duration = Duration::from_millis(1200);
/// How soon a bridge that cannot be reached is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// An ovn-controller that (re)connects deletes all flows by one message, after `ofctrl-wait-before-clear` and this.
const STARTING: Duration = Duration::from_secs(5);
/// How long ovn-controller may take to install its flows before it is made to reconnect again.
const REINSTALL: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Looks after the integration bridge.
#[derive(Debug)]
pub(crate) struct Integration {
    pub(crate) part: Part,
    pub(crate) switch: Remote,
    pub(crate) wait_before_clear: Duration,
    pub(crate) recorder: Recorder,
    pub(crate) name: String,
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
    /// How often flows were deleted by somebody else.
    pub(crate) deletions: Counter,
}

/// Why a connection is over.
enum End {
    /// ovs-vswitchd closed it, or does not answer.
    Lost(String),
    /// Somebody deleted so many flows.
    Deleted(u64),
}

impl Integration {
    /// Never ends.
    pub(crate) async fn run(self) {
        let socket = switch_folder(&self.switch).join(format!("{INTEGRATION_BRIDGE}.mgmt"));
        loop {
            match self.watch(&socket).await {
                End::Lost(why) => {
                    self.part.not_ready(why);
                    sleep(RETRY).await;
                }
                End::Deleted(flows) => self.repair(flows).await,
            }
        }
    }

    /// Watches the bridge until its connection is lost or flows are.
    async fn watch(&self, socket: &PathBuf) -> End {
        let lost = |error: io::Error| {
            let socket = socket.display();
            End::Lost(match error.kind() {
                io::ErrorKind::NotFound => format!(
                    "bridge {INTEGRATION_BRIDGE} not found (no {socket}); check that ovs-vswitchd and ovn-controller are running"
                ),
                _ => format!("ovs-vswitchd does not serve {socket}: {error}; start Open vSwitch"),
            })
        };
        let stream = match UnixStream::connect(socket).await {
            Ok(stream) => stream,
            Err(error) => return lost(error),
        };
        let (reader, mut writer) = stream.into_split();
        if let Err(error) = writer.write_all(&[hello(), monitor_removals()].concat()).await {
            return lost(error);
        }
        let (heard, mut messages) = mpsc::channel(16);
        let reading = tokio::spawn(read(reader, heard)).abort_handle();
        let _reading = AbortOnDrop(reading);
        let (mut ticks, mut answered, mut known) = (interval(PERIOD), Instant::now(), Sender::default());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut balance = Balance::default();
        let mut look: Option<Instant> = None;
        // How much memory ovn-controller had for its flows before they were counted, and whether to count them again.
        let (mut census, mut believed, mut recount) = (Census::default(), None, false);
        loop {
            let sampling = async {
                match look {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let wrote = tokio::select! {
                // What was heard counts first: a slow ovn-controller must not make ovs-vswitchd look hung.
                biased;
                message = messages.recv() => match message {
                    None => return End::Lost("ovs-vswitchd closed the connection of br-int; is it running?".to_owned()),
                    Some(Heard::Echo) => {
                        answered = Instant::now();
                        self.part.ready();
                        Ok(())
                    }
                    Some(Heard::Reply(reply)) => writer.write_all(&reply).await,
                    Some(Heard::Deleted(flows)) => {
                        balance.deleted(flows);
                        look = look.or_else(|| Some(Instant::now() + SETTLING));
                        Ok(())
                    }
                    // Flows may have been deleted before this connection.
                    Some(Heard::Count(there)) => match believed.map(|kib| census.counted(there, kib)) {
                        Some(Finding::Missing(flows)) => return End::Deleted(flows),
                        Some(Finding::Doubtful) => {
                            recount = true;
                            look = Some(Instant::now() + SETTLING);
                            Ok(())
                        }
                        Some(Finding::Fine) | None => Ok(()),
                    },
                },
                _ = ticks.tick() => {
                    if answered.elapsed() > HUNG + PERIOD {
                        let seconds = (HUNG + PERIOD).as_secs();
                        return End::Lost(format!(
                            "ovs-vswitchd is hung: no OpenFlow echo from {INTEGRATION_BRIDGE} for {seconds} s; restart Open vSwitch"
                        ));
                    }
                    look = look.or_else(|| Some(Instant::now()));
                    writer.write_all(&echo_request()).await
                }
                () = sampling => {
                    look = None;
                    let new = !known.trusted;
                    if let Some(flows) = self.sample(&mut balance, &mut known).await {
                        return End::Deleted(flows);
                    }
                    if balance.is_open() {
                        look = Some(Instant::now() + SETTLING);
                    }
                    if new {
                        (census, recount) = (Census::default(), known.trusted);
                    }
                    if std::mem::take(&mut recount) {
                        // First what it believes: what it installs after that may be counted, and harms nothing.
                        believed = installed().await;
                        writer.write_all(&count_flows()).await
                    } else {
                        Ok(())
                    }
                }
            };
            if let Err(error) = wrote {
                return lost(error);
            }
        }
    }

    /// Compares the deletions with what ovn-controller has sent.
    async fn sample(&self, balance: &mut Balance, known: &mut Sender) -> Option<u64> {
        let daemon = Daemon::ovn_controller();
        let process = daemon.process().await.ok()?;
        if known.process != Some(process) {
            *known = Sender { process: Some(process), since: Some(Instant::now()), trusted: false };
            *balance = Balance::default();
        }
        let starting = self.wait_before_clear + STARTING;
        if known.since.is_none_or(|since| since.elapsed() < starting) {
            balance.excuse(sent(&daemon).await);
            return None;
        }
        if !std::mem::replace(&mut known.trusted, true) {
            tracing::info!(bridge = INTEGRATION_BRIDGE, process, "watching for flows that others delete");
        }
        // One that does not answer now is asked again; the deletions are still counted then.
        balance.sample(sent(&daemon).await?)
    }

    /// Makes ovn-controller install its flows anew, until it has.
    async fn repair(&self, flows: u64) {
        let why = format!(
            "at least {flows} flows of bridge {INTEGRATION_BRIDGE} were deleted by a client other than ovn-controller (such as \
             ovs-ofctl); ovn-controller is made to reinstall them; find out what deletes them"
        );
        tracing::warn!(
            bridge = INTEGRATION_BRIDGE,
            flows,
            "flows deleted by another client; making ovn-controller reinstall"
        );
        self.deletions.inc();
        self.part.not_ready(why.clone());
        let uid = self.node.borrow().as_ref().map(|node| node.uid.clone()).unwrap_or_default();
        self.recorder.record(report::note(&self.name, &uid, "IntegrationFlowsDeleted", &why));
        let (controller, vswitchd) = (Daemon::ovn_controller(), Daemon::vswitchd(&self.switch));
        let mut pause = RETRY;
        loop {
            match self.reinstall(&controller, &vswitchd, flows).await {
                Ok(()) => {
                    tracing::info!(bridge = INTEGRATION_BRIDGE, "ovn-controller has reinstalled its flows");
                    return;
                }
                Err(error) => {
                    tracing::warn!(bridge = INTEGRATION_BRIDGE, error, "flows are not reinstalled; retrying");
                    self.part.not_ready(format!("{why}; {error}"));
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn reinstall(&self, controller: &Daemon, vswitchd: &Daemon, flows: u64) -> Result<(), String> {
        let hung = || "ovn-controller does not answer".to_owned();
        let before = sent(controller).await.ok_or_else(hung)?;
        vswitchd.ask("bridge/reconnect", &[INTEGRATION_BRIDGE]).await?;
        let deadline = Instant::now() + REINSTALL;
        while Instant::now() < deadline {
            sleep(Duration::from_millis(200)).await;
            let after = sent(controller).await.ok_or_else(hung)?;
            // A counter that went back is a new process's: it installs everything, too.
            if after < before || after - before >= flows {
                return Ok(());
            }
        }
        Err(format!("ovn-controller has not reinstalled them within {REINSTALL:?}; see its log"))
    }
}

/// The ovn-controller whose messages are counted.
#[derive(Debug, Default)]
struct Sender {
    process: Option<u32>,
    since: Option<Instant>,
    trusted: bool,
}

/// How many OpenFlow messages ovn-controller has sent.
async fn sent(controller: &Daemon) -> Option<u64> {
    controller.ask("coverage/read-counter", &["rconn_sent"]).await.ok()?.trim().parse().ok()
}

/// How much memory ovn-controller needs for the flows that it believes are there, in KiB.
async fn installed() -> Option<u64> {
    let usage = Daemon::ovn_controller().ask("memory/show", &[]).await.ok()?;
    let mut words = usage.split_whitespace();
    words.find_map(|word| word.strip_prefix("ofctrl_installed_flow_usage-KB:")?.parse().ok())
}

/// What ovs-vswitchd said.
enum Heard {
    Echo,
    /// So many flows there are.
    Count(u64),
    /// It asks, and this is the reply.
    Reply(Vec<u8>),
    Deleted(u64),
}

async fn read(mut reader: OwnedReadHalf, heard: mpsc::Sender<Heard>) -> io::Result<()> {
    loop {
        let message = Message::read(&mut reader).await?;
        let said = match message.kind {
            ECHO_REPLY => Heard::Echo,
            ECHO_REQUEST => Heard::Reply(message.echo()),
            _ => match (message.flows(), message.deletions()) {
                (Some(count), _) => Heard::Count(count),
                (None, 0) => continue,
                (None, flows) => Heard::Deleted(flows),
            },
        };
        if heard.send(said).await.is_err() {
            return Ok(());
        }
    }
}

/// Ends a task with its owner.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
