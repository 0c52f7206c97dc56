//! Light chassis: hundreds of OVN chassis from one thread, without Open vSwitch.
//!
//! ```text
//!  LightChassis ──requests──▶ worker ──▶ ChassisSet (what is missing?) ──one transaction──▶ SB
//!       ▲                       ▲                                                          │
//!       └── claimed, error ─────┘◀─────────────────── changes ◀───────────────────────────┘
//! ```
//!
//! To northd and to clients of the databases they look like ovn-controllers: they register, claim the ports that are
//! requested for them, and then acknowledge `nb_cfg`. They have no flows and forward no packets. A real ovn-controller
//! needs a gigabyte with 25,000 ports; this is how a controller can be tested with 500 nodes on one host.

mod chassis_set;
mod rows;
mod status;
mod worker;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ovsdb::client::Remote;
use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Result};
use chassis_set::ChassisSet;
use status::{ChassisStatus, SharedStatus};
use worker::{Command, Request};

/// How long a registration or a request may take. Generous: it only ends what would hang forever.
const LIMIT: Duration = Duration::from_secs(60);
/// A race with another client is rejected once or twice; more rejections in a row are permanent.
const MAX_REFUSALS: u32 = 5;

/// Name and tunnel address of a chassis that has no Open vSwitch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChassisSpec {
    /// The `system-id`, which ports request.
    pub name: String,
    /// Ports may request this as well.
    pub hostname: String,
    /// The tunnel endpoint. No two chassis of a database may share one.
    pub encap_ip: IpAddr,
}

impl ChassisSpec {
    /// `count` chassis named `PREFIX1`, `PREFIX2`, …, with addresses from 10.128.0.0/9, which nothing else in a lab
    /// uses.
    pub fn numbered(prefix: &str, count: u32) -> Vec<Self> {
        Self::numbered_from(prefix, count, Ipv4Addr::new(10, 128, 0, 1))
    }

    /// The same with addresses from `first` on: two sets in one database must not share any.
    pub(crate) fn numbered_from(prefix: &str, count: u32, first: Ipv4Addr) -> Vec<Self> {
        (0..count)
            .map(|index| Self {
                name: format!("{prefix}{}", index + 1),
                hostname: format!("{prefix}{}", index + 1),
                encap_ip: Ipv4Addr::from(u32::from(first).wrapping_add(index)).into(),
            })
            .collect()
    }
}

