//! HTTP client of the node agent: one POST over its socket for each run of the plugin.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::{MAX_MESSAGE, PROTOCOL, PROTOCOL_HEADER};

/// Room for the status line and the header fields of a response.
const MAX_HEAD: usize = 8 << 10;

/// Sends the request and returns the result that the agent prints. `timeout` covers the whole exchange.
pub(crate) fn post(socket: &Path, body: &str, timeout: Duration, command: &str) -> Result<String, Failure> {
    let unreachable = |error: &std::io::Error| Failure::Unreachable {
        command: command.to_owned(),
        details: format!("{}: {error}", socket.display()),
    };
    let start = Instant::now();
    let mut stream = UnixStream::connect(socket).map_err(|error| unreachable(&error))?;
    let io_failure = |error: &std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Timeout { seconds: timeout.as_secs() },
        _ => unreachable(error),
    };
    stream.set_write_timeout(Some(timeout)).map_err(|error| unreachable(&error))?;
    let head = format!(
        "POST / HTTP/1.1\r\nhost: ovnkube\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    // An agent that rejects the request may respond before it has read all of it.
    if let Err(error) = sent
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(io_failure(&error));
    }
    let response = read(&mut stream, start, timeout).map_err(|error| io_failure(&error))?;
    parse(&response)
}

/// Reads until the agent closes the connection or `timeout` has passed since `start`.
fn read(stream: &mut UnixStream, start: Instant, timeout: Duration) -> std::io::Result<Vec<u8>> {
    let (mut response, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(response),
            Ok(count) => response.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if response.len() > MAX_HEAD + MAX_MESSAGE {
            return Err(std::io::Error::other(format!("the response is larger than {MAX_MESSAGE} bytes")));
        }
    }
}

fn parse(response: &[u8]) -> Result<String, Failure> {
    let unexpected = |what: &str| Failure::UnexpectedResponse(what.to_owned());
    let end =
        response.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(|| unexpected("it is not HTTP"))?;
    let head = std::str::from_utf8(&response[..end]).map_err(|_| unexpected("it is not HTTP"))?;
    let body = std::str::from_utf8(&response[end + 4..]).map_err(|_| unexpected("its body is not UTF-8"))?;
    let (status, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = status.strip_prefix("HTTP/1.1 ").ok_or_else(|| unexpected("it is not HTTP/1.1"))?;
    let header = |name: &str| {
        let mut fields = fields.split("\r\n").filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    match header(PROTOCOL_HEADER) {
        Some(PROTOCOL) => {}
        Some(other) => {
            return Err(Failure::UnexpectedResponse(format!(
                "the agent uses protocol version {other}, this plugin version {PROTOCOL}; the agent installs its own plugin when it \
                 is ready"
            )));
        }
        None => {
            return Err(unexpected(&format!(
                "the header {PROTOCOL_HEADER} is missing: the server is not the node agent"
            )));
        }
    }
    if header("content-length").and_then(|length| length.parse().ok()) != Some(body.len()) {
        return Err(unexpected("it is cut off: the agent may have stopped; see its log"));
    }
    if status.starts_with("200") { Ok(body.to_owned()) } else { Err(Failure::Agent(body.to_owned())) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_a_result_an_error_of_the_agent_or_unexpected() {
        let good = b"HTTP/1.1 200 OK\r\nOvnkube-CNI: 1\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(good), Ok("{}".to_owned()));
        let error = b"HTTP/1.1 400 Bad Request\r\novnkube-cni: 1\r\ncontent-length: 10\r\n\r\n{\"code\":7}";
        assert_eq!(parse(error), Err(Failure::Agent("{\"code\":7}".to_owned())));
        for unexpected in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"[..],
            b"HTTP/1.1 200 OK\r\novnkube-cni: 2\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\novnkube-cni: 1\r\ncontent-length: 9\r\n\r\n{}",
            b"HTTP/1.0 200 OK\r\n\r\n",
            b"220 mail.example.com\r\n\r\n",
            b"",
        ] {
            assert!(matches!(parse(unexpected), Err(Failure::UnexpectedResponse(_))), "{unexpected:?}");
        }
    }
}
