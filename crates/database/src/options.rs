//! Options of one raft member.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::TlsFiles;

use crate::kind::Kind;

/// Options of the process that manages one member of one database.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which of the two databases; each has its own manager.
    pub kind: Kind,
    /// Name of this member: its node or its pod.
    pub member: String,
    /// Where the database file is; survives restarts.
    pub data_directory: PathBuf,
    /// Sockets, manager status and server configuration; may be lost at a restart of the host.
    pub run_directory: PathBuf,
    /// Directory of OVN's `*.ovsschema` files, in the image.
    pub schema_directory: PathBuf,
    /// Host name or address of this member, without brackets.
    pub host: String,
    /// The address to listen on for clients, e.g. `0.0.0.0` or `::`.
    pub listen: String,
    /// TCP port for clients, 6641 or 6642 by default.
    pub port: u16,
    /// TCP port between members, 6643 or 6644 by default.
    pub raft_port: u16,
    /// The files of mutual TLS; none for plain TCP.
    pub tls: Option<TlsFiles>,
    /// How the members are known; this one is among them.
    pub peers: Peers,
    /// Election timer in milliseconds; none to choose it by the number of nodes.
    pub election_timer: Option<u64>,
    /// How many nodes the databases serve, if they are in another cluster; none to count those of the API.
    pub nodes: Option<usize>,
    /// The leader removes a server that has been silent, and absent from the list of members, for this long.
    pub gone_after: Duration,
    /// Namespace of ConfigMap `ovnkube-db` and of the Service of [`Peers::Service`].
    pub namespace: String,
    /// The kubeconfig; none for that of the environment, or for the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
}

/// How the hosts of all members are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// The endpoints of a Service, whose pods are the members.
    Service(String),
    /// A fixed list of host names or addresses, this member included.
    Hosts(Vec<String>),
}

impl Options {
    /// The raft address of a host: `ssl:192.0.2.1:6643`, `tcp:[2001:db8::1]:6643`.
    pub fn raft_address(&self, host: &str) -> String {
        self.remote(host, self.raft_port)
    }

    /// The remote of a host for clients, e.g. `ssl:192.0.2.1:6641`.
    pub fn client_address(&self, host: &str) -> String {
        self.remote(host, self.port)
    }

    fn remote(&self, host: &str, port: u16) -> String {
        let scheme = if self.tls.is_some() { "ssl" } else { "tcp" };
        format!("{scheme}:{}:{port}", bracketed(host))
    }

    /// The raft address that this member has now; its file may have another one.
    pub fn address(&self) -> String {
        self.raft_address(&self.host)
    }

    /// `--private-key`, `--certificate` and `--ca-cert` for OVS's programs; empty for plain TCP.
    pub fn tls_arguments(&self) -> Vec<String> {
        tls_arguments(self.tls.as_ref())
    }

    /// What the server listens on: a socket for local clients, and the port for others.
    pub(crate) fn server_remotes(&self) -> [String; 2] {
        let passive = if self.tls.is_some() { "pssl" } else { "ptcp" };
        let listen = bracketed(&self.listen);
        [
            format!("punix:{}", self.kind.socket(&self.run_directory).display()),
            format!("{passive}:{}:{listen}", self.port),
        ]
    }

    /// The arguments of ovsdb-server as a raft member. Remotes and database are in the configuration file, if there is one.
    pub fn server_arguments(&self, configuration: Option<&Path>) -> Vec<String> {
        let mut arguments = self.common_arguments();
        if let Some(file) = configuration {
            arguments.push(format!("--config-file={}", file.display()));
        } else {
            arguments.extend(self.server_remotes().map(|remote| format!("--remote={remote}")));
            arguments.push(self.kind.file(&self.data_directory).display().to_string());
        }
        arguments
    }

    /// The arguments of ovsdb-server as a backup: read-only, and without a port for other hosts.
    pub(crate) fn backup_arguments(&self, sync_from: &str) -> Vec<String> {
        let [local, _] = self.server_remotes();
        let mut arguments = self.common_arguments();
        arguments.extend([format!("--remote={local}"), format!("--sync-from={sync_from}")]);
        arguments.push(self.kind.file(&self.data_directory).display().to_string());
        arguments
    }

    fn common_arguments(&self) -> Vec<String> {
        let (kind, run) = (self.kind, &self.run_directory);
        let mut arguments = vec![
            "-vconsole:info".to_owned(),
            "-vsyslog:off".into(),
            "-vfile:off".into(),
            format!("--pidfile={}", run.join(format!("ovn{}_db.pid", kind.short())).display()),
            format!("--unixctl={}", kind.control_socket(run).display()),
        ];
        arguments.extend(self.tls_arguments());
        arguments
    }
}

pub(crate) fn tls_arguments(tls: Option<&TlsFiles>) -> Vec<String> {
    let Some(tls) = tls else { return Vec::new() };
    vec![
        format!("--private-key={}", tls.private_key.display()),
        format!("--certificate={}", tls.certificate.display()),
        format!("--ca-cert={}", tls.authorities.display()),
    ]
}

/// An IPv6 address in brackets, as in remotes; any other host as it is.
pub(crate) fn bracketed(host: &str) -> String {
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
            nodes: None,
            gone_after: crate::maintenance::GONE,
            namespace: "ovn-kubernetes".into(),
            kubeconfig: None,
        }
    }

    #[test]
    fn ipv6_addresses_have_brackets() {
        let options = options();
        assert_eq!(options.address(), "tcp:[2001:db8::1]:6644");
        assert_eq!(options.raft_address("db-1.db.ns.svc"), "tcp:db-1.db.ns.svc:6644");
        let arguments = options.server_arguments(None);
        assert!(arguments.contains(&"--remote=ptcp:6642:[::]".to_owned()), "{arguments:?}");
        assert_eq!(arguments.last().map(String::as_str), Some("/data/ovnsb_db.db"));
    }
}
