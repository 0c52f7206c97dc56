//! The certificates that ovnkube's signer created, as files for what runs outside of pods: tests, Prometheus.

use std::time::Duration;

use crate::error::{Error, Result, create_dir};
use crate::machine::Machine;
use crate::pki::write_secret;
use crate::poll::poll;
use crate::supervisor::Supervisor;
use crate::underlay::CONTROL;

/// How long the signer may take. Generous: it only ends what would hang forever.
const LIMIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "ovn-kubernetes";
/// The CAs of nodes.
pub(crate) const NODE_AUTHORITY: &str = "node-ca.crt";

/// Writes the CA, its key, the trusted CAs and the certificate to the files that a lab's own certificates have. They are copies:
/// after a rotation, export them again.
pub(crate) fn export(supervisor: &Supervisor) -> Result<()> {
    let control = supervisor.machine(CONTROL)?;
    let dir = supervisor.dir().join("pki/ovn");
    create_dir(&dir)?;
    for (file, object, key) in [
        ("ovn.crt", "secret/ovn-cert", "tls.crt"),
        ("ovn.key", "secret/ovn-cert", "tls.key"),
        ("ca.crt", "configmap/ovn-ca", "ca-bundle.crt"),
        ("signing-ca.crt", "secret/ovn-ca", "tls.crt"),
        ("signing-ca.key", "secret/ovn-ca", "tls.key"),
    ] {
        // A signer is also ready while it stands by, before it has led and created them.
        write_secret(&dir.join(file), &poll(LIMIT, || value(&control, object, key))?)?;
    }
    // A signer of an earlier version has none.
    if let Ok(of_nodes) = value(&control, "configmap/ovn-node-ca", "ca-bundle.crt") {
        write_secret(&dir.join(NODE_AUTHORITY), &of_nodes)?;
    }
    Ok(())
}

/// One value of a Secret or ConfigMap.
fn value(control: &Machine, object: &str, key: &str) -> Result<String> {
    let decode = if object.starts_with("secret/") { " | base64decode" } else { "" };
    let template = format!("{{{{index .data \"{key}\"{decode}}}}}");
    let text = control.run(&["kubectl", "-n", NAMESPACE, "get", object, "-o", &format!("go-template={template}")])?;
    if text.contains("-----BEGIN") { Ok(text) } else { Err(Error::Invalid(format!("{object} has no {key} in PEM"))) }
}
