//! Forwards TCP connections from the host's loopback into a machine's network namespace.
//!
//! Programs on the host (kubectl, a test) cannot reach servers of a machine directly; the forwarder listens on the host and
//! connects from within the machine.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::Machine;

/// Listens until it is dropped.
#[derive(Debug)]
pub struct TcpForwarder {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl TcpForwarder {
    /// Listens on the host's loopback (on a free port if none is given) and connects to `target` from the machine.
    pub fn start(machine: Machine, target: SocketAddr, port: Option<u16>) -> Result<Self> {
        let wanted = SocketAddr::from(([127, 0, 0, 1], port.unwrap_or(0)));
        let listener = TcpListener::bind(wanted).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Error::PortInUse { address: wanted.to_string(), option: "--api-port" },
            _ => Error::Io { context: format!("cannot listen on {wanted}"), source: error },
        })?;
        let address = listener.local_addr().map_err(Error::io("cannot read the forwarder's address"))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        spawn("forwarder", move || {
            for client in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let machine = machine.clone();
                let served =
                    spawn("forwarded-client", move || match machine.connect(target, Duration::from_secs(10)) {
                        Ok(server) => join(client, server),
                        Err(error) => tracing::debug!(%target, %error, "cannot forward a connection; closing it"),
                    });
                if let Err(error) = served {
                    tracing::warn!(%target, %error, "cannot serve a forwarded connection; closing it, the client can retry");
                }
            }
        })?;
        Ok(Self { address, stopped })
    }

    /// The listen address on the host.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TcpForwarder {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // The listener blocks in accept(): one last connection wakes it.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(128 << 10)
        .spawn(work)
        .map(|_| ())
        .map_err(Error::io("cannot start a thread"))
}

/// Copies in both directions until both sides have closed.
fn join(client: TcpStream, server: TcpStream) {
    let (Ok(client_reads), Ok(server_writes)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let upstream = spawn("forwarded-upstream", move || copy(client_reads, server_writes));
    if upstream.is_ok() {
        copy(server, client);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    // Forward the close, so that half-closed connections (kubectl exec) work.
    let _ = to.shutdown(Shutdown::Write);
}
