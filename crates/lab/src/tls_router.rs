//! A TLS router: it passes connections through to servers by the name that clients send (SNI), as a Route with passthrough or a
//! `TLSRoute` does. It has no certificate and reads nothing else, so any server that it is told can be behind any name.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::error::{Error, Result, write_file};
use crate::inspect::machine_dir;
use crate::lab::Lab;
use crate::ready::Ready;
use crate::supervisor::Component;

/// Name of the component.
const COMPONENT: &str = "tls-router";

/// Where connections with a name go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsRoute {
    /// The name that clients send.
    pub name: String,
    /// Where its connections are forwarded, still encrypted.
    pub server: SocketAddr,
}

impl TlsRoute {
    /// Connections with this name go to this server.
    pub fn new(name: impl Into<String>, server: SocketAddr) -> Self {
        Self { name: name.into(), server }
    }
}

impl Lab {
    /// Starts a TLS router (HAProxy) at a port of a machine. If it runs, it gets these routes instead, and all of its connections
    /// are closed. Connections with another name, or without one, are refused.
    pub fn route_tls(&self, machine: &str, port: u16, routes: &[TlsRoute]) -> Result<()> {
        let run = machine_dir(self.dir(), machine).join("run");
        write_file(&run.join("tls-router.cfg"), configuration(port, routes)?)?;
        if self.record().component(COMPONENT).is_ok() {
            self.kill(COMPONENT)?;
            return self.restart(COMPONENT);
        }
        let args = ["haproxy", "-db", "-f", "/run/tls-router.cfg"];
        let ready = Ready::Path(run.join("tls-router.sock"));
        self.start_component(Component::new(COMPONENT, machine, ready, &args))
    }
}

fn configuration(port: u16, routes: &[TlsRoute]) -> Result<String> {
    // The socket shows that the router listens. Sessions with databases last long.
    let mut text = format!(
        "global\n  stats socket /run/tls-router.sock\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         frontend tls\n  bind 0.0.0.0:{port}\n  bind [::]:{port} v6only\n  tcp-request inspect-delay 5s\n  \
         tcp-request content accept if {{ req.ssl_hello_type 1 }}\n"
    );
    for (number, TlsRoute { name, .. }) in routes.iter().enumerate() {
        if !name.chars().all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-')) || name.is_empty() {
            return Err(Error::Invalid(format!("{name:?} is not a DNS name; the TLS router selects servers by it")));
        }
        // Strings cannot fail to be written to.
        let _ = writeln!(text, "  use_backend server-{number} if {{ req.ssl_sni -i -m str {name} }}");
    }
    for (number, TlsRoute { server, .. }) in routes.iter().enumerate() {
        let _ = writeln!(text, "backend server-{number}\n  server one {server}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_server() {
        let routes = [
            TlsRoute::new("a.names.lab", "10.99.0.1:6642".parse().unwrap()),
            TlsRoute::new("b.names.lab", "[fd99::1]:7642".parse().unwrap()),
        ];
        let text = configuration(443, &routes).unwrap();
        assert!(text.contains("use_backend server-1 if { req.ssl_sni -i -m str b.names.lab }"), "{text}");
        assert!(text.contains("backend server-1\n  server one [fd99::1]:7642"), "{text}");
        for bad in ["", "a b", "a}\nbackend x"] {
            let route = TlsRoute::new(bad, "10.99.0.1:6642".parse().unwrap());
            assert!(configuration(443, &[route]).is_err(), "{bad:?}");
        }
    }
}
