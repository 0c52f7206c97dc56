//! Asks the agent: one request of HTTP, one answer.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// What both ends of the socket agree on. An agent of another protocol refuses the request by this.
pub const PROTOCOL: &str = "1";
/// By this header each tells the other.
pub const PROTOCOL_HEADER: &str = "ovnkube-cni";
/// The longest answer that is read.
const LONGEST: u64 = 4 << 20;

/// The agent's result.
pub(crate) fn ask(socket: &Path, body: &str, patience: Duration, command: &str) -> Result<String, Failure> {
    let absent = |error: &std::io::Error| Failure::Absent {
        command: command.to_owned(),
        details: format!("{}: {error}", socket.display()),
    };
    let start = Instant::now();
    let mut stream = UnixStream::connect(socket).map_err(|error| absent(&error))?;
    let trouble = |error: &std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Slow { seconds: patience.as_secs() },
        _ => absent(error),
    };
    stream.set_write_timeout(Some(patience)).map_err(|error| absent(&error))?;
    let head = format!(
        "POST / HTTP/1.1\r\nhost: ovnkube\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    // An agent that refuses may answer before it has read everything.
    if let Err(error) = sent
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(trouble(&error));
    }
    let answer = read(&mut stream, start, patience).map_err(|error| trouble(&error))?;
    understand(&answer)
}

/// Everything up to the end of the connection, before its time is over.
fn read(stream: &mut UnixStream, start: Instant, patience: Duration) -> std::io::Result<Vec<u8>> {
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let left = patience.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(ErrorKind::TimedOut)?))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if answer.len() as u64 > LONGEST {
            return Err(std::io::Error::other("the answer does not end"));
        }
    }
}

fn understand(answer: &[u8]) -> Result<String, Failure> {
    let foreign = |what: &str| Failure::Foreign(what.to_owned());
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(|| foreign("it speaks no HTTP"))?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| foreign("it speaks no HTTP"))?;
    let body = std::str::from_utf8(&answer[end + 4..]).map_err(|_| foreign("its answer is no UTF-8"))?;
    let (status, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = status.strip_prefix("HTTP/1.1 ").ok_or_else(|| foreign("it speaks no HTTP/1.1"))?;
    let header = |name: &str| {
        let mut fields = fields.split("\r\n").filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    match header(PROTOCOL_HEADER) {
        Some(PROTOCOL) => {}
        Some(other) => {
            return Err(Failure::Foreign(format!("it speaks version {other} of our protocol, this plugin {PROTOCOL}")));
        }
        None => return Err(foreign("it does not say that it is an agent of ovnkube")),
    }
    if header("content-length").and_then(|length| length.parse().ok()) != Some(body.len()) {
        return Err(foreign("its answer is cut off: it may have ended meanwhile; look at its log"));
    }
    if status.starts_with("200") { Ok(body.to_owned()) } else { Err(Failure::Told(body.to_owned())) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_results_errors_or_foreign() {
        let good = b"HTTP/1.1 200 OK\r\nOvnkube-CNI: 1\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(understand(good), Ok("{}".to_owned()));
        let told = b"HTTP/1.1 400 Bad Request\r\novnkube-cni: 1\r\ncontent-length: 10\r\n\r\n{\"code\":7}";
        assert_eq!(understand(told), Err(Failure::Told("{\"code\":7}".to_owned())));
        for foreign in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"[..],
            b"HTTP/1.1 200 OK\r\novnkube-cni: 2\r\ncontent-length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\novnkube-cni: 1\r\ncontent-length: 9\r\n\r\n{}",
            b"HTTP/1.0 200 OK\r\n\r\n",
            b"220 mail.example.com\r\n\r\n",
            b"",
        ] {
            assert!(matches!(understand(foreign), Err(Failure::Foreign(_))), "{foreign:?}");
        }
    }
}
