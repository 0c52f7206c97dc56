//! A one-way prober: numbered datagrams on each path, and receivers that record what arrives.
//!
//! `lab::probe` counts replies; this one counts arrivals, so a leak is seen even if its reply would be dropped. Paths and
//! receivers can be added while it runs, also for addresses that no pod has yet.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::Pod;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::cluster::{TIMEOUT, until};

/// The receivers' port.
pub(crate) const PORT: u16 = 7000;
const INTERVAL: Duration = Duration::from_millis(1);
/// For tests in which every datagram counts: slow enough that a busy machine loses none.
const SLOW_INTERVAL: Duration = Duration::from_millis(5);
/// Datagrams per socket on slow paths; a new socket is a new connection.
const DATAGRAMS_PER_SOCKET: u64 = 20;
/// Datagrams that must be lost in a row until a path counts as closed: cached datapath flows are revalidated a moment
/// after the node reports its flows as installed.
const MIN_DATAGRAMS: u64 = 100;

struct Path {
    name: String,
    sent: AtomicU64,
    /// Send times, by number.
    times: Mutex<Vec<Instant>>,
    arrived: Mutex<BTreeSet<u64>>,
}

#[derive(Default)]
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    paths: Arc<Mutex<Vec<Arc<Path>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Identifies a path of a prober.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathId(usize);

/// A moment: how many datagrams had been sent on each path.
#[derive(Clone)]
pub(crate) struct Moment(Vec<u64>);

impl Prober {
    /// Starts a receiver in a pod.
    pub(crate) fn listen(&self, pod: &Pod) {
        let socket = socket(pod, PORT);
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (stop, paths) = (self.stop.clone(), self.paths.clone());
        let receiver = move || {
            let mut known: Vec<Arc<Path>> = Vec::new();
            let mut datagram = [0; 16];
            while !stop.load(Ordering::Relaxed) {
                let Ok((16, _)) = socket.recv_from(&mut datagram) else { continue };
                let [path, number] = [0, 8].map(|at| u64::from_be_bytes(datagram[at..at + 8].try_into().unwrap()));
                let path = usize::try_from(path).unwrap();
                if known.len() <= path {
                    known.clone_from(&paths.lock().unwrap());
                }
                known[path].arrived.lock().unwrap().insert(number);
            }
        };
        self.threads.lock().unwrap().push(std::thread::spawn(receiver));
    }

    /// Starts sending from a pod to an address, whether a pod has it or not.
    pub(crate) fn send(&self, from: &Pod, to: std::net::IpAddr) -> PathId {
        let socket = socket(from, 0);
        let name = format!("{} to {to}", from.name);
        self.start(name, move || socket.try_clone().unwrap(), SocketAddr::new(to, PORT), INTERVAL)
    }

    /// Starts sending slowly to any address and port, with a new socket every [`DATAGRAMS_PER_SOCKET`] datagrams.
    pub(crate) fn send_slowly(
        &self,
        name: &str,
        socket: impl Fn() -> UdpSocket + Send + 'static,
        to: SocketAddr,
    ) -> PathId {
        self.start(name.to_owned(), socket, to, SLOW_INTERVAL)
    }

    fn start(
        &self,
        name: String,
        socket: impl Fn() -> UdpSocket + Send + 'static,
        target: SocketAddr,
        interval: Duration,
    ) -> PathId {
        let path = Arc::new(Path { name, sent: AtomicU64::new(0), times: Mutex::default(), arrived: Mutex::default() });
        let id = {
            let mut paths = self.paths.lock().unwrap();
            paths.push(path.clone());
            paths.len() - 1
        };
        let stop = self.stop.clone();
        let sender = move || {
            let fresh = || {
                let socket = socket();
                socket.set_nonblocking(true).unwrap();
                socket
            };
            let mut current = fresh();
            let mut datagram = [0; 16];
            datagram[..8].copy_from_slice(&(id as u64).to_be_bytes());
            while !stop.load(Ordering::Relaxed) {
                let number = path.sent.load(Ordering::Acquire);
                datagram[8..].copy_from_slice(&number.to_be_bytes());
                // A failed send (no neighbour yet) is not counted.
                if current.send_to(&datagram, target).is_ok() {
                    path.times.lock().unwrap().push(Instant::now());
                    path.sent.store(number + 1, Ordering::Release);
                    if interval == SLOW_INTERVAL && number.is_multiple_of(DATAGRAMS_PER_SOCKET) {
                        current = fresh();
                    }
                }
                std::thread::sleep(interval);
            }
        };
        self.threads.lock().unwrap().push(std::thread::spawn(sender));
        PathId(id)
    }

    fn path(&self, id: PathId) -> Arc<Path> {
        self.paths.lock().unwrap()[id.0].clone()
    }

