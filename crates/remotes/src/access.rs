//! How a database is reached.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ovsdb::client::{Config, Endpoint, Remote, TlsFiles};
use tokio::sync::watch;

/// Servers and credentials of a database.
#[derive(Debug, Clone)]
pub struct DatabaseAccess {
    /// The configured servers. With a Service they count until the API has named its endpoints; any that works will do.
    pub remotes: Vec<Remote>,
    /// Private key, certificate and authorities for `ssl:` remotes; none for plain TCP.
    pub tls: Option<TlsFiles>,
    /// The Service whose endpoints are the servers; none if only the configured ones are.
    pub service: Option<Service>,
}

/// A Service whose endpoints are the servers of a database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// None for the namespace of the pod, or of the kubeconfig's context.
    pub namespace: Option<String>,
    /// Name of the Service, without its namespace.
    pub name: String,
    /// Name of the port of this database. The port of the configured servers counts if the endpoints have none of this name.
    pub port: &'static str,
    /// Name of the port for clients that are not nodes, which counts more than [`Service::port`] if the endpoints have it. None for
    /// nodes.
    pub control_port: Option<&'static str>,
}

impl Service {
    /// The database of port `north` or `south` as logs call it: `northbound`, `southbound`.
    pub(crate) fn database(&self) -> String {
        format!("{}bound", self.port)
    }
}

/// A string that names no Service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a Service; expected NAME or NAMESPACE/NAME")]
pub struct ServiceError(String);

impl Service {
    /// Parses `NAME` or `NAMESPACE/NAME`; none if empty.
    pub fn parse(text: &str, port: &'static str) -> Result<Option<Self>, ServiceError> {
        if text.is_empty() {
            return Ok(None);
        }
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        let valid = |name: &str| {
            let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=63).contains(&name.len()) && name.bytes().all(inside)
        };
        if !valid(name) || !namespace.is_none_or(valid) {
            return Err(ServiceError(text.to_owned()));
        }
        Ok(Some(Self { namespace: namespace.map(str::to_owned), name: name.to_owned(), port, control_port: None }))
    }

    /// The same Service for a client that is not a node.
    #[must_use]
    pub fn preferring(self, control_port: &'static str) -> Self {
        Self { control_port: Some(control_port), ..self }
    }

    /// The port of this database among the named ports of an endpoint.
    fn port_of(&self, ports: &BTreeMap<String, u16>) -> Option<u16> {
        let named = |name| ports.get(name).copied();
        self.control_port.and_then(named).or_else(|| named(self.port))
    }
}

impl DatabaseAccess {
    /// Whether any configured server uses TLS.
    pub fn uses_tls(&self) -> bool {
        self.remotes.iter().any(|remote| matches!(remote, Remote::Ssl(_)))
    }

    /// Configuration of a client that follows the members.
    pub fn client_config(&self, updates: &watch::Receiver<Option<Vec<Remote>>>, database: &str) -> Config {
        let mut config = Config::new(self.remotes.clone(), database);
        config.tls = self.tls.clone();
        config.remote_updates = Some(updates.clone());
        config
    }

    /// The server at a host: method and port as configured, unless the host has a port of the database's name.
    pub(crate) fn remote_at(&self, host: &str, ports: &BTreeMap<String, u16>) -> Option<Remote> {
        let named = self.service.as_ref().and_then(|service| service.port_of(ports));
        let first = self.remotes.iter().find(|remote| remote.endpoint().is_some())?;
        let port = named.or_else(|| first.endpoint().map(|endpoint| endpoint.port))?;
        let endpoint = Endpoint { host: host.to_owned(), port };
        Some(match first {
            Remote::Ssl(_) => Remote::Ssl(endpoint),
            _ => Remote::Tcp(endpoint),
        })
    }
}

/// The addresses among the hosts of servers.
pub fn hosts(remotes: &[Remote]) -> Vec<IpAddr> {
    remotes.iter().filter_map(|remote| remote.endpoint()?.host.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_parsed() {
        let parsed = |text| Service::parse(text, "north").map(|service| service.map(|it| (it.namespace, it.name)));
        assert_eq!(parsed(""), Ok(None));
        assert_eq!(parsed("ovnkube-db"), Ok(Some((None, "ovnkube-db".into()))));
        assert_eq!(parsed("ns/db"), Ok(Some((Some("ns".into()), "db".into()))));
        for bad in ["/", "ns/", "/db", "a/b/c", "Db", "a b", "a.b"] {
            let error = parsed(bad).unwrap_err().to_string();
            assert!(error.contains("NAMESPACE/NAME"), "{error}");
        }
    }

    #[test]
    fn only_clients_that_are_not_nodes_use_the_control_port() {
        let node = Service::parse("db", "south").unwrap().unwrap();
        let controller = node.clone().preferring("south-control");
        let ports = |ports: &[(&str, u16)]| ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        let both = ports(&[("south", 6642), ("south-control", 6646)]);
        assert_eq!((node.port_of(&both), controller.port_of(&both)), (Some(6642), Some(6646)));
        // Members that have no port of this kind.
        let one = ports(&[("south", 6642)]);
        assert_eq!((node.port_of(&one), controller.port_of(&one)), (Some(6642), Some(6642)));
        assert_eq!(controller.port_of(&ports(&[("north", 6641)])), None);
    }

    #[test]
    fn method_and_port_are_the_configured_ones_unless_the_port_is_named() {
        let access = |remotes: &str| DatabaseAccess {
            remotes: Remote::parse_list(remotes).unwrap(),
            tls: None,
            service: Service::parse("db", "south").unwrap(),
        };
        let at = |remotes: &str, host: &str, ports: &[(&str, u16)]| {
            let ports = ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
            access(remotes).remote_at(host, &ports).map(|remote| remote.to_string())
        };
        assert_eq!(at("ssl:n1:7", "192.0.2.1", &[("north", 1)]).as_deref(), Some("ssl:192.0.2.1:7"));
        assert_eq!(at("unix:/db,tcp:n1:7", "2001:db8::1", &[("south", 9)]).as_deref(), Some("tcp:[2001:db8::1]:9"));
        assert_eq!(at("unix:/db", "192.0.2.1", &[("south", 9)]), None);
    }
}
