//! A connection: bytes out, JSON texts in, over unix, TCP or TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use crate::client::remote::{Endpoint, Remote};
use crate::client::tls::{self, TlsError, TlsFiles};
use crate::frame::{FrameError, Framer, Limits};

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// Why a connection could not be made or is no more.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// A name that has no address.
    #[error("{0} has no address")]
    NoAddress(String),
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// An `ssl:` remote without files.
    #[error("an ssl: remote needs a certificate, a private key and authorities; none were given")]
    NoTlsFiles,
    /// What came is no sequence of JSON texts.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The peer closed the connection.
    #[error("the server closed the connection{}", if *.0 { " in the middle of a message" } else { "" })]
    Closed(bool),
}

/// A connection.
pub(crate) struct Wire {
    reader: ReadHalf<Pin<Box<dyn Stream>>>,
    writer: WriteHalf<Pin<Box<dyn Stream>>>,
    framer: Framer,
    heard: Instant,
}

impl Wire {
    /// When the last byte came: a peer that sends a large message slowly is alive.
    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }

    /// Connects; a name is resolved now, and all its addresses are tried.
    pub(crate) async fn connect(
        remote: &Remote,
        tls: Option<&TlsFiles>,
        limits: Limits,
        limit: Duration,
    ) -> Result<Self, WireError> {
        let connecting = async {
            let stream: Pin<Box<dyn Stream>> = match remote {
                Remote::Unix(path) => Box::pin(UnixStream::connect(path).await?),
                Remote::Tcp(endpoint) => Box::pin(tcp(endpoint, limit).await?),
                Remote::Ssl(endpoint) => {
                    let config = tls.ok_or(WireError::NoTlsFiles)?.load()?;
                    let name = tls::server_name(&endpoint.host)?;
                    let stream = tcp(endpoint, limit).await?;
                    Box::pin(tokio_rustls::TlsConnector::from(config).connect(name, stream).await?)
                }
            };
            Ok::<_, WireError>(stream)
        };
        let stream = timeout(limit, connecting).await.map_err(|_| WireError::Timeout(limit))??;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self { reader, writer, framer: Framer::new(limits), heard: Instant::now() })
    }

    /// The next text. May be given up at any time: nothing that has arrived is lost.
    pub(crate) async fn receive(&mut self) -> Result<String, WireError> {
        loop {
            if let Some(frame) = self.framer.next_frame()? {
                return String::from_utf8(frame).map_err(|_| {
                    WireError::Io(io::Error::new(io::ErrorKind::InvalidData, "the server sent what is no UTF-8"))
                });
            }
            let buffer = self.framer.buffer();
            // Room for much at once: a dump is megabytes.
            buffer.reserve(64 << 10);
            if self.reader.read_buf(buffer).await? == 0 {
                return Err(WireError::Closed(self.framer.is_partial()));
            }
            self.heard = Instant::now();
        }
    }

    /// Sends a text. As long as the peer takes something within each `patience`, it may take its time.
    pub(crate) async fn send(&mut self, mut bytes: &[u8], patience: Duration) -> Result<(), WireError> {
        while !bytes.is_empty() {
            let written =
                timeout(patience, self.writer.write(bytes)).await.map_err(|_| WireError::Timeout(patience))??;
            if written == 0 {
                return Err(WireError::Closed(false));
            }
            bytes = &bytes[written..];
        }
        timeout(patience, self.writer.flush()).await.map_err(|_| WireError::Timeout(patience))??;
        Ok(())
    }
}

async fn tcp(endpoint: &Endpoint, limit: Duration) -> Result<TcpStream, WireError> {
    let addresses: Vec<SocketAddr> = lookup_host((endpoint.host.as_str(), endpoint.port)).await?.collect();
    let mut last = WireError::NoAddress(endpoint.to_string());
    // An address that swallows packets must not use up the time of the others.
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Messages are whole when they are sent; waiting for more would only delay them.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error.into(),
            Err(_) => last = WireError::Timeout(share),
        }
    }
    Err(last)
}
