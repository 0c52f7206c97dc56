//! The socket of the CNI server: one HTTP request for each connection, from root only, limited in size and time. Hundreds of
//! concurrent requests need little memory.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cni::{Code, Failure, Version};
use cni_shim::{MAX_MESSAGE, PROTOCOL, PROTOCOL_HEADER, SOCKET};
use telemetry::Shutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Inner;
use crate::error::NodeError;

/// Limit of the request line and the header fields.
const MAX_HEAD: usize = 8 << 10;
/// Time limit for reading a request, and for writing a response.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of a rejected request is still read: a client may read the response only after it has written everything.
const MAX_DRAIN: usize = 8 << 20;

/// Serves requests until shutdown.
pub(super) async fn serve(inner: Arc<Inner>, shutdown: Shutdown) -> Result<(), NodeError> {
    let directory = inner.deps.directory.clone();
    let listener = match listen(&directory) {
        Ok(listener) => listener,
        Err(error) => return Err(NodeError::CniSocket { directory, error }),
    };
    tracing::info!(directory = %directory.display(), "CNI server listening");
    loop {
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(handle_connection(inner.clone(), stream))),
                Err(error) => {
                    // Usually temporary, such as too many open files.
                    tracing::warn!(%error, "cannot accept a connection of the runtime; retrying");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

/// Creates the socket. At no time is it accessible to others than root.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = directory.parent() {
        std::fs::create_dir_all(parent)?;
    }
    // The mode is right from the start, and corrected if the directory exists.
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    let name = Path::new(SOCKET).file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let (socket, new) = (directory.join(name), directory.join(".new.sock"));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    // By rename: a plugin always finds a socket, the old one or the new one.
    std::fs::rename(&new, &socket)?;
    Ok(listener)
}

/// HTTP status and JSON body.
type Response = (&'static str, String);

fn reject(status: &'static str, failure: &Failure) -> Response {
    tracing::warn!(error = %failure, "rejected a request on the CNI socket");
    (status, failure.to_json(Version::default()))
}

async fn handle_connection(inner: Arc<Inner>, mut stream: UnixStream) {
    let (status, text) = match timeout(IO_TIMEOUT, read(&mut stream)).await {
        Ok(Ok(body)) => match respond(inner, body, &mut stream).await {
            Some(response) => response,
            None => return,
        },
        Ok(Err(Some(refusal))) => refusal,
        // The client hung up, or did not send a request in time.
        Ok(Err(None)) | Err(_) => return,
    };
    let head = format!(
        "HTTP/1.1 {status}\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        text.len()
    );
    let writing = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        // If the socket is closed with unread data, the kernel discards the response.
        let mut rest = (&mut stream).take(MAX_DRAIN as u64);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    let _ = timeout(IO_TIMEOUT, writing).await;
}

/// Reads the body of a request. `Err(None)`: the client hung up.
async fn read(stream: &mut UnixStream) -> Result<Vec<u8>, Option<Response>> {
    let ours = nix::unistd::geteuid().as_raw();
    let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
    if user.is_none_or(|user| user != 0 && user != ours) {
        let message = "this socket is for the container runtime of the host, which runs as root";
        let user = user.map_or_else(|| "unknown".to_owned(), |user| user.to_string());
        let failure =
            Failure::new(Code::InvalidEnvironment, message).with_details(format!("the client runs as user {user}"));
        return Err(Some(reject("403 Forbidden", &failure)));
    }
    let mut bytes = Vec::with_capacity(2048);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD {
            let failure = Failure::new(Code::NotDecoded, "the head of the request is too large");
            return Err(Some(reject("431 Request Header Fields Too Large", &failure)));
        }
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            return Err(None);
        }
    };
    let head = Head::parse(&bytes[..end])?;
    if head.protocol.as_deref() != Some(PROTOCOL) {
        let plugin = head.protocol.unwrap_or_else(|| "unknown".to_owned());
        let failure = Failure::new(Code::IncompatibleVersion, "CNI plugin and node agent versions differ").with_details(
            format!("protocol of the plugin: {plugin:?}, of the agent: {PROTOCOL:?}; the agent installs its plugin when it is ready"),
        );
        return Err(Some(reject("400 Bad Request", &failure)));
    }
    if head.length > MAX_MESSAGE {
        let failure = Failure::new(Code::NotDecoded, format!("the request is longer than {MAX_MESSAGE} bytes"));
        return Err(Some(reject("413 Content Too Large", &failure)));
    }
    bytes.drain(..end + 4);
    bytes.reserve_exact(head.length.saturating_sub(bytes.len()));
    while bytes.len() < head.length {
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            return Err(None);
        }
    }
    bytes.truncate(head.length);
    Ok(bytes)
}

