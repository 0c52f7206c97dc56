//! Certificates, servers and clients of the tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::pki::Authority;
use lab::{Lab, Program};

/// Limit of every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(100);
/// Address of the control machine, where the southbound database is.
pub(crate) const CONTROL: &str = "10.99.0.1";
/// Names and address of all servers, in every cluster.
const NAMES: [&str; 4] = ["ovn", "control", "a.names.lab", "b.names.lab"];

/// A directory with `ca.crt`, `ovn.crt` and `ovn.key`.
#[derive(Debug, Clone)]
pub(crate) struct Pki(pub(crate) PathBuf);

impl Pki {
    /// That of a lab's own databases and ovn-controllers.
    pub(crate) fn of(lab: &Lab) -> Self {
        Self(lab::directories::Directories::from_environment().unwrap().lab(lab.name()).join("pki/ovn"))
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub(crate) fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).unwrap()
    }

    /// Replaces a file at once, as kubelet does.
    pub(crate) fn replace(&self, file: &str, content: impl AsRef<[u8]>) {
        let draft = self.path(&format!("{file}.new"));
        std::fs::write(&draft, content).unwrap();
        std::fs::rename(draft, self.path(file)).unwrap();
    }

    /// Replaces certificate and key by those of another directory. In this order: Open vSwitch's programs read both as soon as
    /// both have changed, and look at the key first. One that sees a new key with the old certificate never reads the new one.
    pub(crate) fn replace_identity(&self, from: &Self) {
        self.replace("ovn.crt", from.read("ovn.crt"));
        self.replace("ovn.key", from.read("ovn.key"));
    }

    /// The options of Open vSwitch's programs.
    pub(crate) fn options(&self) -> [String; 3] {
        [("private-key", "ovn.key"), ("certificate", "ovn.crt"), ("ca-cert", "ca.crt")]
            .map(|(option, file)| format!("--{option}={}", self.path(file).display()))
    }

    pub(crate) fn tls(&self) -> ovsdb::client::TlsFiles {
        ovsdb::client::TlsFiles {
            certificate: self.path("ovn.crt"),
            private_key: self.path("ovn.key"),
            authorities: self.path("ca.crt"),
            verify_host_name: false,
        }
    }
}

/// Creates a CA with this name, and a certificate with the names of all servers.
pub(crate) fn create(directory: &Path, ca: &str) -> Pki {
    let authority = Authority::create(directory, ca).unwrap();
    authority.issue("ovn", "ovn", None, &NAMES, &[CONTROL.parse().unwrap()]).unwrap();
    Pki(directory.to_owned())
}

/// Polls until `look` succeeds.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    lab::poll(LIMIT, look).unwrap_or_else(|last| panic!("{what}: {last}"))
}

/// What ovn-controller says about its connection, as success or failure.
pub(crate) fn ovn_controller(lab: &Lab) -> Result<(), String> {
    let words = ["ovn-appctl", "-t", "ovn-controller", "connection-status"];
    let said = lab.node(1).unwrap().run(&words).map_err(|error| error.to_string())?;
    if said.trim() == "connected" { Ok(()) } else { Err(said) }
}

/// Runs our own client on a node: the names of all databases' chassis, or why it was refused.
pub(crate) fn dump(lab: &Lab, pki: &Pki, remote: &str, table: &str, more: &[&str]) -> Result<String, String> {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let name = format!("dump-{}", COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let file = |file: &str| pki.path(file).display().to_string();
    let program = Program::new(&name, PathBuf::from(env!("CARGO_BIN_EXE_ovnkube")))
        .on("n1")
        .arguments(["ovsdb", "dump", remote, "OVN_Southbound", table, "--timeout", "10"])
        .arguments(["-p", &file("ovn.key"), "-c", &file("ovn.crt"), "-C", &file("ca.crt")])
        .arguments(more.iter().copied());
    lab.run(&program).unwrap();
    let ended = lab.wait_end(&name, LIMIT).unwrap();
    let said = lab.log(&name).unwrap();
    if ended.success() { Ok(said) } else { Err(said) }
}
