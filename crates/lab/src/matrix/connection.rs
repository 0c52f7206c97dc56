//! Tests one connection with real packets: connect, request, answer.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netmodel::Family;

use super::dns;
use crate::namespace::enter_network;

/// Timeout of each step of a try. A lost first packet is retransmitted after one second.
const STEP_TIMEOUT: Duration = Duration::from_secs(4);
/// After this long without an answer a connection counts as denied. Allowed ones answer within milliseconds.
const DENIED_TIMEOUT: Duration = Duration::from_millis(1500);
/// A load balancer does not recover every connection whose first packet was lost, so a connection is retried: at least
/// this often, and for this long.
const MIN_TRIES: u32 = 4;
const MIN_RETRY_TIME: Duration = Duration::from_secs(16);
/// Between tries, in case one fails immediately.
const RETRY_DELAY: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub(super) enum Target {
    Address(SocketAddr),
    /// A name that is first resolved by the DNS server at `service`.
    Name {
        service: SocketAddr,
        name: String,
        port: u16,
        family: Family,
    },
}

/// Target, and the network namespace to try it from.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Path of the client's network namespace.
    pub(super) network: PathBuf,
    pub(super) target: Target,
}

impl Connection {
    /// Whether an answer comes back, and its first line; retries.
    pub(super) fn passes(&self) -> Result<String, String> {
        let begin = Instant::now();
        let mut tries = 0;
        loop {
            let answer = self.attempt(STEP_TIMEOUT);
            tries += 1;
            if answer.is_ok() || (tries >= MIN_TRIES && begin.elapsed() >= MIN_RETRY_TIME) {
                return answer;
            }
            std::thread::sleep(RETRY_DELAY);
        }
    }

    /// One try with a short timeout: for connections that should be denied.
    pub(super) fn passes_first_try(&self) -> Result<String, String> {
        self.attempt(DENIED_TIMEOUT)
    }

    fn attempt(&self, timeout: Duration) -> Result<String, String> {
        enter_network(&self.network, || {
            let target = match &self.target {
                Target::Address(target) => *target,
                Target::Name { service, name, port, family } => {
                    let found = dns::resolve(*service, name, *family, timeout)?;
                    let address: IpAddr = *found.first().ok_or("the name has no address")?;
                    SocketAddr::new(address, *port)
                }
            };
            ask(target, timeout).map_err(|error| format!("{target}: {error}"))
        })
        .unwrap_or_else(|error| Err(error.to_string()))
    }
}

/// Sends an HTTP request. A TLS server answers in plain text that it wants TLS, which counts as well.
fn ask(target: SocketAddr, timeout: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&target, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).trim();
    if body.is_empty() {
        return Err(std::io::Error::other("the answer is empty"));
    }
    Ok(body.chars().take(80).collect())
}
