//! A prober: datagrams with numbers, one every millisecond on each of its ways, and ears that keep what arrives. It tells
//! which of the datagrams that were sent between two moments arrived, and so whether something passed that should not
//! have, or was lost that need not have been.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::Pod;

use crate::cluster::{PATIENCE, until};

/// Where ears listen.
pub(crate) const PORT: u16 = 7000;
const PACE: Duration = Duration::from_millis(1);
/// Where every single datagram counts, few enough that a busy machine loses none by itself.
const CALM_PACE: Duration = Duration::from_millis(5);
/// After so many datagrams a calm way goes on with a new socket: another connection.
const ONE_CONNECTION: u64 = 20;
/// How many datagrams in a row have to be lost until a way counts as closed: flows are in force a moment after the
/// node says that they are, when what is in its cache was looked at again.
const SILENCE: u64 = 100;

struct Way {
    name: String,
    sent: AtomicU64,
    /// When each was sent.
    times: Mutex<Vec<Instant>>,
    arrived: Mutex<BTreeSet<u64>>,
}

#[derive(Default)]
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    ways: Arc<Mutex<Vec<Arc<Way>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// One of a prober's ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WayId(usize);

/// A moment: how many datagrams had been sent on each way.
#[derive(Clone)]
pub(crate) struct Moment(Vec<u64>);

impl Prober {
    /// Keeps what arrives in a pod, from now on.
    pub(crate) fn listen(&self, pod: &Pod) {
        let socket = socket(pod, PORT);
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (stop, ways) = (self.stop.clone(), self.ways.clone());
        let ear = move || {
            let mut known: Vec<Arc<Way>> = Vec::new();
            let mut datagram = [0; 16];
            while !stop.load(Ordering::Relaxed) {
                let Ok((16, _)) = socket.recv_from(&mut datagram) else { continue };
                let [way, number] = [0, 8].map(|at| u64::from_be_bytes(datagram[at..at + 8].try_into().unwrap()));
                let way = usize::try_from(way).unwrap();
                if known.len() <= way {
                    known.clone_from(&ways.lock().unwrap());
                }
                known[way].arrived.lock().unwrap().insert(number);
            }
        };
        self.threads.lock().unwrap().push(std::thread::spawn(ear));
    }

    /// Sends from a pod to an address, whether somebody is there or not, from now on.
    pub(crate) fn send(&self, from: &Pod, to: std::net::IpAddr) -> WayId {
        let socket = socket(from, 0);
        let name = format!("{} to {to}", from.name);
        self.start(name, move || socket.try_clone().unwrap(), SocketAddr::new(to, PORT), PACE)
    }

    /// Sends to any address and port, at a pace at which each datagram counts, with a new socket now and then.
    pub(crate) fn send_calmly(
        &self,
        name: &str,
        socket: impl Fn() -> UdpSocket + Send + 'static,
        to: SocketAddr,
    ) -> WayId {
        self.start(name.to_owned(), socket, to, CALM_PACE)
    }

    fn start(
        &self,
        name: String,
        socket: impl Fn() -> UdpSocket + Send + 'static,
        target: SocketAddr,
        pace: Duration,
    ) -> WayId {
        let way = Arc::new(Way { name, sent: AtomicU64::new(0), times: Mutex::default(), arrived: Mutex::default() });
        let id = {
            let mut ways = self.ways.lock().unwrap();
            ways.push(way.clone());
            ways.len() - 1
        };
        let stop = self.stop.clone();
        let mouth = move || {
            let fresh = || {
                let socket = socket();
                socket.set_nonblocking(true).unwrap();
                socket
            };
            let mut current = fresh();
            let mut datagram = [0; 16];
            datagram[..8].copy_from_slice(&(id as u64).to_be_bytes());
            while !stop.load(Ordering::Relaxed) {
                let number = way.sent.load(Ordering::Acquire);
                datagram[8..].copy_from_slice(&number.to_be_bytes());
                // What cannot be sent now (nobody has answered for the address yet) is not counted.
                if current.send_to(&datagram, target).is_ok() {
                    way.times.lock().unwrap().push(Instant::now());
                    way.sent.store(number + 1, Ordering::Release);
                    if pace == CALM_PACE && number.is_multiple_of(ONE_CONNECTION) {
                        current = fresh();
                    }
                }
                std::thread::sleep(pace);
            }
        };
        self.threads.lock().unwrap().push(std::thread::spawn(mouth));
        WayId(id)
    }

    fn way(&self, id: WayId) -> Arc<Way> {
        self.ways.lock().unwrap()[id.0].clone()
    }

    pub(crate) fn name(&self, id: WayId) -> String {
        self.way(id).name.clone()
    }

