//! The listener's thread: opens and closes the port, accepts nodes, and forwards their sessions.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls_pki_types::{ServerName, UnixTime};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::handshakes::{Handshakes, Place};
use super::material::Material;
use super::metrics::NodeMetrics;
use super::refusal::{LogLimit, Reason};
use super::requests::Requests;
use super::role::{RoleCheck, RoleState};
use super::sessions::{Peer, Sessions};
use super::splice::splice;
use super::trust;
use super::{ListenerProblem, ROLE};
use crate::process::listens;

/// Interval of looking for changed files.
const REFRESH: Duration = Duration::from_secs(1);
/// Interval of attempts to open the port.
const OPEN: Duration = Duration::from_millis(200);
/// Limit of a handshake with a node, and of one with ovsdb-server, which replies late while it is busy.
const HANDSHAKE: Duration = Duration::from_secs(5);
const SERVER_HANDSHAKE: Duration = Duration::from_secs(20);
/// How long a connection waits for a place of another handshake.
const ROOM: Duration = Duration::from_millis(20);
/// A side that takes nothing for this long, though there is something for it, is gone.
const STALLED: Duration = Duration::from_secs(60);
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// What connections share. All of them run in one thread; no lock is held while they wait.
struct Shared {
    server: SocketAddr,
    material: Mutex<Material>,
    handshakes: Handshakes,
    sessions: Sessions,
    metrics: NodeMetrics,
    log: Mutex<LogLimit>,
}

pub(super) struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    problem: watch::Sender<Option<ListenerProblem>>,
    role: RoleCheck,
    /// Whether it was logged that the role is missing.
    waits_for_role: bool,
    /// The server that must listen while the port is open.
    process: Option<u32>,
    port: Option<TcpListener>,
    connections: JoinSet<()>,
}

impl Listener {
    /// `addresses`: where to listen, and where ovsdb-server listens.
    pub(super) fn new(
        (address, server): (SocketAddr, SocketAddr),
        material: Material,
        role: RoleCheck,
        most_sessions: usize,
        metrics: NodeMetrics,
        problem: watch::Sender<Option<ListenerProblem>>,
    ) -> Self {
        let shared = Shared {
            server,
            material: Mutex::new(material),
            handshakes: Handshakes::default(),
            sessions: Sessions::new(most_sessions, metrics.clone()),
            metrics,
            log: Mutex::default(),
        };
        let (shared, connections) = (Arc::new(shared), JoinSet::new());
        Self { address, shared, problem, role, waits_for_role: false, process: None, port: None, connections }
    }

    /// Runs until the handle is dropped.
    pub(super) async fn run(mut self, mut processes: watch::Receiver<Option<u32>>) {
        let mut refreshes = interval(REFRESH);
        refreshes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let room = self.has_room();
            tokio::select! {
                changed = processes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let process = *processes.borrow_and_update();
                    self.switch(process).await;
                }
                _ = refreshes.tick() => self.refresh().await,
                () = sleep(OPEN), if self.process.is_some() && self.port.is_none() => self.open(),
                accepted = accept(self.port.as_ref()), if room => self.accepted(accepted).await,
                () = sleep(ROOM), if !room => {}
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    /// Another server, or none: the sessions with the former one are over.
    async fn switch(&mut self, process: Option<u32>) {
        if self.process == process {
            return;
        }
        self.close().await;
        self.process = process;
        self.role.restart(process.is_some());
        self.report(None);
        self.open();
    }

    /// Closes the port and all sessions.
    async fn close(&mut self) {
        if self.port.take().is_some() {
            tracing::info!(address = %self.address, "the port for nodes is closed");
        }
        self.shared.metrics.listening.set(0);
        self.connections.shutdown().await;
    }

    /// Opens the port if the server listens and its database has the role of nodes.
    fn open(&mut self) {
        let Some(process) = self.process else { return };
        // Unknown: it is tried.
        if listens(process, self.shared.server.port()) == Some(false) {
            return;
        }
        let role = self.role.state();
        if role == RoleState::Missing && !std::mem::replace(&mut self.waits_for_role, true) {
            let address = self.address;
            tracing::info!(%address, role = ROLE, "the port for nodes stays closed until ovn-northd has written their role");
        }
        if role != RoleState::Present {
            return;
        }
        self.waits_for_role = false;
        if let Err(problem) = self.shared.with_material(|material| material.server().map(drop)) {
            self.report(Some(ListenerProblem::Files(problem)));
            return;
        }
        match bind(self.address) {
            Ok(port) => {
                tracing::info!(address = %self.address, "the port for nodes is open");
                self.shared.metrics.listening.set(1);
                self.port = Some(port);
                self.report(None);
            }
            Err(error) => self.report(Some(ListenerProblem::Port(error.to_string()))),
        }
    }

    fn report(&self, problem: Option<ListenerProblem>) {
        self.problem.send_if_modified(|known| {
            if *known == problem {
                return false;
            }
            if let Some(problem) = &problem {
                let (ListenerProblem::Port(error) | ListenerProblem::Files(error)) = problem;
                tracing::error!(address = %self.address, error, "cannot open the port for nodes; retrying");
            }
            *known = problem;
            true
        });
    }

    async fn refresh(&mut self) {
        // A relay goes on when the members behind it were rebuilt.
        if self.port.is_some() && self.role.state() == RoleState::Missing {
            tracing::warn!(address = %self.address, role = ROLE, "the database lost the role of nodes; closing their port until ovn-northd has written it");
            self.close().await;
        }
        let trust =
            self.shared.with_material(|material| material.refresh().trust.then(|| material.trust().cloned()).flatten());
        if let Some(trust) = trust {
            self.shared.sessions.review(&trust);
        }
    }

    /// Whether another handshake may begin.
    fn has_room(&self) -> bool {
        let (room, ended) = self.shared.handshakes.has_room(Instant::now());
        if let Some(peer) = ended {
            self.shared.refused(peer, Reason::Timeout, &"ended for another connection");
        }
        room
    }

    async fn accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a node; retrying");
                // For example, too many open files: they do not become fewer at once.
                sleep(OPEN).await;
                return;
            }
        };
        let peer = peer.ip().to_canonical();
        let (place, ended) = self.shared.handshakes.begin(peer, Instant::now());
        if ended {
            self.shared.refused(peer, Reason::TooMany, &"the oldest of too many handshakes of this address was ended");
        }
        // There was one when the port was opened.
        let Ok(config) = self.shared.with_material(|material| material.server().cloned()) else { return };
        let number = place.number();
        let task = self.connections.spawn(self.shared.clone().serve(stream, peer, place, config));
        self.shared.handshakes.attach(number, task);
    }
}

