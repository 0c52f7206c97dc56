//! Options of one raft member.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::TlsFiles;

use crate::kind::Kind;
use crate::node_listener::{self, ListenerFiles, ListenerOptions};

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
    /// TCP port for clients that are not nodes, besides [`Options::port`]; with [`Options::nodes`] theirs alone, and by default
    /// [`Options::port`] + 4.
    pub control_port: Option<u16>,
    /// Port at which other hosts find the manager's report; none if it has no listener for them.
    pub status_port: Option<u16>,
    /// The files of mutual TLS; none for plain TCP.
    pub tls: Option<TlsFiles>,
    /// Certificates of nodes, southbound and with TLS only; none if nodes have the control plane's.
    pub nodes: Option<NodeAccess>,
    /// How the members are known; this one is among them.
    pub peers: Peers,
    /// Election timer in milliseconds; none to choose it by the number of nodes.
    pub election_timer: Option<u64>,
    /// How many nodes the databases serve, if they are in another cluster; none to count those of the API.
    pub node_count: Option<usize>,
    /// The leader removes a server that has been silent, and absent from the list of members, for this long.
    pub gone_after: Duration,
    /// Namespace of ConfigMap `ovnkube-db` and of the Service of [`Peers::Service`].
    pub namespace: String,
    /// The kubeconfig; none for that of the environment, or for the in-cluster configuration.
    pub kubeconfig: Option<PathBuf>,
}

/// How nodes with certificates of their own reach the southbound database: by the port for clients, where this process listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAccess {
    /// Bundle of the nodes' CAs (PEM); file `revoked` next to it lists certificates that are refused.
    pub authorities: PathBuf,
    /// TCP port of ovsdb-server on loopback, for this process: [`Options::port`] + 6 by default.
    pub local_port: u16,
}

/// What ovsdb-server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerRemote {
    /// As ovsdb-server takes it, e.g. `pssl:6642:[::]`.
    pub(crate) address: String,
    /// The role of OVN's RBAC that its clients have; none to allow them everything.
    pub(crate) role: Option<&'static str>,
}

impl NodeAccess {
    /// `port` is that for clients; without `local_port`, it is the base of the default.
    pub fn new(authorities: PathBuf, port: u16, local_port: Option<u16>) -> Self {
        Self { authorities, local_port: local_port.unwrap_or(port.saturating_add(6)) }
    }

    /// How the listener works that serves nodes in the place of a server.
    pub(crate) fn listener(&self, (listen, port): (&str, u16), tls: TlsFiles, files: ListenerFiles) -> ListenerOptions {
        ListenerOptions {
            listen: listen.to_owned(),
            port,
            local_port: self.local_port,
            socket: Some(files.socket),
            tls,
            authorities: self.authorities.clone(),
            combined: files.combined,
        }
    }
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

    /// The remote of a host for clients other than nodes, e.g. `ssl:192.0.2.1:6641`.
    pub fn client_address(&self, host: &str) -> String {
        self.remote(host, self.client_port())
    }

    /// All remotes of a host for clients. A member that has not been upgraded yet may lack the first one.
    pub(crate) fn client_addresses(&self, host: &str) -> Vec<String> {
        let control = self.control_port().map(|port| self.remote(host, port));
        control.into_iter().chain([self.remote(host, self.port)]).collect()
    }

    /// The port for clients that are not nodes, if they have one of their own.
    pub fn control_port(&self) -> Option<u16> {
        self.control_port.or_else(|| self.nodes.as_ref().map(|_| self.port.saturating_add(4)))
    }

    /// The port that clients other than nodes use.
    fn client_port(&self) -> u16 {
        self.control_port().unwrap_or(self.port)
    }

    /// The ports that ovsdb-server itself has as a raft member.
    pub(crate) fn server_ports(&self) -> Vec<u16> {
        // The port for nodes is then that of the listener.
        let shared = self.nodes.is_none().then_some(self.port);
        let local = self.nodes.as_ref().map(|nodes| nodes.local_port);
        shared.into_iter().chain(self.control_port()).chain(local).chain([self.raft_port]).collect()
    }

    fn remote(&self, host: &str, port: u16) -> String {
        let scheme = if self.tls.is_some() { "ssl" } else { "tcp" };
        format!("{scheme}:{}:{port}", bracketed(host))
    }

    /// The raft address that this member has now; its file may have another one.
    pub fn address(&self) -> String {
        self.raft_address(&self.host)
    }

    /// `--private-key`, `--certificate` and `--ca-cert` of ovsdb-server; empty for plain TCP.
    fn tls_arguments(&self) -> Vec<String> {
        let combined = self.nodes.as_ref().map(|_| self.combined_authorities());
        tls_arguments(self.tls.as_ref(), combined.as_deref())
    }

    /// The file with the control plane's authorities and that of the listener for nodes.
    fn combined_authorities(&self) -> PathBuf {
        self.run_directory.join(format!("ovn{}_db.ca.crt", self.kind.short()))
    }