    /// How many were sent on each way up to now.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.ways.lock().unwrap().iter().map(|way| way.sent.load(Ordering::Acquire)).collect())
    }

    /// How many were sent on a way since a moment.
    pub(crate) fn sent(&self, id: WayId, since: &Moment) -> u64 {
        self.way(id).sent.load(Ordering::Acquire) - since.0.get(id.0).copied().unwrap_or(0)
    }

    /// The numbers of those that arrived, of all that were sent since a moment.
    pub(crate) fn arrived(&self, id: WayId, since: &Moment) -> Vec<u64> {
        let begin = since.0.get(id.0).copied().unwrap_or(0);
        self.way(id).arrived.lock().unwrap().range(begin..).copied().collect()
    }

    /// Waits until what is sent on each of these ways arrives.
    pub(crate) fn open(&self, ways: &[WayId]) {
        let since = self.now();
        for way in ways {
            until(&format!("datagrams arrive from {}", self.name(*way)), || {
                (self.arrived(*way, &since).len() > SILENCE as usize).then_some(())
            });
        }
    }

    /// Waits until nothing arrives on any of these ways; from the moment that this returns, nothing may.
    pub(crate) fn closed(&self, ways: &[WayId]) -> Moment {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let since = self.now();
            for way in ways {
                until("datagrams are sent", || (self.sent(*way, &since) > SILENCE).then_some(()));
            }
            let loud: Vec<&WayId> = ways.iter().filter(|way| !self.arrived(**way, &since).is_empty()).collect();
            if loud.is_empty() {
                return since;
            }
            let names: Vec<String> = loud.into_iter().map(|way| self.name(*way)).collect();
            assert!(Instant::now() < deadline, "datagrams still arrive from {names:?}");
        }
    }

    /// Nothing that was sent since a moment arrived, and much was sent.
    pub(crate) fn nothing_passed(&self, what: &str, ways: &[WayId], since: &Moment) {
        for way in ways {
            until("datagrams are sent", || (self.sent(*way, since) > SILENCE).then_some(()));
            let (passed, sent) = (self.arrived(*way, since), self.sent(*way, since));
            let first = passed.iter().take(5).collect::<Vec<_>>();
            assert!(passed.is_empty(), "{what}: {} of {sent} passed from {}: {first:?}", passed.len(), self.name(*way));
        }
    }

    /// Nothing that was sent from one moment to another arrived.
    pub(crate) fn nothing_passed_before(&self, what: &str, ways: &[WayId], since: &Moment, end: &Moment) {
        for way in ways {
            let end = end.0.get(way.0).copied().unwrap_or(0);
            let passed: Vec<u64> = self.arrived(*way, since).into_iter().filter(|number| *number < end).collect();
            assert!(passed.is_empty(), "{what}: {} passed from {}: {passed:?}", passed.len(), self.name(*way));
        }
    }

    /// The numbers of those that were lost, of all that were sent on a way since a moment and before one that arrived.
    pub(crate) fn lost(&self, id: WayId, since: &Moment) -> Vec<u64> {
        let arrived = self.arrived(id, since);
        let begin = since.0.get(id.0).copied().unwrap_or(0);
        let last = arrived.last().copied().unwrap_or(begin);
        let arrived: BTreeSet<u64> = arrived.into_iter().collect();
        (begin..last).filter(|number| !arrived.contains(number)).collect()
    }
}

/// Two losses that are no farther apart have one cause.
const TOGETHER: Duration = Duration::from_millis(250);

impl Prober {
    /// When those were sent that were lost since a moment.
    fn lost_at(&self, id: WayId, since: &Moment) -> Vec<Instant> {
        let (way, lost) = (self.way(id), self.lost(id, since));
        let times = way.times.lock().unwrap();
        lost.into_iter().map(|number| times[usize::try_from(number).unwrap()]).collect()
    }

    /// How many were lost on a way since a moment while nothing was lost on the others: a datapath that stands still for a
    /// moment loses what is on all of them.
    pub(crate) fn lost_alone(&self, id: WayId, others: &[WayId], since: &Moment) -> usize {
        let elsewhere: Vec<Instant> = others.iter().flat_map(|other| self.lost_at(*other, since)).collect();
        let near = |one: &Instant, other: &Instant| one.max(other).duration_since(*one.min(other)) <= TOGETHER;
        self.lost_at(id, since).iter().filter(|at| !elsewhere.iter().any(|other| near(at, other))).count()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.lock().unwrap().drain(..) {
            let _ = thread.join();
        }
    }
}

fn socket(pod: &Pod, port: u16) -> UdpSocket {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    pod.with_network(|| UdpSocket::bind(any)).unwrap().unwrap()
}
