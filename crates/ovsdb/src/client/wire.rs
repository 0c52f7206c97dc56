//! A connection over a unix socket, TCP or TLS, which receives whole JSON texts.

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

/// How long closing a connection may take.
const CLOSE_LIMIT: Duration = Duration::from_millis(100);

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// Why a connection could not be opened, or was closed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Connecting, sending or receiving exceeded its limit.
    #[error("timed out after {0:?}")]
    Timeout(Duration),
    /// The host name resolves to no address.
    #[error("{0} has no address")]
    NoAddress(String),
    /// Invalid TLS files.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// An `ssl:` remote without configured files.
    #[error("an ssl: remote needs a certificate, a private key and certificate authorities; none are configured")]
    NoTlsFiles,
    /// The stream is not a sequence of JSON texts.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The server closed the connection; true if in the middle of a message.
    #[error("the server closed the connection{}", if *.0 { " in the middle of a message" } else { "" })]
    Closed(bool),
}

/// A stream over a unix socket, TCP or TLS.
pub type ByteStream = Pin<Box<dyn Stream>>;

/// Opens a stream to a server within `limit`; resolves the name and tries all its addresses.
pub async fn open_stream(remote: &Remote, tls: Option<&TlsFiles>, limit: Duration) -> Result<ByteStream, WireError> {
    let connecting = async {
        let stream: ByteStream = match remote {
            Remote::Unix(path) => Box::pin(UnixStream::connect(path).await?),
            Remote::Tcp(endpoint) => Box::pin(tcp(endpoint, limit).await?),
            Remote::Ssl(endpoint) => {
                let config = tls.ok_or(WireError::NoTlsFiles)?.client_config()?;
                let name = tls::server_name(&endpoint.host)?;
                let stream = tcp(endpoint, limit).await?;
                Box::pin(tokio_rustls::TlsConnector::from(config).connect(name, stream).await?)
            }
        };
        Ok::<_, WireError>(stream)
    };
    timeout(limit, connecting).await.map_err(|_| WireError::Timeout(limit))?
}

pub(crate) struct Wire {
    reader: ReadHalf<ByteStream>,
    writer: WriteHalf<ByteStream>,
    framer: Framer,
    last_received: Instant,
}

impl Wire {
    /// When the last bytes arrived: a server that sends a large message slowly is alive.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Connects within `limit`.
    pub(crate) async fn connect(
        remote: &Remote,
        tls: Option<&TlsFiles>,
        limits: Limits,
        limit: Duration,
    ) -> Result<Self, WireError> {
        let stream = open_stream(remote, tls, limit).await?;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self { reader, writer, framer: Framer::new(limits), last_received: Instant::now() })
    }

    /// The next JSON text. Cancel-safe.
    pub(crate) async fn receive(&mut self) -> Result<String, WireError> {
        loop {
            if let Some(frame) = self.framer.next_frame()? {
                return String::from_utf8(frame).map_err(|_| {
                    WireError::Io(io::Error::new(io::ErrorKind::InvalidData, "the server sent invalid UTF-8"))
                });
            }
            let buffer = self.framer.buffer();
            // A dump is megabytes: read much at once.
            buffer.reserve(64 << 10);
            if self.reader.read_buf(buffer).await? == 0 {
                return Err(WireError::Closed(self.framer.is_partial()));
            }
            self.last_received = Instant::now();
        }
    }

    /// Closes the connection cleanly; a server logs a warning about a TLS connection that just stops.
    pub(crate) async fn close(mut self) {
        let _ = timeout(CLOSE_LIMIT, self.writer.shutdown()).await;
    }

    /// Sends bytes; fails if the server accepts nothing for `limit`.
    pub(crate) async fn send(&mut self, mut bytes: &[u8], limit: Duration) -> Result<(), WireError> {
        while !bytes.is_empty() {
            let written = timeout(limit, self.writer.write(bytes)).await.map_err(|_| WireError::Timeout(limit))??;
            if written == 0 {
                return Err(WireError::Closed(false));
            }
            bytes = &bytes[written..];
        }
        timeout(limit, self.writer.flush()).await.map_err(|_| WireError::Timeout(limit))??;
        Ok(())
    }
}

async fn tcp(endpoint: &Endpoint, limit: Duration) -> Result<TcpStream, WireError> {
    let addresses: Vec<SocketAddr> = lookup_host((endpoint.host.as_str(), endpoint.port)).await?.collect();
    let mut last = WireError::NoAddress(endpoint.to_string());
    // An address that drops packets must not use up the time of the others.
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Messages are sent whole: Nagle's algorithm would only delay them.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error.into(),
            Err(_) => last = WireError::Timeout(share),
        }
    }
    Err(last)
}
