//! HTTP/1.1 requests to a role: one request, one response, one deadline for everything.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Longest accepted response body, in bytes.
const LONGEST_BODY: usize = 1024 * 1024;

/// A request to a role.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) accept: &'a str,
    pub(crate) body: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("bad address {0:?}; hint: give a host and a port, such as 127.0.0.1:9102")]
    Address(String),
    #[error("cannot resolve {address}: {cause}; hint: check the name, or give an IP address with a port")]
    Resolve { address: String, cause: io::Error },
    #[error(
        "cannot connect to {address}: {cause}; hint: check that the role runs and listens there, or give --address"
    )]
    Connect { address: String, cause: io::Error },
    #[error("no response from {address} within {seconds} s; hint: the role may be stuck, see its logs")]
    Deadline { address: String, seconds: f64 },
    #[error("unexpected response from {address}: {what}; hint: check --address, and see the role's logs")]
    Unexpected { address: String, what: String },
}

/// Sends a request and waits for the whole response, at most `limit`. Blocks, on a runtime of its own.
pub(crate) fn send(address: &str, request: Request<'_>, limit: Duration) -> Result<Response, Error> {
    tracing::debug!(address, method = request.method, path = request.path, "sending a request");
    let failed = |cause| Error::Connect { address: address.to_owned(), cause };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let response = runtime.block_on(async {
        let seconds = limit.as_secs_f64();
        let late = |_| Error::Deadline { address: address.to_owned(), seconds };
        timeout(limit, exchange(address, request)).await.map_err(late)?
    });
    // A lookup that a silent name server delays blocks a thread, which must not be waited for.
    runtime.shutdown_background();
    response
}

async fn exchange(address: &str, request: Request<'_>) -> Result<Response, Error> {
    let unexpected = |what: String| Error::Unexpected { address: address.to_owned(), what };
    let stream = connect(address).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| unexpected(causes(&error)))?;
    let Request { method, path, accept, body } = request;
    let message = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address)
        .header(ACCEPT, accept)
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .map_err(|_| Error::Address(address.to_owned()))?;
    let exchange = async {
        let response = sender.send_request(message).await.map_err(|error| unexpected(causes(&error)))?;
        let status = response.status().as_u16();
        // Without a length the end of a response cannot be told from a cut connection.
        if !response.headers().contains_key(CONTENT_LENGTH) {
            return Err(unexpected("it has no Content-Length".to_owned()));
        }
        let body = Limited::new(response.into_body(), LONGEST_BODY).collect().await;
        let body = body.map_err(|error| unexpected(causes(error.as_ref())))?.to_bytes();
        let body = String::from_utf8(body.into()).map_err(|_| unexpected("it is not text".to_owned()))?;
        Ok(Response { status, body })
    };
    // The connection makes progress only while it is polled. Its own error says what the peer sent.
    let (mut exchange, mut connection) = (pin!(exchange), pin!(connection));
    let mut ended = None;
    poll_fn(|context| {
        if ended.is_none()
            && let Poll::Ready(end) = connection.as_mut().poll(context)
        {
            ended = Some(end);
        }
        let result = ready!(exchange.as_mut().poll(context));
        Poll::Ready(match (result, ended.take()) {
            (Err(_), Some(Err(error))) => Err(unexpected(causes(&error))),
            (result, _) => result,
        })
    })
    .await
}

async fn connect(address: &str) -> Result<TcpStream, Error> {
    // The address becomes a header value, so control characters must not get into it.
    if address.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Error::Address(address.to_owned()));
    }
    let candidates: Vec<SocketAddr> = match lookup_host(address).await {
        Ok(candidates) => candidates.collect(),
        // Without a port, or with an invalid one, nothing is looked up.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(Error::Address(address.to_owned())),
        Err(cause) => return Err(Error::Resolve { address: address.to_owned(), cause }),
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for candidate in candidates {
        match TcpStream::connect(candidate).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Error::Connect { address: address.to_owned(), cause: last })
}

/// An error with its causes in one line: hyper's own text names only the kind.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PROBE: Request<'_> = Request { method: "GET", path: "/readyz", accept: "application/json", body: "" };
    const LONG: Duration = Duration::from_secs(60);

    /// Sends a request to a peer that reads it and answers with these bytes; also returns the request.
    fn exchange_with(response: &'static [u8], request: Request<'_>) -> (Result<Response, Error>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let length = request.body.len();
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                received.extend(byte);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(response).unwrap();
            received.extend(body);
            String::from_utf8(received).unwrap()
        });
        let result = send(&address, request, LONG);
        // The peer would wait for ever without a connection.
        assert!(!matches!(result, Err(Error::Address(_) | Error::Connect { .. })), "{result:?}");
        (result, peer.join().unwrap())
    }

    #[test]
    fn a_response_is_returned_with_its_status() {
        let (response, request) =
            exchange_with(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nno\n", PROBE);
        assert_eq!(response.unwrap(), Response { status: 503, body: "no\n".to_owned() });
        let request = request.to_lowercase();
        for line in ["get /readyz http/1.1\r\n", "host: 127.0.0.1:", "accept: application/json\r\n"] {
            assert!(request.contains(line), "{request}");
        }
    }

    #[test]
    fn the_body_of_a_request_is_sent_with_its_length() {
        let put = Request { method: "PUT", path: "/log-level", accept: "text/plain", body: "debug" };
        let (response, request) = exchange_with(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", put);
        assert_eq!(response.unwrap(), Response { status: 200, body: String::new() });
        assert!(request.to_lowercase().contains("content-length: 5\r\n") && request.ends_with("debug"), "{request}");
    }

    #[test]
    fn responses_that_a_role_does_not_send_are_rejected() {
        for (response, what) in [
            (b"SSH-2.0-OpenSSH\r\n".as_slice(), "HTTP"),
            (b"", "connection closed"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe", "not text"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "end of file"),
            (b"HTTP/1.1 200 OK\r\n\r\nno length", "Content-Length"),
        ] {
            let error = exchange_with(response, PROBE).0.unwrap_err().to_string();
            assert!(error.starts_with("unexpected response from 127.0.0.1:"), "{error}");
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_peer_that_never_responds_meets_the_deadline() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let error = send(&address, PROBE, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
    }

    #[test]
    fn closed_ports_and_bad_addresses_are_distinguished() {
        assert!(matches!(send("127.0.0.1:1", PROBE, LONG), Err(Error::Connect { .. })));
        for bad in ["", "9102", "127.0.0.1", "127.0.0.1:x", "a b:1", "127.0.0.1:1\r\nX: y"] {
            assert!(matches!(send(bad, PROBE, LONG), Err(Error::Address(_))), "{bad:?}");
        }
    }
}
