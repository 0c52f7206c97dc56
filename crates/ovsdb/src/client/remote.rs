//! Where a server is: `tcp:HOST:PORT`, `ssl:HOST:PORT` or `unix:PATH`, as Open vSwitch writes it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// One place where a server may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Remote {
    /// A socket on this machine.
    Unix(PathBuf),
    /// Plain TCP.
    Tcp(Endpoint),
    /// TLS.
    Ssl(Endpoint),
}

/// A host, by name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The name or address; an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A text that is no remote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no OVSDB remote: {problem}; write unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")]
pub struct RemoteError {
    text: String,
    problem: &'static str,
}

impl Remote {
    /// The host and port; a socket of this machine has none.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(endpoint) | Self::Ssl(endpoint) => Some(endpoint),
        }
    }

    /// Reads several, separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, RemoteError> {
        let remotes: Vec<Self> = text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        Ok(remotes)
    }

    /// Whether it is plain TCP to another host: neither encrypted nor authenticated, for anyone on the way.
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
        let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong("it names no kind of connection"))?;
        let endpoint = || -> Result<Endpoint, RemoteError> {
            let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("it names no port"))?;
            let port = port.parse().map_err(|_| wrong("its port is no number from 1 to 65535"))?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            if host.is_empty() || port == 0 {
                return Err(wrong("its host or port is empty"));
            }
            Ok(Endpoint { host: host.to_owned(), port })
        };
        match scheme {
            "unix" if rest.is_empty() => Err(wrong("it names no path")),
            "unix" => Ok(Self::Unix(rest.into())),
            "tcp" => endpoint().map(Self::Tcp),
            "ssl" => endpoint().map(Self::Ssl),
            _ => Err(wrong("it is of a kind that is not known")),
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
    fn plain_tcp_beyond_this_host_is_exposed() {
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
    fn remotes_are_read_and_written() {
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