async fn accept(port: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match port {
        Some(port) => port.accept().await,
        None => std::future::pending().await,
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Shared {
    fn with_material<T>(&self, work: impl FnOnce(&mut Material) -> T) -> T {
        // A panic in this crate's own work would end the thread, which its handle reports.
        work(&mut self.material.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn refused(&self, peer: IpAddr, reason: Reason, error: &dyn std::fmt::Display) {
        self.metrics.refused(reason);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_due(peer, reason, Instant::now()) {
            tracing::warn!(%peer, %error, hint = reason.remedy(), "connection to the port for nodes refused");
        }
    }

    /// One connection, from its handshake to its end.
    async fn serve(self: Arc<Self>, stream: TcpStream, address: IpAddr, place: Place, config: Arc<ServerConfig>) {
        let _ = stream.set_nodelay(true);
        let since = UnixTime::now();
        let mut node = match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(node)) => node,
            Ok(Err(error)) => return self.refused(address, reason(&error), &error),
            Err(late) => return self.refused(address, Reason::Timeout, &late),
        };
        drop(place);
        let chain: Vec<_> = node
            .get_ref()
            .1
            .peer_certificates()
            .into_iter()
            .flatten()
            .cloned()
            .map(rustls_pki_types::CertificateDer::into_owned)
            .collect();
        let name = match chain.first().map(trust::name) {
            Some(Ok(name)) => name,
            Some(Err(error)) => return self.refused(address, Reason::BadName, &error),
            None => return self.refused(address, Reason::NoCertificate, &rustls::Error::NoCertificatesPresented),
        };
        let peer = Peer { name, chain, since };
        let Some(mut session) = self.sessions.open(peer.clone()) else {
            return self.refused(address, Reason::TooMany, &format!("too many sessions, in all or of {}", peer.name));
        };
        // The bundle may have changed during the handshake.
        if let (Some(trust), Some((own, more))) =
            (self.with_material(|it| it.trust().cloned()), peer.chain.split_first())
            && let Err(error) = trust.admit(own, more, since)
        {
            return self.refused(address, Reason::of(&error), &error);
        }
        let mut server = match timeout(SERVER_HANDSHAKE, self.connect(&peer.name)).await {
            Ok(Ok(server)) => server,
            Ok(Err(error)) => return self.refused(address, Reason::Server, &error),
            Err(late) => return self.refused(address, Reason::Server, &late),
        };
        tracing::debug!(peer = %address, chassis = peer.name, "node connected");
        let mut requests = Requests::default();
        let look = |bytes: &[u8]| requests.look(bytes).map_err(io::Error::other);
        tokio::select! {
            ended = splice(&mut node, &mut server, look, STALLED) => {
                let error = ended.err().map(|error| error.to_string());
                if let Some(forbidden) = requests.forbidden() {
                    self.refused(address, Reason::Request, &format!("chassis {}: {forbidden}", peer.name));
                }
                tracing::debug!(peer = %address, chassis = peer.name, error, "node disconnected");
            }
            Ok(error) = &mut session.closed => {
                let hint = Reason::of(&error).remedy();
                tracing::warn!(peer = %address, chassis = peer.name, %error, hint, "session of a node closed");
            }
        }
    }

    /// Connects to ovsdb-server in the name of a node.
    async fn connect(&self, name: &str) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let config = self.with_material(|material| material.client(name)).map_err(io::Error::other)?;
        let stream = TcpStream::connect(self.server).await?;
        let _ = stream.set_nodelay(true);
        TlsConnector::from(config).connect(ServerName::from(self.server.ip()), stream).await
    }
}

/// The reason in an error of a handshake.
fn reason(error: &io::Error) -> Reason {
    error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()).map_or(Reason::BadHandshake, Reason::of)
}
