//! Certificates of nodes, with a real ovn-controller: it works through the listener for nodes, and its certificate opens nothing
//! else. The listener of a relay is that of a member.

use std::path::{Path, PathBuf};

use lab::Databases;
use lab::pki::Authority;

use crate::cluster::until;
use crate::site::{Relay, Site};

const RELAY: Relay = Relay(1);

/// The nodes' CA, and its certificates.
struct Nodes {
    directory: PathBuf,
    authority: Authority,
}

impl Nodes {
    fn create(site: &Site) -> Self {
        let directory = site.pki().join("nodes");
        std::fs::create_dir_all(&directory).unwrap();
        let authority = Authority::create(&directory, "ovn-node-ca").unwrap();
        std::fs::copy(directory.join("ca.crt"), directory.join("ca-bundle.crt")).unwrap();
        Self { directory, authority }
    }

    fn bundle(&self) -> String {
        self.directory.join("ca-bundle.crt").display().to_string()
    }

    /// Issues a certificate in the name of a chassis, with the files that the site's clients look for.
    fn issue(&self, site: &Site, file: &str, chassis: &str) {
        let issued = self.authority.issue(file, chassis, None, &["ovnkube-node"], &[]).unwrap();
        copy(&issued.certificate, &issued.key, &site.pki(), file);
    }

    /// Replaces the list of revoked certificates by this one.
    fn revoke(&self, site: &Site, file: &str) {
        let certificate = site.pki().join(format!("{file}.crt")).display().to_string();
        let words = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate];
        let text = site.control().run(&words).unwrap();
        let fingerprint = text.trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase();
        std::fs::write(self.directory.join("revoked.new"), format!("# {file}\n{fingerprint}\n")).unwrap();
        std::fs::rename(self.directory.join("revoked.new"), self.directory.join("revoked")).unwrap();
    }
}

fn copy(certificate: &Path, key: &Path, directory: &Path, file: &str) {
    std::fs::copy(certificate, directory.join(format!("{file}.crt"))).unwrap();
    std::fs::copy(key, directory.join(format!("{file}.key"))).unwrap();
}

/// Has ovn-controller of the node use a certificate.
fn use_certificate(site: &Site, file: &str) {
    let own = site.pki().join("own");
    for suffix in ["crt", "key"] {
        let draft = own.join("new");
        std::fs::copy(site.pki().join(format!("{file}.{suffix}")), &draft).unwrap();
        std::fs::rename(draft, own.join(format!("ovn.{suffix}"))).unwrap();
    }
}

fn status(site: &Site) -> String {
    let words = ["ovn-appctl", "-t", "ovn-controller", "connection-status"];
    site.lab.node(1).unwrap().run(&words).unwrap_or_default().trim().to_owned()
}

fn await_connected(site: &Site) {
    until("ovn-controller is connected", || (status(site) == "connected").then_some(()));
}

/// Writes to the row of a chassis with a certificate.
fn change(site: &Site, file: &str, remote: &str, chassis: &str) -> Result<String, String> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CHANGES: AtomicU32 = AtomicU32::new(0);
    let value = format!("other_config:changed={}", CHANGES.fetch_add(1, Ordering::Relaxed));
    site.sbctl_as(file, remote, &["--timeout=5", "set", "Chassis", chassis, &value])
}

