//! Clients: one task per path sends its numbered packets on schedule; other tasks log the replies.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netmodel::Family;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval_at, timeout};

use super::packet::{REPLY, Reply, Request, echo_reply, echo_request};
use super::packet_log::PacketLog;
use super::plan::{PathSpec, Protocol, Server};

/// A packet without an answer after this time is lost.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(5);
/// UDP and ICMP use a new socket after this time, so that new connection-tracking entries and flows are created all the
/// time.
const SOCKET_LIFETIME: Duration = Duration::from_secs(1);
/// How long reconnecting the long-lived connection may take before it is tried again.
const RECONNECT_LIMIT: Duration = Duration::from_secs(2);

/// The client of one path.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) index: u16,
    pub(super) spec: PathSpec,
    pub(super) packet_log: Arc<PacketLog>,
    /// When the prober started: time zero of the log.
    pub(super) start: Instant,
    pub(super) period: Duration,
    /// Spreads the paths evenly over a period.
    pub(super) offset: Duration,
}

impl Client {
    /// Sends until the runtime ends.
    pub(super) async fn run(self) {
        let client = Arc::new(self);
        match client.spec.protocol {
            Protocol::TcpEstablished => established(client).await,
            Protocol::TcpNew => new_connections(client).await,
            Protocol::Udp | Protocol::Icmp => datagrams(client).await,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A prober that was delayed does not catch up with a burst.
    fn ticker(&self) -> Interval {
        let mut ticker = interval_at(tokio::time::Instant::now() + self.offset, self.period);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticker
    }

    fn next(&self) -> Request {
        let sent = self.now();
        Request { path: self.index, number: self.packet_log.send(sent), sent }
    }

    /// Logs a reply; `from` is its source address, where that can differ from the queried address.
    fn answered(&self, number: u64, client: Option<IpAddr>, from: Option<IpAddr>) {
        let wrong_client = client.filter(|client| !self.spec.allows_source(*client));
        let wrong_server = from.filter(|from| *from != self.spec.to.ip());
        self.packet_log.answer(number, self.now(), wrong_server.or(wrong_client));
    }
}

/// A long-lived connection; its reader sets [`Connection::closed`].
struct Connection {
    writer: OwnedWriteHalf,
    closed: Arc<AtomicBool>,
}

async fn established(client: Arc<Client>) {
    let mut ticker = client.ticker();
    let mut connection: Option<Connection> = None;
    let mut connecting: Option<JoinHandle<std::io::Result<TcpStream>>> = None;
    loop {
        ticker.tick().await;
        let request = client.next();
        if connecting.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(done) = connecting.take()
        {
            match done.await {
                Ok(Ok(stream)) => connection = Some(open(client.clone(), stream)),
                Ok(Err(error)) if is_reset(&error) => client.packet_log.reset(request.number),
                _ => {}
            }
        }
        match connection.take().filter(|open| !open.closed.load(Ordering::Acquire)) {
            Some(open) => match open.writer.try_write(&request.encode()) {
                Ok(written) if written == request.encode().len() => connection = Some(open),
                // The buffer is full because nothing is acknowledged: the packet is lost, the connection may recover.
                Err(error) if error.kind() == ErrorKind::WouldBlock => connection = Some(open),
                _ => client.packet_log.reset(request.number),
            },
            // Without a connection the packet cannot be sent: for an application, it is lost.
            None if connecting.is_none() => connecting = Some(tokio::spawn(connect(client.spec.to, RECONNECT_LIMIT))),
            None => {}
        }
    }
}

async fn connect(to: SocketAddr, limit: Duration) -> std::io::Result<TcpStream> {
    let stream = timeout(limit, TcpStream::connect(to)).await.map_err(|_| ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn open(client: Arc<Client>, stream: TcpStream) -> Connection {
    let closed = Arc::new(AtomicBool::new(false));
    let (reader, writer) = stream.into_split();
    tokio::spawn(read_replies(client, reader, closed.clone()));
    Connection { writer, closed }
}

async fn read_replies(client: Arc<Client>, mut reader: OwnedReadHalf, closed: Arc<AtomicBool>) {
    let mut bytes = [0; REPLY];
    while reader.read_exact(&mut bytes).await.is_ok() {
        if let Some(reply) = Reply::decode(&bytes) {
            client.answered(reply.request.number, Some(reply.client.ip()), None);
        }
    }
    closed.store(true, Ordering::Release);
    client.packet_log.reset_newest();
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

async fn new_connections(client: Arc<Client>) {
    let mut ticker = client.ticker();
    loop {
        ticker.tick().await;
        let client = client.clone();
        let request = client.next();
        tokio::spawn(async move {
            let exchange = async {
                match client.spec.server {
                    Server::Echo => ask_echo(client.spec.to, request).await,
                    Server::Netexec => ask_netexec(client.spec.to).await,
                }
            };
            match timeout(LOST_AFTER, exchange).await {
                Ok(Ok(seen)) => client.answered(request.number, Some(seen), None),
                Ok(Err(error)) if is_reset(&error) => client.packet_log.reset(request.number),
                // Timeout, or no route: lost.
                _ => {}
            }
        });
    }
}

/// One connection to an echo server; returns the client address that it saw.
async fn ask_echo(to: SocketAddr, request: Request) -> std::io::Result<IpAddr> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&request.encode()).await?;
    let mut bytes = [0; REPLY];
    stream.read_exact(&mut bytes).await?;
    let reply = Reply::decode(&bytes).filter(|reply| reply.request == request);
    reply.map(|reply| reply.client.ip()).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// One HTTP request to agnhost's netexec; returns the client address that it saw.
async fn ask_netexec(to: SocketAddr) -> std::io::Result<IpAddr> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(b"GET /clientip HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if answer.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).trim();
    body.parse::<SocketAddr>().map(|client| client.ip()).map_err(|_| ErrorKind::InvalidData.into())
}

async fn datagrams(client: Arc<Client>) {
    let mut ticker = client.ticker();
    let mut current: Option<(Arc<UdpSocket>, Instant)> = None;
    loop {
        ticker.tick().await;
        let request = client.next();
        if current.as_ref().is_none_or(|(_, since)| since.elapsed() >= SOCKET_LIFETIME) {
            // If no socket can be opened, this packet is lost and the next one tries again.
            current = open_socket(&client.spec).await.ok().map(|socket| (Arc::new(socket), Instant::now()));
            if let Some((socket, _)) = &current {
                tokio::spawn(receive(client.clone(), socket.clone()));
            }
        }
        if let Some((socket, _)) = &current {
            let _ = socket.send_to(&frame(&client.spec, request), client.spec.to).await;
        }
    }
}

/// Unconnected, so that replies from another address are received, too.
async fn open_socket(spec: &PathSpec) -> std::io::Result<UdpSocket> {
    let family = Family::of(spec.to.ip());
    if spec.protocol == Protocol::Udp {
        let any = family.unspecified();
        return UdpSocket::bind((any, 0)).await;
    }
    // Per network namespace: by default no group may open ping sockets.
    std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")?;
    let (family, protocol) = match family {
        Family::V4 => (AddressFamily::Inet, SockProtocol::Icmp),
        Family::V6 => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Datagram, flags, protocol)?;
    UdpSocket::from_std(socket.into())
}

/// Logs the replies to a socket, until none can come any more.
async fn receive(client: Arc<Client>, socket: Arc<UdpSocket>) {
    let deadline = tokio::time::Instant::now() + SOCKET_LIFETIME + LOST_AFTER;
    let mut bytes = [0; 2048];
    while let Ok(received) = tokio::time::timeout_at(deadline, socket.recv_from(&mut bytes)).await {
        let Ok((length, from)) = received else { continue };
        if let Some((number, seen)) = parse(&client.spec, client.index, &bytes[..length]) {
            client.answered(number, seen, Some(from.ip()));
        }
    }
}

fn frame(spec: &PathSpec, request: Request) -> Vec<u8> {
    match (spec.protocol, spec.server) {
        (Protocol::Icmp, _) => echo_request(request, Family::of(spec.to.ip())),
        (_, Server::Netexec) => format!("echo {}.{}", request.path, request.number).into_bytes(),
        (_, Server::Echo) => request.encode().to_vec(),
    }
}

/// The number of the packet that a datagram answers, and the client address that the server saw, if it reports it.
fn parse(spec: &PathSpec, path: u16, bytes: &[u8]) -> Option<(u64, Option<IpAddr>)> {
    match (spec.protocol, spec.server) {
        (Protocol::Icmp, _) => {
            let request = echo_reply(bytes, Family::of(spec.to.ip())).filter(|request| request.path == path)?;
            Some((request.number, None))
        }
        (_, Server::Netexec) => {
            let (own, number) = std::str::from_utf8(bytes).ok()?.trim().split_once('.')?;
            (own.parse() == Ok(path)).then_some((number.parse().ok()?, None))
        }
        (_, Server::Echo) => {
            let reply = Reply::decode(bytes).filter(|reply| reply.request.path == path)?;
            Some((reply.request.number, Some(reply.client.ip())))
        }
    }
}
