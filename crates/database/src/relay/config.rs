//! Configuration of a relay's ovsdb-server. Pure.

use std::path::PathBuf;

use ovsdb::client::{Endpoint, Remote};
use serde_json::{Map, Value, json};

use super::{KIND, RelayOptions};
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

    /// The upstreams in one word.
    pub(super) fn source(&self) -> String {
        let remotes: Vec<String> = self.upstreams.iter().map(ToString::to_string).collect();
        remotes.join(",")
    }

    /// Where the members on these hosts are.
    pub(super) fn remotes(&self, hosts: &[String], port: u16) -> Vec<Remote> {
        let endpoint = |host: &String| Endpoint { host: host.clone(), port };
        let remote = |endpoint| if self.tls.is_some() { Remote::Ssl(endpoint) } else { Remote::Tcp(endpoint) };
        hosts.iter().map(endpoint).map(remote).collect()
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
        arguments.extend(tls_arguments(self.tls.as_ref()));
        arguments
    }

    /// Content of the configuration file.
    pub(super) fn configuration(&self) -> Value {
        let passive = if self.tls.is_some() { "pssl" } else { "ptcp" };
        let mut client = json!({ "inactivity-probe": CLIENT_PROBE_MS });
        if let Some(role) = &self.role {
            client["role"] = role.as_str().into();
        }
        let remotes = Map::from_iter([
            (format!("punix:{}", self.socket().display()), json!({})),
            (format!("{passive}:{}:{}", self.port, bracketed(&self.listen)), client),
        ]);
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
        }
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
    fn members_are_reached_as_the_relay_is() {
        let hosts = ["2001:db8::1".to_owned(), "192.0.2.1".into()];
        let text = |tls| {
            let options = RelayOptions { upstreams: options(tls).remotes(&hosts, 6642), ..options(tls) };
            options.source()
        };
        assert_eq!(text(false), "tcp:[2001:db8::1]:6642,tcp:192.0.2.1:6642");
        assert_eq!(text(true), "ssl:[2001:db8::1]:6642,ssl:192.0.2.1:6642");
    }

    #[test]
    fn sessions_are_counted() {
        assert_eq!(sessions("cells:42 monitors:1 sessions:12 txn-history:3"), Some(12));
        assert_eq!(sessions("cells:42"), None);
    }
}