#[test]
fn a_node_works_with_its_own_certificate_and_reaches_nothing_else_with_it() {
    let site = Site::start("relay-nodes", 1, Databases::Standalone);
    let nodes = Nodes::create(&site);
    nodes.issue(&site, "n1", "n1");
    nodes.issue(&site, "n1-next", "n1");
    // The node has files of its own in the place of the shared ones.
    let own = site.pki().join("own");
    std::fs::create_dir_all(&own).unwrap();
    for file in ["ca.crt", "ovn.crt", "ovn.key"] {
        std::fs::copy(site.pki().join(file), own.join(file)).unwrap();
    }
    let (from, to) = (own.display().to_string(), site.pki().display().to_string());
    site.relay(RELAY, &site.southbound(), &["--node-authorities", &nodes.bundle()]);
    site.await_ready(RELAY);
    let node = site.lab.node(1).unwrap();
    // The chassis registers itself anew, with nothing but its role.
    use_certificate(&site, "n1");
    node.run(&["mount", "--bind", &from, &to]).unwrap();
    let remote = format!("external_ids:ovn-remote={}", RELAY.remote());
    node.run(&["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", &remote]).unwrap();
    until("the node is a client of the relay", || (site.sessions(RELAY) >= 2).then_some(()));
    await_connected(&site);
    site.lab.sbctl(&["--if-exists", "chassis-del", "n1"]).unwrap();
    until("the chassis is registered", || {
        site.lab.sbctl(&["--columns=name", "list", "Chassis"]).ok()?.contains("n1").then_some(())
    });
    site.lab.nbctl(&["ls-add", "ls", "--", "lsp-add", "ls", "p1"]).unwrap();
    let words =
        ["add-port", "br-int", "p1", "--", "set", "Interface", "p1", "type=internal", "external_ids:iface-id=p1"];
    node.run(&[&["ovs-vsctl", "--no-wait"], words.as_slice()].concat()).unwrap();
    until("the port is claimed and up", || {
        (site.lab.nbctl(&["get", "Logical_Switch_Port", "p1", "up"]).ok()?.trim() == "true").then_some(())
    });

    // Its own rows, and no others.
    site.lab.sbctl(&["chassis-add", "n2", "geneve", "10.1.0.2"]).unwrap();
    change(&site, "n1", &RELAY.remote(), "n1").unwrap();
    let error = change(&site, "n1", &RELAY.remote(), "n2").unwrap_err();
    assert!(error.contains("permission error"), "{error}");

    // Nothing else accepts it: the members, without a role as the control port, and the relay's own server behind the listener.
    let northbound = site.lab.record().endpoints.northbound_remote.unwrap();
    let behind = format!("ssl:127.0.0.1:{}", 16641 + 1 + 6);
    for remote in [&site.southbound(), &northbound, &behind] {
        change(&site, "n1", remote, "n1").unwrap_err();
    }
    // The control plane's own certificate is for other ports.
    change(&site, "ovn", &site.southbound(), "n1").unwrap();
    let foreign = site.pki().join("foreign");
    std::fs::create_dir_all(&foreign).unwrap();
    let stranger = Authority::create(&foreign, "ovn-node-ca").unwrap();
    let stranger = stranger.issue("stranger", "n1", None, &[], &[]).unwrap();
    copy(&stranger.certificate, &stranger.key, &site.pki(), "stranger");
    let expired = nodes.authority.issue_expired("expired", "n1").unwrap();
    copy(&expired.certificate, &expired.key, &site.pki(), "expired");
    for (file, reason) in [("ovn", "unknown_authority"), ("stranger", "unknown_authority"), ("expired", "expired")] {
        change(&site, file, &RELAY.remote(), "n1").unwrap_err();
        let counted = format!("ovn_db_node_refusals_total{{reason=\"{reason}\"}} 0");
        assert!(!site.get(RELAY, "/metrics").unwrap().contains(&counted), "{file}");
    }
    let log = site.lab.log(&RELAY.name()).unwrap();
    assert!(log.contains("connection to the port for nodes refused") && log.contains("south-control"), "{log}");

    // A revoked certificate is out at once; with another one the node is back, and its flows stayed.
    nodes.revoke(&site, "n1");
    until("the session is closed", || (status(&site) != "connected").then_some(()));
    change(&site, "n1", &RELAY.remote(), "n1").unwrap_err();
    change(&site, "n1-next", &RELAY.remote(), "n1").unwrap();
    use_certificate(&site, "n1-next");
    await_connected(&site);

    // Manager and server are restarted, as with their container, with another authority in the manager's memory.
    let server = site.server(RELAY);
    site.lab.kill(&RELAY.name()).unwrap();
    site.control().run(&["kill", "-KILL", &server]).unwrap();
    site.lab.restart(&RELAY.name()).unwrap();
    site.await_ready(RELAY);
    await_connected(&site);
    change(&site, "n1-next", &RELAY.remote(), "n1").unwrap();
    change(&site, "n1", &RELAY.remote(), "n1").unwrap_err();
}
