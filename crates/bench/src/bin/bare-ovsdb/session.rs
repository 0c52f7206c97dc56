//! One connection: bytes out, whole messages in.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::framing::{Framer, find};
use crate::options::Remote;

const READ_AT_ONCE: usize = 256 * 1024;
/// Bytes kept of a message that is otherwise discarded: enough for an echo or an error.
pub(crate) const HEAD: usize = 4096;

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection to an OVSDB server.
pub(crate) struct Session {
    stream: Box<dyn Stream>,
    remote: Remote,
    buffer: Vec<u8>,
    /// Received bytes that were not consumed yet.
    unread: std::ops::Range<usize>,
}

pub(crate) struct Message {
    /// Its first bytes, as many as were to be kept.
    pub(crate) kept: Vec<u8>,
    /// Length of the whole message.
    pub(crate) bytes: u64,
    /// The framer that counted its brackets; at a certain depth they are the rows of a monitor reply.
    pub(crate) framer: Framer,
}

impl Session {
    pub(crate) fn open(remote: &Remote, timeout: Duration) -> Result<Self, String> {
        let connected: io::Result<Box<dyn Stream>> = match remote {
            Remote::Unix(path) => UnixStream::connect(path).and_then(|stream| {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }),
            Remote::Tcp(address) => TcpStream::connect(address).and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }),
        };
        let stream =
            connected.map_err(|error| format!("cannot connect to {remote}: {error}: is the server running there?"))?;
        Ok(Self { stream, remote: remote.clone(), buffer: vec![0; READ_AT_ONCE], unread: 0..0 })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| self.broken(&error))
    }

    /// The next reply, of which up to `keep` bytes are kept. The server's echoes are answered on the way, since it
    /// disconnects a client that does not.
    pub(crate) fn reply(&mut self, keep: usize) -> Result<Message, String> {
        loop {
            let message = self.message(keep.max(HEAD))?;
            let short = message.bytes <= HEAD as u64;
            let is_echo = short && has(&message.kept, b"\"method\":\"echo\"") && !has(&message.kept, b"\"result\":");
            if !is_echo {
                return Ok(message);
            }
            self.send(br#"{"id":"echo","result":[],"error":null}"#)?;
        }
    }

    fn message(&mut self, keep: usize) -> Result<Message, String> {
        let mut message = Message { kept: Vec::new(), bytes: 0, framer: Framer::default() };
        loop {
            if self.unread.is_empty() {
                let read = self.fill()?;
                self.unread = 0..read;
            }
            let bytes = &self.buffer[self.unread.clone()];
            let end = message.framer.feed(bytes).map_err(|byte| {
                format!(
                    "{} does not speak OVSDB (it sent byte {byte:#04x} first): check the remote; ssl is not supported",
                    self.remote
                )
            })?;
            let used = &bytes[..end.unwrap_or(bytes.len())];
            message.bytes += used.len() as u64;
            message.kept.extend_from_slice(&used[..used.len().min(keep - message.kept.len())]);
            self.unread.start += used.len();
            if end.is_some() {
                return Ok(message);
            }
        }
    }

    fn fill(&mut self) -> Result<usize, String> {
        loop {
            match self.stream.read(&mut self.buffer) {
                Ok(0) => {
                    return Err(format!(
                        "{} closed the connection within a message: see the server's log",
                        self.remote
                    ));
                }
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    fn broken(&self, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!(
                    "no response from {}: check that it is an OVSDB server, or raise --timeout if it is slow",
                    self.remote
                )
            }
            _ => format!("connection to {} failed: {error}: see the server's log", self.remote),
        }
    }
}

fn has(message: &[u8], text: &[u8]) -> bool {
    find(message, text).is_some()
}

/// The start of a message, for an error line.
pub(crate) fn excerpt(message: &[u8]) -> String {
    String::from_utf8_lossy(message).chars().take(400).map(|sign| if sign.is_control() { ' ' } else { sign }).collect()
}
