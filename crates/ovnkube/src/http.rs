//! Just enough of an HTTP/1.1 client to ask a role on the same host: one request, one answer, one deadline.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// A role's answers are a page of text.
const LARGEST_ANSWER: usize = 1024 * 1024;

/// What to ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) accept: &'a str,
    pub(crate) body: &'a str,
}

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("bad address {0:?}; hint: give a host and a port, such as 127.0.0.1:9102")]
    Address(String),
    #[error(
        "cannot connect to {address}: {cause}; hint: check that the role runs and listens there, or give --address"
    )]
    Connect { address: String, cause: io::Error },
    #[error("no answer from {address} within {seconds} s; hint: the role may be stuck, see its logs")]
    Deadline { address: String, seconds: f64 },
    #[error("{address} closed the connection: {cause}; hint: see the role's logs")]
    Broken { address: String, cause: io::Error },
    #[error("{address} does not speak as a role does ({what}); hint: check --address")]
    Stranger { address: String, what: &'static str },
}

/// Asks, and waits for the whole answer no longer than `limit`.
pub(crate) fn ask(address: &str, request: Request<'_>, limit: Duration) -> Result<Answer, Error> {
    tracing::debug!(address, method = request.method, path = request.path, "asking");
    let deadline = Instant::now() + limit;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            Error::Deadline { address: address.to_owned(), seconds: limit.as_secs_f64() }
        }
        _ => Error::Broken { address: address.to_owned(), cause: source },
    };
    let mut stream = connect(address, deadline)?;
    let Request { method, path, accept, body } = request;
    let message = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let sent = remaining(deadline)
        .and_then(|left| stream.set_write_timeout(Some(left)))
        .and_then(|()| stream.write_all(message.as_bytes()));
    let bytes = sent.and_then(|()| read_all(&mut stream, deadline)).map_err(failed)?;
    understand(&bytes).map_err(|what| Error::Stranger { address: address.to_owned(), what })
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or_else(|| io::ErrorKind::TimedOut.into())
}

fn connect(address: &str, deadline: Instant) -> Result<TcpStream, Error> {
    // The address goes into a header; and what is neither host nor port need not be looked up.
    if address.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Error::Address(address.to_owned()));
    }
    let candidates: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(candidates) => candidates.collect(),
        Err(_) => return Err(Error::Address(address.to_owned())),
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in candidates {
        match remaining(deadline).and_then(|left| TcpStream::connect_timeout(&candidate, left)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Error::Connect { address: address.to_owned(), cause: last })
}

/// Everything until the peer closes, as `Connection: close` asked it to.
fn read_all(stream: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > LARGEST_ANSWER {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

fn understand(bytes: &[u8]) -> Result<Answer, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the answer is not text")?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the answer is not HTTP")?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .ok_or("the answer is not HTTP")?;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("the answer is chunked");
        }
        let length = value.trim().parse();
        if name.eq_ignore_ascii_case("content-length") && length != Ok(body.len()) {
            return Err("the answer is incomplete");
        }
    }
    Ok(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PROBE: Request<'_> = Request { method: "GET", path: "/readyz", accept: "application/json", body: "" };
    const PATIENT: Duration = Duration::from_secs(60);

    /// What `ask` makes of a peer that reads the request and answers these bytes.
    fn ask_peer_that_says(answer: &'static [u8]) -> Result<Answer, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            stream.write_all(answer).unwrap();
        });
        let result = ask(&address, PROBE, PATIENT);
        // The peer waits for ever if nobody came.
        assert!(!matches!(result, Err(Error::Address(_) | Error::Connect { .. })), "{result:?}");
        peer.join().unwrap();
        result
    }

    #[test]
    fn an_answer_is_read() {
        let answer = ask_peer_that_says(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nno\n");
        assert_eq!(answer.unwrap(), Answer { status: 503, body: "no\n".to_owned() });
    }

    #[test]
    fn strangers_are_told_from_roles() {
        for (answer, what) in [
            (b"SSH-2.0-OpenSSH\r\n".as_slice(), "not HTTP"),
            (b"", "not HTTP"),
            (b"\xff\xfe", "not text"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "incomplete"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "chunked"),
        ] {
            let error = ask_peer_that_says(answer).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_peer_that_never_answers_meets_the_deadline() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let error = ask(&address, PROBE, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
    }

    #[test]
    fn nobody_there_and_bad_addresses() {
        assert!(matches!(ask("127.0.0.1:1", PROBE, PATIENT), Err(Error::Connect { .. })));
        for bad in ["", "9102", "127.0.0.1", "127.0.0.1:x", "a b:1", "127.0.0.1:1\r\nX: y"] {
            assert!(matches!(ask(bad, PROBE, PATIENT), Err(Error::Address(_))), "{bad:?}");
        }
    }
}
