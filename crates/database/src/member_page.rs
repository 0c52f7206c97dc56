//! Reads what the manager of another member reports about it: `/status` of its telemetry.

use std::time::Duration;

use ovsdb::client::{Remote, TlsFiles};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::manager_status::{ManagerStatus, STALE_AFTER};

/// Limit of a request.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest response, in bytes: findings are few.
const LONGEST: u64 = 1 << 20;
/// The name in the request is not that of the certificate, which is not checked either.
const REQUEST: &[u8] =
    b"GET /status HTTP/1.1\r\nHost: ovnkube\r\nAccept: application/json\r\nConnection: close\r\n\r\n";

/// Why a manager's report cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("its manager cannot be reached at {address}: {problem}")]
    Connect { address: String, problem: String },
    #[error("its manager did not reply at {address} within {} s", LIMIT.as_secs())]
    Late { address: String },
    #[error("its manager does not answer at {address}: {problem}")]
    Response { address: String, problem: String },
    #[error("its manager has reported nothing for {seconds} s: it hangs; restart its pod")]
    Stale { seconds: u64 },
}

/// Asks the manager at the host of this remote. With TLS if the database has it: the listener on loopback is not for others.
pub(crate) async fn read(remote: &Remote, port: u16, tls: Option<&TlsFiles>) -> Result<ManagerStatus, PageError> {
    let Some(endpoint) = remote.endpoint() else {
        let problem = "it is a local socket".to_owned();
        return Err(PageError::Connect { address: remote.to_string(), problem });
    };
    let tls = tls.filter(|_| matches!(remote, Remote::Ssl(_)));
    let host = endpoint.host.as_str();
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let response = timeout(LIMIT, async {
        let connect = |problem: String| PageError::Connect { address: address.clone(), problem };
        let stream = TcpStream::connect((host, port)).await.map_err(|error| connect(error.to_string()))?;
        let Some(tls) = tls else { return exchange(stream).await.map_err(|error| connect(error.to_string())) };
        let config = tls.client_config().map_err(|error| connect(error.to_string()))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| connect(error.to_string()))?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        exchange(stream.map_err(|error| connect(error.to_string()))?).await.map_err(|error| connect(error.to_string()))
    });
    let response = response.await.map_err(|_| PageError::Late { address: address.clone() })??;
    let (age, status) = parse(&response).map_err(|problem| PageError::Response { address, problem })?;
    if age > STALE_AFTER.as_secs() { Err(PageError::Stale { seconds: age }) } else { Ok(status) }
}

/// Everything that the peer sends until it closes the connection.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<Vec<u8>> {
    stream.write_all(REQUEST).await?;
    stream.flush().await?;
    let mut response = Vec::new();
    stream.take(LONGEST).read_to_end(&mut response).await?;
    Ok(response)
}

/// The age of the report in seconds, and the report. Pure.
fn parse(response: &[u8]) -> Result<(u64, ManagerStatus), String> {
    let text = std::str::from_utf8(response).map_err(|_| "the response is not text")?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the response is not HTTP")?;
    let mut lines = head.lines();
    let code = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).ok_or("the response is not HTTP")?;
    if !code.starts_with("200") {
        let hint = if code.starts_with("404") { "; it may be of an older version" } else { "" };
        return Err(format!("{}{hint}", code.trim_end()));
    }
    let header = |name: &str| {
        let mut headers = head.lines().filter_map(|line| line.split_once(':'));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    if header("content-length").is_none_or(|length| length.parse() != Ok(body.len())) {
        return Err("the response is incomplete".into());
    }
    let age = header("age").and_then(|age| age.parse().ok()).unwrap_or(0);
    let status = serde_json::from_str(body).map_err(|error| format!("malformed status: {error}"))?;
    Ok((age, status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_with_its_age() {
        let body = r#"{"member":"n2","fileBytes":7,"findings":[],"ofALaterVersion":1}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nAge: 61\r\n\r\n", body.len());
        let (age, status) = parse(format!("{head}{body}").as_bytes()).unwrap();
        assert_eq!((age, status.member.as_str(), status.file_bytes), (61, "n2", Some(7)));
    }

    #[test]
    fn other_responses_are_refused_with_the_reason() {
        for (response, part) in [
            (b"".as_slice(), "is not HTTP"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "is not HTTP"),
            (b"\xff\xfe", "is not text"),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", "404 Not Found; it may be of an older version"),
            (b"HTTP/1.1 403 Forbidden\r\n\r\nno", "403 Forbidden"),
            (b"HTTP/1.1 200 OK\r\n\r\n{}", "incomplete"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "incomplete"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]x", "incomplete"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7", "malformed status"),
        ] {
            let error = parse(response).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn a_manager_that_is_not_there_is_named() {
        let remote: Remote = "tcp:[::1]:6641".parse().unwrap();
        let error = read(&remote, 1, None).await.unwrap_err().to_string();
        assert!(error.starts_with("its manager cannot be reached at [::1]:1: "), "{error}");
    }
}
