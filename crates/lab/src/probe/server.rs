//! Echo servers: they return each request with the client address that they saw.

use std::net::SocketAddr;

use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::netns_runtime::NetnsRuntime;
use super::packet::{REQUEST, Reply, Request};
use crate::error::{Error, Result};

/// Room for the requests that arrive while this process waits for a CPU: with the default of some 270 small datagrams, a
/// busy machine would lose requests here, as if the network had lost them.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Serves TCP and UDP at an address; returns when both listen.
pub(super) fn start(runtime: &NetnsRuntime, name: &str, address: SocketAddr) -> Result<()> {
    let bound = runtime.run(async move {
        let socket = UdpSocket::bind(address).await?;
        setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)?;
        std::io::Result::Ok((TcpListener::bind(address).await?, socket))
    })?;
    let (listener, socket) = bound.map_err(Error::io(format!("cannot listen at {address} in {name}")))?;
    runtime.spawn(datagrams(socket));
    runtime.spawn(connections(listener));
    Ok(())
}

async fn datagrams(socket: UdpSocket) {
    let mut bytes = [0; 2048];
    loop {
        // Errors are ICMP errors of earlier replies; the next request is not affected.
        let Ok((length, client)) = socket.recv_from(&mut bytes).await else { continue };
        if let Some(request) = Request::decode(&bytes[..length]) {
            let _ = socket.send_to(&Reply { request, client }.encode(), client).await;
        }
    }
}

async fn connections(listener: TcpListener) {
    loop {
        if let Ok((stream, client)) = listener.accept().await {
            tokio::spawn(connection(stream, client));
        }
    }
}

/// Answers until the client closes the connection.
async fn connection(mut stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let mut bytes = [0; REQUEST];
    while stream.read_exact(&mut bytes).await.is_ok() {
        let Some(request) = Request::decode(&bytes) else { return };
        if stream.write_all(&Reply { request, client }.encode()).await.is_err() {
            return;
        }
    }
}
