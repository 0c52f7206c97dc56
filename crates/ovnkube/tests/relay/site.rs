//! A lab with OVN's databases and relays of the southbound one on the control machine. No Kubernetes.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::pki::Authority;
use lab::{Databases, Lab, LabSpec, Machine, Ovn, Program};

use crate::cluster::until;

/// Address of the control machine.
pub(crate) const CONTROL: &str = "10.99.0.1";

const CONNECTED: &str = "ovn_db_relay_connected ";

pub(crate) struct Site {
    pub(crate) lab: Lab,
}

/// A relay on the control machine. Its number distinguishes its ports and sockets from those of another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relay(pub(crate) u16);

impl Relay {
    pub(crate) fn name(self) -> String {
        format!("relay-{}", self.0)
    }

    fn directory(self) -> String {
        format!("/run/{}", self.name())
    }

    /// Where clients reach it.
    pub(crate) fn remote(self) -> String {
        format!("ssl:{CONTROL}:{}", 16641 + self.0)
    }

    fn metrics(self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9500 + self.0))
    }
}

impl Site {
    pub(crate) fn start(purpose: &str, nodes: u32, databases: Databases) -> Self {
        let ovn = Ovn { databases, ..Ovn::default() };
        Self { lab: Lab::start(LabSpec::for_test(purpose).unwrap().nodes(nodes).ovn(ovn)).unwrap() }
    }

    pub(crate) fn control(&self) -> Machine {
        self.lab.machine("control").unwrap()
    }

    /// The members of the southbound database, as the network reaches them.
    pub(crate) fn southbound(&self) -> String {
        self.lab.record().endpoints.southbound_remote.unwrap()
    }

    /// Directory of the certificates: `ca.crt`, and those of [`Site::identity`] and of OVN itself (`ovn`).
    pub(crate) fn pki(&self) -> PathBuf {
        lab::directories::Directories::from_environment().unwrap().lab(self.lab.name()).join("pki/ovn")
    }

    /// Issues a certificate in the name of a chassis.
    pub(crate) fn identity(&self, name: &str) {
        Authority::open(&self.pki(), "ovn-ca").unwrap().issue(name, name, None, &[], &[]).unwrap();
    }

    /// Starts a relay with OVN's certificate; it may not be ready yet.
    pub(crate) fn relay(&self, relay: Relay, upstream: &str, more: &[&str]) {
        self.relay_with(relay, upstream, &self.pki(), more);
    }

    /// Starts a relay with the certificates of a directory.
    pub(crate) fn relay_with(&self, relay: Relay, upstream: &str, pki: &Path, more: &[&str]) {
        let file = |name: &str| pki.join(name).display().to_string();
        let program = Program::new(relay.name(), PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
            .arguments(["db", "relay", "--log-level", "info", "--upstream", upstream, "--listen", "0.0.0.0"])
            .arguments(["--run-dir", &relay.directory(), "--port", &(16641 + relay.0).to_string()])
            .arguments(["--metrics-bind-address", &relay.metrics().to_string()])
            .arguments(["--sb-client-privkey", &file("ovn.key"), "--sb-client-cert", &file("ovn.crt")])
            .arguments(["--sb-client-cacert", &file("ca.crt")])
            .arguments(more.iter().copied());
        self.lab.run(&program).unwrap();
    }

    /// What the relay serves at a path of its metrics address.
    pub(crate) fn get(&self, relay: Relay, path: &str) -> Option<String> {
        let mut stream = self.control().connect(relay.metrics(), Duration::from_secs(10)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn metric(&self, relay: Relay, name: &str) -> Option<i64> {
        let text = self.get(relay, "/metrics")?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    pub(crate) fn await_ready(&self, relay: Relay) {
        // Both at once: the two are read one after the other, and a relay may lose its upstream for a moment.
        until("the relay is ready, and its metric says so", || {
            let ready = self.get(relay, "/readyz")?.starts_with("HTTP/1.0 200");
            (ready && self.metric(relay, CONNECTED)? == 1).then_some(())
        });
    }

    /// Waits until the relay is not ready for this reason.
    pub(crate) fn await_reason(&self, relay: Relay, reason: &str) {
        until(&format!("the relay says {reason:?}"), || {
            let text = self.get(relay, "/readyz")?;
            let says = !text.starts_with("HTTP/1.0 200") && text.contains(reason);
            (says && self.metric(relay, CONNECTED)? == 0).then_some(())
        });
    }

    pub(crate) fn restarts(&self, relay: Relay) -> i64 {
        until("the relay serves its number of restarts", || self.metric(relay, "ovn_db_relay_restarts_total "))
    }

    /// Sends a signal to the relay's ovsdb-server, not to its manager; returns the process ID.
    pub(crate) fn signal(&self, relay: Relay, signal: &str) -> String {
        let process = self.server(relay);
        self.control().run(&["kill", &format!("-{signal}"), &process]).unwrap();
        process
    }

    /// The process ID of the relay's ovsdb-server.
    pub(crate) fn server(&self, relay: Relay) -> String {
        let file = format!("{}/ovnsb_relay.pid", relay.directory());
        self.control().run(&["cat", &file]).unwrap().trim().to_owned()
    }

    /// Number of clients of a relay; its manager is one.
    pub(crate) fn sessions(&self, relay: Relay) -> u32 {
        let socket = format!("{}/ovnsb_relay.ctl", relay.directory());
        let memory = self.control().run(&["ovn-appctl", "-t", &socket, "memory/show"]).unwrap();
        memory.split_whitespace().find_map(|word| word.strip_prefix("sessions:")?.parse().ok()).unwrap_or(0)
    }

    /// Runs `ovn-sbctl` at a remote with a certificate of [`Site::identity`].
    pub(crate) fn sbctl_as(&self, name: &str, remote: &str, words: &[&str]) -> Result<String, String> {
        let file = |name: String| self.pki().join(name).display().to_string();
        let (database, key) = (format!("--db={remote}"), format!("--private-key={}", file(format!("{name}.key"))));
        let certificate = format!("--certificate={}", file(format!("{name}.crt")));
        let authority = format!("--ca-cert={}", file("ca.crt".into()));
        let tool = ["ovn-sbctl", "--timeout=20", "--no-leader-only", &database, &key, &certificate, &authority];
        self.control().run(&[&tool, words].concat()).map_err(|error| error.to_string())
    }
}
