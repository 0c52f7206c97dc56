//! The socket: who may ask, how much, and in which words. One request of HTTP for each connection, as the plugin sends it;
//! three hundred of them at once take hardly any memory.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cni::{Code, Failure, Version};
use cni_shim::{PROTOCOL, PROTOCOL_HEADER, SOCKET};
use telemetry::Shutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Inner;

/// No request of a runtime is longer: GC names all attachments of a node, in some hundred bytes each.
const LONGEST: usize = 1 << 20;
/// No head of a request is longer.
const LONGEST_HEAD: usize = 8 << 10;
/// So long a request may take to arrive, and its answer to leave.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a request that is refused, so much is still taken: one who writes would not read before.
const DRAINED: usize = 8 << 20;

/// Answers until it is told to stop.
pub(super) async fn serve(inner: Arc<Inner>, shutdown: Shutdown) -> Result<(), String> {
    let folder = inner.parts.folder.clone();
    let listener =
        listen(&folder).map_err(|error| format!("the CNI server cannot listen in {}: {error}", folder.display()))?;
    tracing::info!(folder = %folder.display(), "the CNI server listens");
    loop {
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(converse(inner.clone(), stream))),
                Err(error) => {
                    // No more descriptors, for example: that passes.
                    tracing::warn!(%error, "a request of the runtime cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

/// Makes the socket, for root alone at every moment.
fn listen(folder: &Path) -> io::Result<UnixListener> {
    if let Some(above) = folder.parent() {
        std::fs::create_dir_all(above)?;
    }
    // Its own mode from the beginning, and also where another one made it.
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    let name = Path::new(SOCKET).file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let (socket, new) = (folder.join(name), folder.join(".new.sock"));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    // Whoever asks meanwhile finds the old one or the new one, and never none.
    std::fs::rename(&new, &socket)?;
    Ok(listener)
}

/// An answer: a status of HTTP and JSON.
type Answer = (&'static str, String);

fn refused(status: &'static str, failure: &Failure) -> Answer {
    tracing::warn!(%failure, "a request was refused");
    (status, failure.to_json(Version::default()))
}

async fn converse(inner: Arc<Inner>, mut stream: UnixStream) {
    let answer = match timeout(PATIENCE, read(&mut stream)).await {
        Ok(Ok(body)) => match answer(inner, body, &mut stream).await {
            Some(answer) => answer,
            None => return,
        },
        Ok(Err(Some(refusal))) => refusal,
        // It went away, or does not say what it wants.
        Ok(Err(None)) | Err(_) => return,
    };
    let (status, text) = answer;
    let head = format!(
        "HTTP/1.1 {status}\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        text.len()
    );
    let writing = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        // Closed with something unread, the answer would be lost.
        let mut rest = (&mut stream).take(DRAINED as u64);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    let _ = timeout(PATIENCE, writing).await;
}

/// The body of a request of somebody who may ask. No reason at all is one who went away.
async fn read(stream: &mut UnixStream) -> Result<Vec<u8>, Option<Answer>> {
    let ours = nix::unistd::geteuid().as_raw();
    let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
    if user.is_none_or(|user| user != 0 && user != ours) {
        let message = "this socket is for the container runtime of the host, which runs as root";
        let user = user.map_or_else(|| "nobody".to_owned(), |user| user.to_string());
        let failure =
            Failure::new(Code::InvalidEnvironment, message).with_details(format!("the client is of user {user}"));
        return Err(Some(refused("403 Forbidden", &failure)));
    }
    let mut bytes = Vec::with_capacity(2048);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > LONGEST_HEAD {
            let failure = Failure::new(Code::NotDecoded, "the head of the request does not end");
            return Err(Some(refused("431 Request Header Fields Too Large", &failure)));
        }
        if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            return Err(None);
        }
    };
    let head = Head::parse(&bytes[..end])?;
    if head.protocol.as_deref() != Some(PROTOCOL) {
        let spoken = head
            .protocol
            .map_or_else(|| "does not say what it speaks".to_owned(), |spoken| format!("speaks {spoken:?}"));
        let failure = Failure::new(Code::IncompatibleVersion, "the plugin is none of this agent's version")
            .with_details(format!("it {spoken}, the agent {PROTOCOL:?}; the agent installs its own when it is ready"));
        return Err(Some(refused("400 Bad Request", &failure)));
    }
    if head.length > LONGEST {
        let failure = Failure::new(Code::NotDecoded, format!("the request is longer than {LONGEST} bytes"));
        return Err(Some(refused("413 Content Too Large", &failure)));
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

/// What matters of a request's head.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    length: usize,
    protocol: Option<String>,
}

impl Head {
    fn parse(head: &[u8]) -> Result<Self, Option<Answer>> {
        let wrong = |what: &str| {
            Some(refused(
                "400 Bad Request",
                &Failure::new(Code::NotDecoded, format!("this is no request of CNI: {what}")),
            ))
        };
        let head = std::str::from_utf8(head).map_err(|_| wrong("it is no UTF-8"))?;
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        if !first.starts_with("POST / HTTP/1.") {
            return Err(wrong("it does not begin with POST / HTTP/1.1"));
        }
        let (mut length, mut protocol) = (None, None);
        for (key, value) in lines.filter_map(|line| line.split_once(':')) {
            let (key, value) = (key.trim(), value.trim());
            if key.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse().map_err(|_| wrong("its content-length is no number"))?);
            } else if key.eq_ignore_ascii_case(PROTOCOL_HEADER) {
                protocol = Some(value.chars().take(32).collect());
            }
        }
        Ok(Self { length: length.ok_or_else(|| wrong("it has no content-length"))?, protocol })
    }
}

/// The answer to a request; none if nobody waits for it any more. The work has a task of its own: what was begun is brought
/// to an end in any case.
async fn answer(inner: Arc<Inner>, body: Vec<u8>, stream: &mut UnixStream) -> Option<Answer> {
    let (here, gone) = oneshot::channel();
    let mut working = tokio::spawn(inner.answer(body, gone));
    let mut more = [0; 64];
    loop {
        tokio::select! {
            answer = &mut working => {
                drop::<oneshot::Sender<()>>(here);
                return Some(match answer {
                    Ok(Ok(text)) => ("200 OK", text),
                    Ok(Err(text)) => ("400 Bad Request", text),
                    Err(error) => {
                        let failure = Failure::new(Code::Internal, "the request was not finished");
                        refused("500 Internal Server Error", &failure.with_details(error.to_string()))
                    }
                });
            }
            // What comes behind a request is of no interest; its end is.
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
    fn heads_are_read_or_refused() {
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
            assert!(status.starts_with("400") && text.contains("no request of CNI"), "{text}");
        }
    }
}
