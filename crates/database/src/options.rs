//! Options of one raft member.

use std::path::PathBuf;

use ovsdb::client::TlsFiles;

use crate::kind::Kind;

/// Options of the process that manages one member of one database.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database.
    pub kind: Kind,
    /// Name of this member: its node or its pod.
    pub member: String,
    /// Where the database file is; survives restarts.
    pub data_directory: PathBuf,
    /// Where the sockets are.
    pub run_directory: PathBuf,
    /// Where OVN's schema files are.
    pub schema_directory: PathBuf,
    /// Host name or address of this member, without brackets.
    pub host: String,
    /// The address to listen on for clients, e.g. `0.0.0.0` or `::`.
    pub listen: String,
    /// Port for clients.
    pub port: u16,
    /// Port between members.
    pub raft_port: u16,
    /// The files of mutual TLS; none for plain TCP.
    pub tls: Option<TlsFiles>,
    /// Where the other members are.
    pub peers: Peers,
    /// Election timer in milliseconds; none to choose it by the number of nodes.
    pub election_timer: Option<u64>,
    /// The namespace of the record.
    pub namespace: String,
    /// The kubeconfig; none for that of the environment, or for the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
}

/// Where the other members are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// The endpoints of a Service, whose pods are the members.
    Service(String),
    /// These host names or addresses.
    Hosts(Vec<String>),
}

impl Options {
    /// The raft address of a host: `ssl:192.0.2.1:6643`, `tcp:[2001:db8::1]:6643`.
    pub fn raft_address(&self, host: &str) -> String {
        self.remote(host, self.raft_port)
    }

    /// Where clients reach a host.
    pub fn client_address(&self, host: &str) -> String {
        self.remote(host, self.port)
    }

    fn remote(&self, host: &str, port: u16) -> String {
        let scheme = if self.tls.is_some() { "ssl" } else { "tcp" };
        format!("{scheme}:{}:{port}", bracketed(host))
    }

    /// The raft address of this member.
    pub fn address(&self) -> String {
        self.raft_address(&self.host)
    }

    /// Command-line options of OVS's programs for TLS.
    pub fn tls_arguments(&self) -> Vec<String> {
        let Some(tls) = &self.tls else { return Vec::new() };
        vec![
            format!("--private-key={}", tls.private_key.display()),
            format!("--certificate={}", tls.certificate.display()),
            format!("--ca-cert={}", tls.authorities.display()),
        ]
    }

    /// The arguments of ovsdb-server.
    pub fn server_arguments(&self) -> Vec<String> {
        let (kind, run) = (self.kind, &self.run_directory);
        let passive = if self.tls.is_some() { "pssl" } else { "ptcp" };
        let listen = bracketed(&self.listen);
        let mut arguments = vec![
            "-vconsole:info".to_owned(),
            "-vsyslog:off".into(),
            "-vfile:off".into(),
            format!("--pidfile={}", run.join(format!("ovn{}_db.pid", kind.short())).display()),
            format!("--unixctl={}", kind.control_socket(run).display()),
            format!("--remote=punix:{}", kind.socket(run).display()),
            format!("--remote={passive}:{}:{listen}", self.port),
        ];
        arguments.extend(self.tls_arguments());
        arguments.push(kind.file(&self.data_directory).display().to_string());
        arguments
    }
}

/// An IPv6 address in brackets, as in remotes; any other host as it is.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn options() -> Options {
        Options {
            kind: Kind::Southbound,
            member: "n1".into(),
            data_directory: "/data".into(),
            run_directory: "/run/ovn".into(),
            schema_directory: "/usr/share/ovn".into(),
            host: "2001:db8::1".into(),
            listen: "::".into(),
            port: 6642,
            raft_port: 6644,
            tls: None,
            peers: Peers::Hosts(Vec::new()),
            election_timer: None,
            namespace: "ovn-kubernetes".into(),
            kubeconfig: None,
        }
    }

    #[test]
    fn ipv6_addresses_have_brackets() {
        let options = options();
        assert_eq!(options.address(), "tcp:[2001:db8::1]:6644");
        assert_eq!(options.raft_address("db-1.db.ns.svc"), "tcp:db-1.db.ns.svc:6644");
        let arguments = options.server_arguments();
        assert!(arguments.contains(&"--remote=ptcp:6642:[::]".to_owned()), "{arguments:?}");
        assert_eq!(arguments.last().map(String::as_str), Some("/data/ovnsb_db.db"));
    }
}