/// The parsed head of a request.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    length: usize,
    protocol: Option<String>,
}

impl Head {
    fn parse(head: &[u8]) -> Result<Self, Option<Response>> {
        let wrong = |what: &str| {
            Some(reject("400 Bad Request", &Failure::new(Code::NotDecoded, format!("not a CNI request: {what}"))))
        };
        let head = std::str::from_utf8(head).map_err(|_| wrong("it is not UTF-8"))?;
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        if !first.starts_with("POST / HTTP/1.") {
            return Err(wrong("it does not begin with POST / HTTP/1.1"));
        }
        let (mut length, mut protocol) = (None, None);
        for (key, value) in lines.filter_map(|line| line.split_once(':')) {
            let (key, value) = (key.trim(), value.trim());
            if key.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse().map_err(|_| wrong("content-length is not a number"))?);
            } else if key.eq_ignore_ascii_case(PROTOCOL_HEADER) {
                protocol = Some(value.chars().take(32).collect());
            }
        }
        Ok(Self { length: length.ok_or_else(|| wrong("content-length is missing"))?, protocol })
    }
}

/// Handles a request; None if the client hung up. The work has its own task, so it is completed or rolled back in any case.
async fn respond(inner: Arc<Inner>, body: Vec<u8>, stream: &mut UnixStream) -> Option<Response> {
    let (connection_open, hung_up) = oneshot::channel();
    let mut working = tokio::spawn(inner.handle(body, hung_up));
    let mut more = [0; 64];
    loop {
        tokio::select! {
            result = &mut working => {
                drop::<oneshot::Sender<()>>(connection_open);
                return Some(match result {
                    Ok(Ok(text)) => ("200 OK", text),
                    Ok(Err(text)) => ("400 Bad Request", text),
                    Err(error) => {
                        let failure = Failure::new(Code::Internal, "the request's task panicked");
                        reject("500 Internal Server Error", &failure.with_details(error.to_string()))
                    }
                });
            }
            // Data after the request is ignored; the end of the connection is not.
            read = stream.read(&mut more) => if !matches!(read, Ok(1..)) {
                return None;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_parsed_or_rejected() {
        let head = Head::parse(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nOVNKUBE-CNI:  1").unwrap();
        assert_eq!(head, Head { length: 12, protocol: Some("1".to_owned()) });
        for odd in [
            &b"GET / HTTP/1.1\r\ncontent-length: 1"[..],
            b"POST / HTTP/1.1\r\ncontent-length: -1",
            b"POST / HTTP/1.1\r\nhost: x",
            b"\xff",
            b"",
        ] {
            let (status, text) = Head::parse(odd).unwrap_err().unwrap();
            assert!(status.starts_with("400") && text.contains("not a CNI request"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_request_of_the_largest_size_is_read_and_a_larger_one_is_rejected() {
        for (length, status) in [(MAX_MESSAGE, None), (MAX_MESSAGE + 1, Some("413 Content Too Large"))] {
            // The client has this process's user, who may connect.
            let (mut client, mut server) = UnixStream::pair().unwrap();
            let head = format!("POST / HTTP/1.1\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\ncontent-length: {length}\r\n\r\n");
            let writing = async {
                client.write_all(head.as_bytes()).await.unwrap();
                // The rest of a rejected request is not read.
                let _ = client.write_all(&vec![b' '; length]).await;
            };
            let reading = async {
                let read = read(&mut server).await;
                drop(server);
                read
            };
            match (tokio::join!(writing, reading).1, status) {
                (Ok(body), None) => assert_eq!(body.len(), MAX_MESSAGE),
                (Err(Some((found, text))), Some(status)) => {
                    assert_eq!(found, status);
                    assert!(text.contains("longer than"), "{text}");
                }
                (other, _) => panic!("{length} bytes: {:?}", other.map(|body| body.len())),
            }
        }
    }
}
