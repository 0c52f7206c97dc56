//! One way through the network, tried with real packets: a connection, a request, an answer.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::names;
use crate::namespace::enter_network;

/// How long one step of a try may take. A lost first packet is sent again after one second.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long silence must last to be called a refusal. Ways that pass answer within milliseconds.
const SILENCE: Duration = Duration::from_millis(1500);
/// A load balancer does not recover every connection whose first packet was lost, so a way is tried more than once: at least
/// so often, and for so long.
const TRIES: u32 = 4;
const LONGEST: Duration = Duration::from_secs(16);
/// Between tries, where one was refused at once.
const PAUSE: Duration = Duration::from_millis(250);

/// What is reached.
#[derive(Debug, Clone)]
pub(super) enum Goal {
    /// A server at an address.
    Address(SocketAddr),
    /// A server by a name, which a name service tells.
    Name { service: SocketAddr, name: String, port: u16, v6: bool },
}

/// A way from a network to a goal.
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// The file of the network namespace.
    pub(super) network: PathBuf,
    /// Where to.
    pub(super) goal: Goal,
}

impl Way {
    /// Whether an answer comes back, and what it says.
    pub(super) fn passes(&self) -> Result<String, String> {
        let begin = Instant::now();
        let mut tries = 0;
        loop {
            let answer = self.attempt(PATIENCE);
            tries += 1;
            if answer.is_ok() || (tries >= TRIES && begin.elapsed() >= LONGEST) {
                return answer;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// One try that gives up soon: for ways that shall not pass.
    pub(super) fn passes_at_once(&self) -> Result<String, String> {
        self.attempt(SILENCE)
    }

    fn attempt(&self, patience: Duration) -> Result<String, String> {
        enter_network(&self.network, || {
            let target = match &self.goal {
                Goal::Address(target) => *target,
                Goal::Name { service, name, port, v6 } => {
                    let found = names::resolve(*service, name, *v6, patience)?;
                    let address: IpAddr = *found.first().ok_or("the name has no address")?;
                    SocketAddr::new(address, *port)
                }
            };
            ask(target, patience).map_err(|error| format!("{target}: {error}"))
        })
        .unwrap_or_else(|error| Err(error.to_string()))
    }
}

/// Asks a web server. One that wants TLS says so in plain words, which is an answer too.
fn ask(target: SocketAddr, patience: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&target, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).trim();
    if body.is_empty() {
        return Err(std::io::Error::other("the answer is empty"));
    }
    Ok(body.chars().take(80).collect())
}
