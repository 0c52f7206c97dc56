//! Light chassis: hundreds of OVN chassis from one thread, without Open vSwitch.
//!
//! ```text
//!  LightChassis ──orders──▶ worker ──▶ Fleet (what is missing?) ──one transaction──▶ SB
//!       ▲                     ▲                                                       │
//!       └── claimed, problem ─┘◀───────────────── changes ◀──────────────────────────┘
//! ```
//!
//! To northd and to whoever watches the databases they are what ovn-controllers are: they register, claim the ports
//! that are requested for them, and echo `nb_cfg` once they have. They have no flows and carry no packets. A real
//! ovn-controller takes a gigabyte with 25,000 ports; this is how a controller meets 500 nodes on one machine.

mod fleet;
mod rows;
mod view;
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
use fleet::Fleet;
use view::{Shared, View};
use worker::{Order, Wish};

/// How long a registration or an order may take. Generous: it only ends what would hang for ever.
const LIMIT: Duration = Duration::from_secs(60);
/// A race with somebody else is refused once or twice; what is refused more often in a row is refused for good.
const REFUSALS: u32 = 5;

/// One chassis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChassisSpec {
    /// Its `system-id`, as ports request it.
    pub name: String,
    /// Its host name; ports may request it by that as well.
    pub hostname: String,
    /// The end of its tunnels. No two chassis of a database may share one.
    pub encap_ip: IpAddr,
}

impl ChassisSpec {
    /// So many, named `PREFIX1`, `PREFIX2`, …, with addresses from 10.128.0.0/9 that nothing in a lab uses.
    pub fn numbered(prefix: &str, count: u32) -> Vec<Self> {
        Self::numbered_from(prefix, count, Ipv4Addr::new(10, 128, 0, 1))
    }

    /// The same with addresses from this one on: two fleets at one database must not share any.
    pub fn numbered_from(prefix: &str, count: u32, first: Ipv4Addr) -> Vec<Self> {
        (0..count)
            .map(|index| Self {
                name: format!("{prefix}{}", index + 1),
                hostname: format!("{prefix}{}", index + 1),
                encap_ip: Ipv4Addr::from(u32::from(first).wrapping_add(index)).into(),
            })
            .collect()
    }
}

/// Chassis that live until [`LightChassis::stop`]. Dropping it only ends the thread, as a crash would: the rows stay.
#[derive(Debug)]
pub struct LightChassis {
    orders: mpsc::UnboundedSender<Order>,
    shared: Arc<Shared>,
    /// Dropped, it ends the thread at once, whatever it waits for.
    leash: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LightChassis {
    /// Starts them at this southbound database (`unix:` or `tcp:`, raft members with commas between); returns when all
    /// are registered. Rows of these names that an earlier run left are replaced.
    pub fn start(remote: &str, chassis: &[ChassisSpec]) -> Result<Self> {
        let remotes = Remote::parse_list(remote).map_err(|error| Error::Invalid(error.to_string()))?;
        if remotes.iter().any(|remote| matches!(remote, Remote::Ssl(_))) {
            return Err(Error::Invalid(format!(
                "light chassis do not speak TLS; name unix: or tcp: instead of {remote}"
            )));
        }
        let fleet = Fleet::new(chassis)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("cannot start the runtime of the light chassis"))?;
        let shared = Arc::new(Shared::default());
        let (orders, received) = mpsc::unbounded_channel();
        let (leash, released) = oneshot::channel();
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("light-chassis".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = released => {}
                        () = worker::run(remotes, fleet, &seen, received) => {}
                    }
                });
            })
            .map_err(Error::io("cannot start the thread of the light chassis"))?;
        let fleet = Self { orders, shared, leash: Some(leash), thread: Some(thread) };
        fleet.await_registration()?;
        Ok(fleet)
    }

    fn await_registration(&self) -> Result<()> {
        let done = |view: &View| view.missing == 0 && view.wanted > 0;
        self.wait_for(LIMIT, |view| done(view) || view.refusals >= REFUSALS, describe_missing)?;
        let view = self.shared.lock();
        if done(&view) { Ok(()) } else { Err(view.failure(&describe_missing(&view))) }
    }

    /// More of them, as when nodes join; returns when they are registered.
    pub fn add(&self, chassis: &[ChassisSpec]) -> Result<()> {
        self.order(Wish::Add(chassis.to_vec()))?;
        self.await_registration()
    }

    /// From now on this one claims and echoes nothing, as an ovn-controller that hangs. Its rows stay.
    pub fn pause(&self, name: &str) -> Result<()> {
        self.order(Wish::Pause(name.to_owned()))
    }

    /// Lets a paused one go on.
    pub fn resume(&self, name: &str) -> Result<()> {
        self.order(Wish::Resume(name.to_owned()))
    }

    /// Takes one out for good, rows and all, as a node that was removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.order(Wish::Remove(name.to_owned()))
    }

    /// How many ports are bound to one of these chassis and up, as the database says.
    pub fn claimed(&self) -> usize {
        self.shared.lock().claimed
    }

    /// How many transactions were sent so far: what gathers while one is under way becomes one.
    pub fn transactions(&self) -> u64 {
        self.shared.lock().transactions
    }

    /// Waits until exactly so many ports are claimed.
    pub fn wait_claimed(&self, count: usize, limit: Duration) -> Result<()> {
        self.wait_for(
            limit,
            |view| view.claimed == count,
            |view| format!("{} ports are claimed instead of {count}", view.claimed),
        )
    }

    /// Deletes the rows of all and ends.
    pub fn stop(mut self) -> Result<()> {
        let stopped = self.order(Wish::Stop);
        self.end();
        stopped
    }

    fn wait_for(
        &self,
        limit: Duration,
        reached: impl Fn(&View) -> bool,
        describe: impl FnOnce(&View) -> String,
    ) -> Result<()> {
        let view = self.shared.lock();
        let (view, _) = self
            .shared
            .changed
            .wait_timeout_while(view, limit, |view| !reached(view) && !view.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if reached(&view) {
            return Ok(());
        }
        let waited = if view.ended { "their thread has ended".into() } else { format!("waited {limit:?}") };
        Err(view.failure(&format!("{} ({waited})", describe(&view))))
    }

    fn order(&self, wish: Wish) -> Result<()> {
        let (reply, answer) = sync_channel(1);
        let ended = || Error::Invalid("the thread of the light chassis has ended".into());
        self.orders.send(Order { wish, reply }).map_err(|_| ended())?;
        answer.recv_timeout(LIMIT).unwrap_or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(ended()),
            RecvTimeoutError::Timeout => Err(Error::Invalid(format!(
                "the light chassis did not obey within {LIMIT:?}; does their database live?"
            ))),
        })
    }

    fn end(&mut self) {
        self.leash = None;
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

fn describe_missing(view: &View) -> String {
    format!("{} of {} light chassis are not registered", view.missing, view.wanted)
}

/// Refuses what the database would refuse for ever.
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
            return Err(Error::Invalid(format!("two chassis have {} as the end of their tunnels", spec.encap_ip)));
        }
    }
    if names.is_empty() {
        return Err(Error::Invalid("no chassis was named; there is nothing to simulate".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_chassis_are_all_different() {
        let many = ChassisSpec::numbered("node-", 70_000);
        assert!(check(&many).is_ok());
        assert_eq!((many[0].name.as_str(), many[0].encap_ip.to_string().as_str()), ("node-1", "10.128.0.1"));
    }

    #[test]
    fn what_the_database_would_refuse_is_refused_at_once() {
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
