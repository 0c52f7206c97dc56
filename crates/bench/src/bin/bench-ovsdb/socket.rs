//! A minimal client on a socket: sends text, receives whole messages.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub(crate) struct Socket {
    stream: UnixStream,
    buffer: Vec<u8>,
    used: usize,
}

impl Socket {
    pub(crate) fn connect(remote: &str) -> Result<Self> {
        let path = remote.strip_prefix("unix:").context("the bare socket supports only unix: remotes")?;
        let stream = UnixStream::connect(path).with_context(|| format!("cannot connect to {remote}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, buffer: vec![0; 1 << 20], used: 0 })
    }

    pub(crate) fn send(&mut self, text: &str) -> Result<()> {
        Ok(self.stream.write_all(text.as_bytes())?)
    }

    /// The next message other than an echo, and the time of its last byte.
    pub(crate) fn receive(&mut self) -> Result<(Vec<u8>, Instant)> {
        loop {
            let (message, at) = self.message()?;
            if !message.starts_with(br#"{"id":"echo""#) {
                return Ok((message, at));
            }
            self.send(r#"{"id":"echo","result":[],"error":null}"#)?;
        }
    }

    fn message(&mut self) -> Result<(Vec<u8>, Instant)> {
        let (mut depth, mut in_string, mut escaped, mut at) = (0_u32, false, false, 0);
        let mut arrived = Instant::now();
        loop {
            for index in at..self.used {
                match self.buffer[index] {
                    _ if escaped => escaped = false,
                    b'\\' if in_string => escaped = true,
                    b'"' => in_string = !in_string,
                    _ if in_string => {}
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth == 1 => {
                        let message = self.buffer[..=index].to_vec();
                        self.buffer.copy_within(index + 1..self.used, 0);
                        self.used -= index + 1;
                        return Ok((message, arrived));
                    }
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            at = self.used;
            if self.used == self.buffer.len() {
                self.buffer.resize(self.used * 2, 0);
            }
            match self.stream.read(&mut self.buffer[self.used..])? {
                0 => bail!("the server closed the connection"),
                read => self.used += read,
            }
            arrived = Instant::now();
        }
    }
}