    pub(crate) fn name(&self, id: PathId) -> String {
        self.path(id).name.clone()
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.paths.lock().unwrap().iter().map(|path| path.sent.load(Ordering::Acquire)).collect())
    }

    /// How many datagrams were sent on a path since a moment.
    pub(crate) fn sent(&self, id: PathId, since: &Moment) -> u64 {
        self.path(id).sent.load(Ordering::Acquire) - since.0.get(id.0).copied().unwrap_or(0)
    }

    /// The numbers of the datagrams sent since a moment that arrived.
    pub(crate) fn arrived(&self, id: PathId, since: &Moment) -> Vec<u64> {
        let begin = since.0.get(id.0).copied().unwrap_or(0);
        self.path(id).arrived.lock().unwrap().range(begin..).copied().collect()
    }

    /// Waits until datagrams arrive on each of these paths.
    pub(crate) fn wait_open(&self, paths: &[PathId]) {
        let since = self.now();
        for path in paths {
            until(&format!("datagrams arrive from {}", self.name(*path)), || {
                (self.arrived(*path, &since).len() > MIN_DATAGRAMS as usize).then_some(())
            });
        }
    }

    /// Waits until nothing arrives on these paths; returns the moment since when nothing may arrive.
    pub(crate) fn wait_closed(&self, paths: &[PathId]) -> Moment {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let since = self.now();
            for path in paths {
                until("datagrams are sent", || (self.sent(*path, &since) > MIN_DATAGRAMS).then_some(()));
            }
            let still_open: Vec<&PathId> =
                paths.iter().filter(|path| !self.arrived(**path, &since).is_empty()).collect();
            if still_open.is_empty() {
                return since;
            }
            let names: Vec<String> = still_open.into_iter().map(|path| self.name(*path)).collect();
            assert!(Instant::now() < deadline, "datagrams still arrive from {names:?}");
        }
    }

    /// Asserts that nothing sent since a moment arrived, and that enough was sent.
    pub(crate) fn assert_nothing_passed(&self, what: &str, paths: &[PathId], since: &Moment) {
        for path in paths {
            until("datagrams are sent", || (self.sent(*path, since) > MIN_DATAGRAMS).then_some(()));
            let (passed, sent) = (self.arrived(*path, since), self.sent(*path, since));
            let first = passed.iter().take(5).collect::<Vec<_>>();
            assert!(
                passed.is_empty(),
                "{what}: {} of {sent} passed from {}: {first:?}",
                passed.len(),
                self.name(*path)
            );
        }
    }

    /// Asserts that nothing sent between two moments arrived.
    pub(crate) fn assert_nothing_passed_before(&self, what: &str, paths: &[PathId], since: &Moment, end: &Moment) {
        for path in paths {
            let end = end.0.get(path.0).copied().unwrap_or(0);
            let passed: Vec<u64> = self.arrived(*path, since).into_iter().filter(|number| *number < end).collect();
            assert!(passed.is_empty(), "{what}: {} passed from {}: {passed:?}", passed.len(), self.name(*path));
        }
    }

    /// The numbers of lost datagrams: sent since a moment, and before one that arrived.
    pub(crate) fn lost(&self, id: PathId, since: &Moment) -> Vec<u64> {
        let arrived = self.arrived(id, since);
        let begin = since.0.get(id.0).copied().unwrap_or(0);
        let last = arrived.last().copied().unwrap_or(begin);
        let arrived: BTreeSet<u64> = arrived.into_iter().collect();
        (begin..last).filter(|number| !arrived.contains(number)).collect()
    }
}

/// Losses within this time have the same cause.
const TOGETHER: Duration = Duration::from_millis(250);

impl Prober {
    /// The send times of the datagrams lost since a moment.
    fn lost_at(&self, id: PathId, since: &Moment) -> Vec<Instant> {
        let (path, lost) = (self.path(id), self.lost(id, since));
        let times = path.times.lock().unwrap();
        lost.into_iter().map(|number| times[usize::try_from(number).unwrap()]).collect()
    }

    /// The send times of datagrams that a path lost while the others lost none: a stalled datapath loses them on all paths.
    pub(crate) fn lost_alone(&self, id: PathId, others: &[PathId], since: &Moment) -> Vec<Instant> {
        let elsewhere: Vec<Instant> = others.iter().flat_map(|other| self.lost_at(*other, since)).collect();
        let near = |one: &Instant, other: &Instant| one.max(other).duration_since(*one.min(other)) <= TOGETHER;
        let lost = self.lost_at(id, since).into_iter();
        lost.filter(|at| !elsewhere.iter().any(|other| near(at, other))).collect()
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

/// Room for what arrives while a receiver waits for a CPU. The default holds some 270 small datagrams, which all paths to
/// a pod send in 50 ms: a busy machine would lose the rest, on these paths only, as if the network had lost them.
const RECEIVE_BUFFER: usize = 16 << 20;

fn socket(pod: &Pod, port: u16) -> UdpSocket {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let socket = pod.with_network(|| UdpSocket::bind(any)).unwrap().unwrap();
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).unwrap();
    socket
}