/// Simulated chassis. [`LightChassis::stop`] deletes their rows; dropping only ends the thread, as a crash would: the
/// rows stay.
#[derive(Debug)]
pub struct LightChassis {
    requests: mpsc::UnboundedSender<Request>,
    shared: Arc<SharedStatus>,
    /// Dropping it ends the thread immediately.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LightChassis {
    /// Starts them with this southbound database (`unix:` or `tcp:`, raft members separated by commas); returns when
    /// all are registered. Rows of the same names from an earlier run are replaced.
    pub fn start(remote: &str, chassis: &[ChassisSpec]) -> Result<Self> {
        let remotes = Remote::parse_list(remote).map_err(|error| Error::Invalid(error.to_string()))?;
        if remotes.iter().any(|remote| matches!(remote, Remote::Ssl(_))) {
            return Err(Error::Invalid(format!(
                "light chassis do not support TLS; use unix: or tcp: instead of {remote}"
            )));
        }
        let chassis_set = ChassisSet::new(chassis)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("cannot start the runtime of the light chassis"))?;
        let shared = Arc::new(SharedStatus::default());
        let (requests, received) = mpsc::unbounded_channel();
        let (stop, released) = oneshot::channel();
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("light-chassis".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = released => {}
                        () = worker::run(remotes, chassis_set, &seen, received) => {}
                    }
                });
            })
            .map_err(Error::io("cannot start the thread of the light chassis"))?;
        let chassis = Self { requests, shared, stop: Some(stop), thread: Some(thread) };
        chassis.await_registration()?;
        Ok(chassis)
    }

    fn await_registration(&self) -> Result<()> {
        let done = |status: &ChassisStatus| status.missing == 0 && status.wanted > 0;
        self.wait_for(LIMIT, |status| done(status) || status.refusals >= MAX_REFUSALS, describe_missing)?;
        let status = self.shared.lock();
        if done(&status) { Ok(()) } else { Err(status.failure(&describe_missing(&status))) }
    }

    /// Adds chassis, as when nodes join; returns when they are registered.
    pub fn add(&self, chassis: &[ChassisSpec]) -> Result<()> {
        self.request(Command::Add(chassis.to_vec()))?;
        self.await_registration()
    }

    /// From now on this chassis claims and acknowledges nothing, like an ovn-controller that hangs. Its rows stay.
    pub fn pause(&self, name: &str) -> Result<()> {
        self.request(Command::Pause(name.to_owned()))
    }

    /// Continues a paused chassis.
    pub fn resume(&self, name: &str) -> Result<()> {
        self.request(Command::Resume(name.to_owned()))
    }

    /// Removes a chassis and its rows, as when a node is deleted.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.request(Command::Remove(name.to_owned()))
    }

    /// How many ports are bound to one of these chassis and up, according to the database.
    pub fn claimed(&self) -> usize {
        self.shared.lock().claimed
    }

    /// How many transactions were sent so far: changes that come while one is in flight are batched.
    pub fn transactions(&self) -> u64 {
        self.shared.lock().transactions
    }

    /// Waits until exactly this many ports are claimed.
    pub fn wait_claimed(&self, count: usize, limit: Duration) -> Result<()> {
        self.wait_for(
            limit,
            |status| status.claimed == count,
            |status| format!("{} ports are claimed instead of {count}", status.claimed),
        )
    }

    /// Deletes all rows and ends the thread.
    pub fn stop(mut self) -> Result<()> {
        let stopped = self.request(Command::Stop);
        self.end();
        stopped
    }

    fn wait_for(
        &self,
        limit: Duration,
        reached: impl Fn(&ChassisStatus) -> bool,
        describe: impl FnOnce(&ChassisStatus) -> String,
    ) -> Result<()> {
        let status = self.shared.lock();
        let (status, _) = self
            .shared
            .changed
            .wait_timeout_while(status, limit, |status| !reached(status) && !status.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if reached(&status) {
            return Ok(());
        }
        let waited = if status.ended { "their thread has ended".into() } else { format!("waited {limit:?}") };
        Err(status.failure(&format!("{} ({waited})", describe(&status))))
    }

    fn request(&self, command: Command) -> Result<()> {
        let (reply, answer) = sync_channel(1);
        let ended = || Error::Invalid("the thread of the light chassis has ended".into());
        self.requests.send(Request { command, reply }).map_err(|_| ended())?;
        answer.recv_timeout(LIMIT).unwrap_or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(ended()),
            RecvTimeoutError::Timeout => Err(Error::Invalid(format!(
                "the light chassis did not handle a request within {LIMIT:?}; check that their database is running"
            ))),
        })
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for LightChassis {
    fn drop(&mut self) {
        self.end();
    }
}

fn describe_missing(status: &ChassisStatus) -> String {
    format!("{} of {} light chassis are not registered", status.missing, status.wanted)
}

/// Rejects what the database would always reject.
fn check<'a>(chassis: impl IntoIterator<Item = &'a ChassisSpec>) -> Result<()> {
    let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for spec in chassis {
        if spec.name.is_empty() {
            return Err(Error::Invalid("a chassis without a name cannot be registered".into()));
        }
        if !names.insert(&spec.name) {
            return Err(Error::Invalid(format!("two chassis are named {:?}; a name must be unique", spec.name)));
        }
        if !addresses.insert(spec.encap_ip) {
            return Err(Error::Invalid(format!(
                "two chassis have tunnel address {}; it must be unique",
                spec.encap_ip
            )));
        }
    }
    if names.is_empty() {
        return Err(Error::Invalid("no chassis given; there is nothing to simulate".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_chassis_are_unique() {
        let many = ChassisSpec::numbered("node-", 70_000);
        assert!(check(&many).is_ok());
        assert_eq!((many[0].name.as_str(), many[0].encap_ip.to_string().as_str()), ("node-1", "10.128.0.1"));
    }

    #[test]
    fn invalid_chassis_are_rejected_before_connecting() {
        let mut two = ChassisSpec::numbered("a", 2);
        two[1].name = "a1".into();
        assert!(LightChassis::start("tcp:h:1", &two).unwrap_err().to_string().contains("\"a1\""));
        let mut two = ChassisSpec::numbered("a", 2);
        two[1].encap_ip = two[0].encap_ip;
        assert!(LightChassis::start("tcp:h:1", &two).unwrap_err().to_string().contains("10.128.0.1"));
        assert!(LightChassis::start("tcp:h:1", &[]).unwrap_err().to_string().contains("no chassis"));
        assert!(LightChassis::start("ssl:h:1", &two).unwrap_err().to_string().contains("TLS"));
        assert!(LightChassis::start("nonsense", &two).is_err());
    }
}
