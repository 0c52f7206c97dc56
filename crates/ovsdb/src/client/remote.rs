//! Server addresses in Open vSwitch's notation: `tcp:HOST:PORT`, `ssl:HOST:PORT` or `unix:PATH`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Remote {
    /// Path of a unix socket.
    Unix(PathBuf),
    /// Neither encrypted nor authenticated.
    Tcp(Endpoint),
    /// TLS; needs [`TlsFiles`](crate::client::TlsFiles).
    Ssl(Endpoint),
}

/// A host, by name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// TCP port, never 0.
    pub port: u16,
}

/// The string has another form than `tcp:HOST:PORT`, `ssl:HOST:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid OVSDB remote {text:?}: {problem}; expected unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")]
pub struct RemoteError {
    text: String,
    problem: &'static str,
}

impl Remote {
    /// None for a unix socket.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(endpoint) | Self::Ssl(endpoint) => Some(endpoint),
        }
    }

    /// Parses a comma-separated list.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, RemoteError> {
        let remotes: Vec<Self> = text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        Ok(remotes)
    }

    /// Whether it is plain TCP to another host: traffic can be read and changed on the path.
    pub fn is_exposed(&self) -> bool {
        let Self::Tcp(Endpoint { host, .. }) = self else { return false };
        let loopback = host
            .parse::<IpAddr>()
            .map_or(host.eq_ignore_ascii_case("localhost"), |address| address.to_canonical().is_loopback());
        !loopback
    }
}

impl FromStr for Remote {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let wrong = |problem| RemoteError { text: text.to_owned(), problem };
        let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong("no connection method"))?;
        let endpoint = || -> Result<Endpoint, RemoteError> {
            let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("no port"))?;
            let port = port.parse().map_err(|_| wrong("the port is not a number from 1 to 65535"))?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            if host.is_empty() || port == 0 {
                return Err(wrong("host or port is empty"));
            }
            Ok(Endpoint { host: host.to_owned(), port })
        };
        match scheme {
            "unix" if rest.is_empty() => Err(wrong("no path")),
            "unix" => Ok(Self::Unix(rest.into())),
            "tcp" => endpoint().map(Self::Tcp),
            "ssl" => endpoint().map(Self::Ssl),
            _ => Err(wrong("unknown connection method")),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(endpoint) => write!(f, "tcp:{endpoint}"),
            Self::Ssl(endpoint) => write!(f, "ssl:{endpoint}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tcp_to_another_host_is_exposed() {
        for (text, exposed) in [
            ("unix:/run/db.sock", false),
            ("ssl:10.0.0.1:6641", false),
            ("tcp:127.0.0.1:6641", false),
            ("tcp:[::1]:6641", false),
            ("tcp:[::ffff:127.0.0.1]:6641", false),
            ("tcp:localhost:6641", false),
            ("tcp:10.0.0.1:6641", true),
            ("tcp:[fd00::1]:6641", true),
            ("tcp:db-1.example:6641", true),
        ] {
            assert_eq!(text.parse::<Remote>().unwrap().is_exposed(), exposed, "{text}");
        }
    }

    #[test]
    fn valid_remotes_round_trip_and_invalid_ones_are_rejected() {
        for text in ["unix:/run/db.sock", "tcp:10.0.0.1:6641", "ssl:[fd00::1]:6642", "ssl:db-1.example:6642"] {
            assert_eq!(text.parse::<Remote>().unwrap().to_string(), text);
        }
        assert_eq!(Remote::parse_list("tcp:a:1, tcp:b:2").unwrap().len(), 2);
        for text in [
            "",
            "tcp",
            "tcp:",
            "tcp:host",
            "tcp:host:0",
            "tcp::1",
            "tcp:host:99999",
            "unix:",
            "http:host:80",
            "tcp:a:1,",
        ] {
            let message = Remote::parse_list(text).unwrap_err().to_string();
            assert!(message.contains("tcp:HOST:PORT"), "{message}");
        }
    }
}
