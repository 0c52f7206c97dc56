//! `ovnkube pki revoke`: ends the trust in the certificates of nodes.

use std::process::ExitCode;

use anyhow::Context as _;
use kubernetes::ApiError;
use pki::{Domain, NodeCertificate};

use crate::cli::PkiRevoke;
use crate::commands::checked_settings;
use crate::config::{Config, ConfigArgs};

/// Attempts while others change the ConfigMap.
const ATTEMPTS: u32 = 5;

pub(super) fn run(revoke: &PkiRevoke, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    telemetry::init_logs(&config.log_options()?)?;
    let kubeconfig = checked_settings::kubeconfig(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = super::store(kubeconfig.as_deref(), &revoke.location).await?;
        let mut attempts = 0;
        let revoked = loop {
            attempts += 1;
            let objects = store.read_allowed(Domain::Nodes).await?;
            let certificates = certificates(&objects.record(), &revoke.nodes, &revoke.location.namespace)?;
            match store.revoke(&certificates, &objects).await {
                Err(ApiError::Conflict(_)) if attempts < ATTEMPTS => {}
                written => {
                    written.context("cannot write the revoked certificates to ConfigMap ovn-node-ca")?;
                    break certificates.len();
                }
            }
        };
        let (nodes, pods) = (revoke.nodes.join(" "), &revoke.location.namespace);
        let plural = if revoked == 1 { "" } else { "s" };
        let delete: String = revoke
            .nodes
            .iter()
            .map(|node| format!("  kubectl -n {pods} delete pod --force --field-selector spec.nodeName={node}\n"))
            .collect();
        console::print(&format!(
            "revoked {revoked} certificate{plural} of {nodes}: the southbound listeners close their sessions within minutes, when kubelet \
             has updated ConfigMap ovn-node-ca\n\
             A node's agent then requests a new certificate with its token. To keep a stolen node out, first switch it off or end the \
             access of its kubelet to the API server, which would register it again; then:\n  \
             kubectl delete node {nodes}\n{delete}"
        ))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The recorded certificates of these nodes, and a text about each for the list.
fn certificates(
    record: &pki::Record,
    nodes: &[String],
    namespace: &str,
) -> anyhow::Result<Vec<(NodeCertificate, String)>> {
    let mut found = Vec::new();
    for node in nodes {
        let before = found.len();
        for (chassis, claim) in record.holders().filter(|(_, claim)| claim.node == *node) {
            let about = |one: &NodeCertificate| (one.clone(), format!("node {node}, chassis {chassis}"));
            found.extend(claim.certificates.iter().map(about));
        }
        if found.len() == before {
            anyhow::bail!(
                "ConfigMap ovn-chassis in namespace {namespace} has no certificate of node {node}, or there is no such ConfigMap: nothing was \
                 revoked. Is the name right? `ovnkube pki status` lists all. If the Node was deleted before, they are revoked already: its \
                 Events and the signer's log name them"
            );
        }
    }
    Ok(found)
}
