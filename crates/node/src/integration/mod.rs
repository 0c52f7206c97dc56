//! Checks br-int in ovs-vswitchd: whether it responds, and whether another client deletes flows of ovn-controller.
//! ovn-controller does not verify its flows, so the agent makes it reinstall them.
//!
//! ```text
//!  ovs-vswitchd ──br-int.mgmt──▶ echoes, flows that were deleted ─┐
//!  ovn-controller ──control socket──▶ messages that it sent ──────┴─▶ DeletionBalance ──▶ bridge/reconnect br-int
//! ```
//!
//! One connection and one command every few seconds; flows are not dumped. They are counted once for each new ovn-controller,
//! to find deletions before this connection. After a reconnect ovn-controller replaces all flows of the bridge at once.

mod balance;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Retries};
use kubernetes::Recorder;
use ovsdb::client::Remote;
use prometheus_client::metrics::counter::Counter;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::balance::{CountResult, DeletionBalance, FlowCount};
use crate::daemon::{Daemon, ovs_run_dir};
use crate::node_status;
use crate::openflow_wire::{ECHO_REPLY, ECHO_REQUEST, Message, count_flows, echo_request, hello, monitor_removals};
use crate::options::INTEGRATION_BRIDGE;
use crate::own_node::OwnNode;
use crate::readiness::Part;

/// Interval of OpenFlow echoes, and of reading ovn-controller's message counter.
const PERIOD: Duration = Duration::from_secs(3);
/// ovs-vswitchd is hung after this time without a reply: large changes of flows take a second or two.
const ECHO_TIMEOUT: Duration = Duration::from_secs(5);
/// Deletions within this time are compared together; ovn-controller's counter is current after it.
const SAMPLE_DELAY: Duration = Duration::from_millis(1200);
/// Delay of repairs; connecting is retried after the first delay.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// An ovn-controller that (re)connects deletes all flows by one message, after `ofctrl-wait-before-clear` and this.
const START_GRACE: Duration = Duration::from_secs(5);
/// Time for ovn-controller to reinstall its flows before the agent makes it reconnect again.
const REINSTALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks and repairs br-int.
#[derive(Debug)]
pub(crate) struct IntegrationBridge {
    pub(crate) part: Part,
    pub(crate) switch: Remote,
    pub(crate) wait_before_clear: Duration,
    pub(crate) recorder: Recorder,
    pub(crate) name: String,
    pub(crate) node: watch::Receiver<Option<Arc<OwnNode>>>,
    /// Metric: deletions by another client.
    pub(crate) deletions: Counter,
}

/// Why a connection ended.
enum WatchEnd {
    /// ovs-vswitchd closed it, or is hung.
    Lost(String),
    /// Another client deleted at least this many flows.
    Deleted(u64),
}

impl IntegrationBridge {
    /// Never returns.
    pub(crate) async fn run(self) {
        let socket = ovs_run_dir(&self.switch).join(format!("{INTEGRATION_BRIDGE}.mgmt"));
        loop {
            match self.watch(&socket).await {
                WatchEnd::Lost(why) => {
                    self.part.not_ready(why);
                    sleep(BACKOFF.first).await;
                }
                WatchEnd::Deleted(flows) => self.repair(flows).await,
            }
        }
    }