    /// How the listener for nodes works; none without one.
    pub(crate) fn node_listener(&self) -> Option<ListenerOptions> {
        let (nodes, tls) = (self.nodes.as_ref()?, self.tls.clone()?);
        let files =
            ListenerFiles { socket: self.kind.socket(&self.run_directory), combined: self.combined_authorities() };
        Some(nodes.listener((&self.listen, self.port), tls, files))
    }

    /// The socket of the server, for local clients.
    pub(crate) fn local_remote(&self) -> ServerRemote {
        ServerRemote { address: format!("punix:{}", self.kind.socket(&self.run_directory).display()), role: None }
    }

    /// The ports of the server for clients.
    pub(crate) fn network_remotes(&self) -> Vec<ServerRemote> {
        let passive = if self.tls.is_some() { "pssl" } else { "ptcp" };
        let open =
            |port: u16| ServerRemote { address: format!("{passive}:{port}:{}", bracketed(&self.listen)), role: None };
        let shared = self.nodes.is_none().then_some(self.port);
        let nodes = self.nodes.as_ref().map(|nodes| node_listener::server_remote(nodes.local_port));
        shared.into_iter().chain(self.control_port()).map(open).chain(nodes).collect()
    }

    /// What the server listens on.
    pub(crate) fn server_remotes(&self) -> Vec<ServerRemote> {
        std::iter::once(self.local_remote()).chain(self.network_remotes()).collect()
    }

    /// The arguments of ovsdb-server as a raft member. Remotes and database are in the configuration file, if there is one.
    pub fn server_arguments(&self, configuration: Option<&Path>) -> Vec<String> {
        let mut arguments = self.common_arguments();
        if let Some(file) = configuration {
            arguments.push(format!("--config-file={}", file.display()));
        } else {
            arguments.extend(self.server_remotes().iter().map(|remote| format!("--remote={}", remote.address)));
            arguments.push(self.kind.file(&self.data_directory).display().to_string());
        }
        arguments
    }

    /// The arguments of ovsdb-server as a backup: read-only, and without a port for other hosts.
    pub(crate) fn backup_arguments(&self, sync_from: &str) -> Vec<String> {
        let mut arguments = self.common_arguments();
        arguments.push(format!("--remote={}", self.local_remote().address));
        arguments.push(format!("--sync-from={sync_from}"));
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

/// `combined`: the file with the authorities, if it is not that of the files.
pub(crate) fn tls_arguments(tls: Option<&TlsFiles>, combined: Option<&Path>) -> Vec<String> {
    let Some(tls) = tls else { return Vec::new() };
    let authorities = combined.unwrap_or(&tls.authorities);
    vec![
        format!("--private-key={}", tls.private_key.display()),
        format!("--certificate={}", tls.certificate.display()),
        format!("--ca-cert={}", authorities.display()),
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
            control_port: None,
            status_port: None,
            tls: None,
            node_count: None,
            peers: Peers::Hosts(Vec::new()),
            election_timer: None,
            nodes: None,
            gone_after: crate::maintenance::GONE,
            namespace: "ovn-kubernetes".into(),
            kubeconfig: None,
        }
    }

    /// With certificates of nodes.
    pub(crate) fn node_options() -> Options {
        let tls = TlsFiles {
            certificate: "/c".into(),
            private_key: "/k".into(),
            authorities: "/a".into(),
            verify_host_name: false,
        };
        let nodes = NodeAccess::new("/nodes/ca-bundle.crt".into(), 6642, None);
        Options { tls: Some(tls), nodes: Some(nodes), ..options() }
    }

    #[test]
    fn with_certificates_of_nodes_the_server_leaves_them_its_port_and_trusts_another_file() {
        let options = node_options();
        let remotes: Vec<_> =
            options.network_remotes().into_iter().map(|remote| (remote.address, remote.role)).collect();
        let expected = [("pssl:6646:[::]", None), ("pssl:6648:127.0.0.1", Some("ovn-controller"))];
        assert_eq!(remotes, expected.map(|(address, role)| (address.to_owned(), role)));
        assert_eq!(
            (options.client_address("h"), options.server_ports()),
            ("ssl:h:6646".into(), vec![6646, 6648, 6644])
        );
        let arguments = options.server_arguments(Some(Path::new("/config")));
        assert!(arguments.contains(&"--ca-cert=/run/ovn/ovnsb_db.ca.crt".to_owned()), "{arguments:?}");
        // Until nodes have certificates, the control port is one more port of the server.
        let before = Options { nodes: None, control_port: Some(6646), ..node_options() };
        let remotes: Vec<_> = before.network_remotes().into_iter().map(|remote| remote.address).collect();
        assert_eq!(remotes, ["pssl:6642:[::]", "pssl:6646:[::]"]);
        assert_eq!((before.client_address("h"), before.server_ports()), ("ssl:h:6646".into(), vec![6642, 6646, 6644]));
        let listener = options.node_listener().unwrap();
        assert_eq!((listener.port, listener.local_port), (6642, 6648));
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
