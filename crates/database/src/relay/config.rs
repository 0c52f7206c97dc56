//! Configuration of a relay's ovsdb-server. Pure.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{KIND, RelayOptions};
use crate::node_listener::{ListenerFiles, ListenerOptions, server_remote};
use crate::options::{bracketed, tls_arguments};

/// The relay leaves an upstream that does not reply to two of these in a row, in milliseconds; ovsdb-server's default is a
/// minute.
const UPSTREAM_PROBE_MS: u32 = 3000;
/// Longest delay between attempts to connect to an upstream, in milliseconds.
const UPSTREAM_BACKOFF_MS: u32 = 2000;
/// Inactivity probe of clients, in milliseconds. A node that is gone costs a connection until then, nothing else.
const CLIENT_PROBE_MS: u32 = 30_000;

impl RelayOptions {
    /// The socket for the manager and local clients. Not that of a member, which may run on the same host.
    pub fn socket(&self) -> PathBuf {
        self.run_directory.join("ovnsb_relay.sock")
    }

    /// The control socket, for `ovn-appctl -t`.
    pub fn control_socket(&self) -> PathBuf {
        self.run_directory.join("ovnsb_relay.ctl")
    }

    /// The server's configuration file, which it reads again on `ovsdb-server/reload`.
    pub(super) fn configuration_file(&self) -> PathBuf {
        self.run_directory.join("ovnsb_relay.json")
    }

    /// The file with the authorities that the server trusts besides those of its own files.
    fn combined_authorities(&self) -> PathBuf {
        self.run_directory.join("ovnsb_relay.ca.crt")
    }

    /// How the listener for nodes works; none without one.
    pub(super) fn node_listener(&self) -> Option<ListenerOptions> {
        let (nodes, tls) = (self.nodes.as_ref()?, self.tls.clone()?);
        let files = ListenerFiles { socket: self.socket(), combined: self.combined_authorities() };
        Some(nodes.listener((&self.listen, self.port), tls, files))
    }

    /// The port of the server for clients.
    pub(super) fn server_port(&self) -> u16 {
        self.nodes.as_ref().map_or(self.port, |nodes| nodes.local_port)
    }

    /// The upstreams in one word.
    pub(super) fn source(&self) -> String {
        let remotes: Vec<String> = self.upstreams.iter().map(ToString::to_string).collect();
        remotes.join(",")
    }

    /// The arguments of ovsdb-server.
    pub(super) fn server_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "-vconsole:info".to_owned(),
            "-vsyslog:off".into(),
            "-vfile:off".into(),
            format!("--pidfile={}", self.run_directory.join("ovnsb_relay.pid").display()),
            format!("--unixctl={}", self.control_socket().display()),
            format!("--config-file={}", self.configuration_file().display()),
        ];
        let combined = self.nodes.as_ref().map(|_| self.combined_authorities());
        arguments.extend(tls_arguments(self.tls.as_ref(), combined.as_deref()));
        arguments
    }

    /// Content of the configuration file.
    pub(super) fn configuration(&self) -> Value {
        let passive = if self.tls.is_some() { "pssl" } else { "ptcp" };
        let mut client = json!({ "inactivity-probe": CLIENT_PROBE_MS });
        // Nodes are clients of this process, and it is one of the server.
        let nodes = self.nodes.as_ref().map(|nodes| server_remote(nodes.local_port));
        if let Some(role) = nodes.as_ref().and_then(|remote| remote.role).or(self.role.as_deref()) {
            client["role"] = role.into();
        }
        let network = nodes.map(|remote| remote.address);
        let network = network.unwrap_or_else(|| format!("{passive}:{}:{}", self.port, bracketed(&self.listen)));
        let remotes = Map::from_iter([(format!("punix:{}", self.socket().display()), json!({})), (network, client)]);
        let source = Map::from_iter([(
            self.source(),
            json!({ "inactivity-probe": UPSTREAM_PROBE_MS, "max-backoff": UPSTREAM_BACKOFF_MS }),
        )]);
        json!({ "remotes": remotes, "databases": { KIND.schema(): { "service-model": "relay", "source": source } } })
    }
}

/// The number of clients in the output of `memory/show`: `cells:42 monitors:1 sessions:2`.
pub(super) fn sessions(memory: &str) -> Option<i64> {
    memory.split_whitespace().find_map(|word| word.strip_prefix("sessions:")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use ovsdb::client::Remote;

    use super::*;

    fn options(tls: bool) -> RelayOptions {
        let files = ovsdb::client::TlsFiles {
            certificate: "/c".into(),
            private_key: "/k".into(),
            authorities: "/a".into(),
            verify_host_name: false,
        };
        RelayOptions {
            run_directory: "/run/ovn".into(),
            listen: "::".into(),
            port: 16642,
            tls: tls.then_some(files),
            upstreams: Remote::parse_list("tcp:192.0.2.1:6642,tcp:[2001:db8::1]:6642").unwrap(),
            service: None,
            role: None,
            nodes: None,
        }
    }

    #[test]
    fn with_certificates_of_nodes_the_server_listens_on_loopback_only() {
        let nodes = Some(crate::options::NodeAccess::new("/nodes/ca-bundle.crt".into(), 16642, None));
        let options = RelayOptions { nodes, ..options(true) };
        let configuration = options.configuration();
        let remotes: Vec<&String> = configuration["remotes"].as_object().unwrap().keys().collect();
        assert_eq!(remotes, ["pssl:16648:127.0.0.1", "punix:/run/ovn/ovnsb_relay.sock"]);
        assert_eq!(configuration["remotes"]["pssl:16648:127.0.0.1"]["role"], "ovn-controller");
        assert!(options.server_arguments().contains(&"--ca-cert=/run/ovn/ovnsb_relay.ca.crt".to_owned()));
        assert_eq!((options.server_port(), options.node_listener().unwrap().port), (16648, 16642));
    }

    #[test]
    fn the_relay_listens_and_has_all_members_as_one_source() {
        let configuration = options(false).configuration();
        let remotes: Vec<&String> = configuration["remotes"].as_object().unwrap().keys().collect();
        assert_eq!(remotes, ["ptcp:16642:[::]", "punix:/run/ovn/ovnsb_relay.sock"]);
        let database = &configuration["databases"]["OVN_Southbound"];
        assert_eq!(database["service-model"], "relay");
        let sources: Vec<&String> = database["source"].as_object().unwrap().keys().collect();
        assert_eq!(sources, ["tcp:192.0.2.1:6642,tcp:[2001:db8::1]:6642"]);
    }

    #[test]
    fn a_role_applies_to_the_network_and_not_to_the_managers_own_socket() {
        let configuration = RelayOptions { role: Some("ovn-controller".into()), ..options(true) }.configuration();
        assert_eq!(configuration["remotes"]["pssl:16642:[::]"]["role"], "ovn-controller");
        assert!(configuration["remotes"]["punix:/run/ovn/ovnsb_relay.sock"]["role"].is_null());
        assert!(options(true).configuration()["remotes"]["pssl:16642:[::]"]["role"].is_null());
    }

    #[test]
    fn sessions_are_counted() {
        assert_eq!(sessions("cells:42 monitors:1 sessions:12 txn-history:3"), Some(12));
        assert_eq!(sessions("cells:42"), None);
    }
}