    /// Watches the bridge until the connection or flows are lost.
    async fn watch(&self, socket: &PathBuf) -> WatchEnd {
        let lost = |error: io::Error| {
            let socket = socket.display();
            WatchEnd::Lost(match error.kind() {
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
        let (sender, mut messages) = mpsc::channel(16);
        let reading = tokio::spawn(read(reader, sender)).abort_handle();
        let _reading = AbortOnDrop(reading);
        let (mut ticks, mut answered, mut known) = (interval(PERIOD), Instant::now(), ControllerProcess::default());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut balance = DeletionBalance::default();
        let mut look: Option<Instant> = None;
        // How much memory ovn-controller had for its flows before they were counted, and whether to count them again.
        let (mut flow_count, mut believed, mut recount) = (FlowCount::default(), None, false);
        loop {
            let sampling = async {
                match look {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let wrote = tokio::select! {
                // Messages first: a slow ovn-controller must not make ovs-vswitchd look hung.
                biased;
                message = messages.recv() => match message {
                    None => return WatchEnd::Lost("ovs-vswitchd closed the connection of br-int; is it running?".to_owned()),
                    Some(SwitchMessage::Echo) => {
                        answered = Instant::now();
                        self.part.ready();
                        Ok(())
                    }
                    Some(SwitchMessage::Reply(reply)) => writer.write_all(&reply).await,
                    Some(SwitchMessage::Deleted(flows)) => {
                        balance.deleted(flows);
                        look = look.or_else(|| Some(Instant::now() + SAMPLE_DELAY));
                        Ok(())
                    }
                    // Flows may have been deleted before this connection.
                    Some(SwitchMessage::Count(there)) => match believed.map(|kib| flow_count.counted(there, kib)) {
                        Some(CountResult::Missing(flows)) => return WatchEnd::Deleted(flows),
                        Some(CountResult::Suspicious) => {
                            recount = true;
                            look = Some(Instant::now() + SAMPLE_DELAY);
                            Ok(())
                        }
                        Some(CountResult::Fine) | None => Ok(()),
                    },
                },
                _ = ticks.tick() => {
                    if answered.elapsed() > ECHO_TIMEOUT + PERIOD {
                        let seconds = (ECHO_TIMEOUT + PERIOD).as_secs();
                        return WatchEnd::Lost(format!(
                            "ovs-vswitchd is hung: no OpenFlow echo from {INTEGRATION_BRIDGE} for {seconds} s; restart Open vSwitch"
                        ));
                    }
                    look = look.or_else(|| Some(Instant::now()));
                    writer.write_all(&echo_request()).await
                }
                () = sampling => {
                    look = None;
                    let new = !known.settled;
                    if let Some(flows) = self.sample(&mut balance, &mut known).await {
                        return WatchEnd::Deleted(flows);
                    }
                    if balance.is_open() {
                        look = Some(Instant::now() + SAMPLE_DELAY);
                    }
                    if new {
                        (flow_count, recount) = (FlowCount::default(), known.settled);
                    }
                    if std::mem::take(&mut recount) {
                        // Memory first: flows that are installed after it only raise the count.
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

    /// Compares the deletions with ovn-controller's messages; returns how many flows another client deleted.
    async fn sample(&self, balance: &mut DeletionBalance, known: &mut ControllerProcess) -> Option<u64> {
        let daemon = Daemon::ovn_controller();
        let process = daemon.process().await.ok()?;
        if known.process != Some(process) {
            *known = ControllerProcess { process: Some(process), since: Some(Instant::now()), settled: false };
            *balance = DeletionBalance::default();
        }
        let starting = self.wait_before_clear + START_GRACE;
        if known.since.is_none_or(|since| since.elapsed() < starting) {
            balance.discard(sent(&daemon).await);
            return None;
        }
        if !std::mem::replace(&mut known.settled, true) {
            tracing::info!(bridge = INTEGRATION_BRIDGE, pid = process, "watching for flows that other clients delete");
        }
        // Without a response the next sample counts these deletions.
        balance.sample(sent(&daemon).await?)
    }

    /// Makes ovn-controller reinstall its flows; returns when it has.
    async fn repair(&self, flows: u64) {
        let why = format!(
            "at least {flows} flows of bridge {INTEGRATION_BRIDGE} were deleted by a client other than ovn-controller (such as \
             ovs-ofctl); ovn-controller is made to reinstall them; find out what deletes them"
        );
        tracing::warn!(
            bridge = INTEGRATION_BRIDGE,
            flows,
            "another client deleted flows; making ovn-controller reinstall them"
        );
        self.deletions.inc();
        self.part.not_ready(why.clone());
        let uid = self.node.borrow().as_ref().map(|node| node.uid.clone()).unwrap_or_default();
        self.recorder.record(node_status::node_event(&self.name, &uid, "IntegrationFlowsDeleted", &why));
        let (controller, vswitchd) = (Daemon::ovn_controller(), Daemon::vswitchd(&self.switch));
        let mut retries = Retries::without_jitter(BACKOFF);
        loop {
            match self.reinstall(&controller, &vswitchd, flows).await {
                Ok(()) => {
                    tracing::info!(bridge = INTEGRATION_BRIDGE, "ovn-controller has reinstalled its flows");
                    return;
                }
                Err(error) => {
                    let pause = retries.next_delay();
                    tracing::warn!(
                        bridge = INTEGRATION_BRIDGE,
                        error,
                        "ovn-controller has not reinstalled the flows; retrying in {pause:?}"
                    );
                    self.part.not_ready(format!("{why}; {error}"));
                    sleep(pause).await;
                }
            }
        }
    }

    async fn reinstall(&self, controller: &Daemon, vswitchd: &Daemon, flows: u64) -> Result<(), String> {
        let hung = || "ovn-controller does not respond".to_owned();
        let before = sent(controller).await.ok_or_else(hung)?;
        let reconnected = vswitchd.command("bridge/reconnect", &[INTEGRATION_BRIDGE]).await;
        reconnected.map_err(|error| error.to_string())?;
        let deadline = Instant::now() + REINSTALL_TIMEOUT;
        while Instant::now() < deadline {
            sleep(Duration::from_millis(200)).await;
            let after = sent(controller).await.ok_or_else(hung)?;
            // A smaller counter is that of a new process, which also installs everything.
            if after < before || after - before >= flows {
                return Ok(());
            }
        }
        Err(format!("ovn-controller has not reinstalled them within {REINSTALL_TIMEOUT:?}; see its log"))
    }
}

/// The ovn-controller whose messages are counted.
/// `settled`: its start, which replaces all flows, is over.
#[derive(Debug, Default)]
struct ControllerProcess {
    process: Option<u32>,
    since: Option<Instant>,
    settled: bool,
}

/// Number of OpenFlow messages that ovn-controller has sent.
async fn sent(controller: &Daemon) -> Option<u64> {
    controller.command("coverage/read-counter", &["rconn_sent"]).await.ok()?.trim().parse().ok()
}

/// Memory of ovn-controller's installed flows, in KiB.
async fn installed() -> Option<u64> {
    let usage = Daemon::ovn_controller().command("memory/show", &[]).await.ok()?;
    let mut words = usage.split_whitespace();
    words.find_map(|word| word.strip_prefix("ofctrl_installed_flow_usage-KB:")?.parse().ok())
}

/// A message of ovs-vswitchd.
enum SwitchMessage {
    Echo,
    /// Number of flows.
    Count(u64),
    /// The reply to its echo request.
    Reply(Vec<u8>),
    Deleted(u64),
}

async fn read(mut reader: OwnedReadHalf, sender: mpsc::Sender<SwitchMessage>) -> io::Result<()> {
    loop {
        let message = Message::read(&mut reader).await?;
        let parsed = match message.kind {
            ECHO_REPLY => SwitchMessage::Echo,
            ECHO_REQUEST => SwitchMessage::Reply(message.echo()),
            _ => match (message.flows(), message.deletions()) {
                (Some(count), _) => SwitchMessage::Count(count),
                (None, 0) => continue,
                (None, flows) => SwitchMessage::Deleted(flows),
            },
        };
        if sender.send(parsed).await.is_err() {
            return Ok(());
        }
    }
}

/// Aborts a task when it is dropped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
