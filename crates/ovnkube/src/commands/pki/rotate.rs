//! `ovnkube pki rotate`: requests a new certificate or CA from the signer.

use std::process::ExitCode;

use anyhow::Context as _;
use kubernetes::ApiError;
use pki::Domain;

use crate::cli::PkiRotate;
use crate::commands::checked_settings;
use crate::config::{Config, ConfigArgs};

pub(super) fn run(rotate: &PkiRotate, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    telemetry::init_logs(&config.log_options()?)?;
    let kubeconfig = checked_settings::kubeconfig(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = super::store(kubeconfig.as_deref(), &rotate.location).await?;
        let now = kubernetes::timestamp();
        // A retirement alone rotates nothing.
        let leaf = !rotate.ca && !rotate.retire && !rotate.nodes;
        let ca = rotate.ca || rotate.nodes;
        let domain = if rotate.nodes { Domain::Nodes } else { Domain::ControlPlane };
        let annotations = [(leaf, pki::ROTATE_LEAF), (ca, pki::ROTATE_CA), (rotate.retire, pki::RETIRE)];
        let annotations: Vec<_> =
            annotations.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| (*name, now.as_str())).collect();
        match store.request(domain, &annotations).await {
            Err(ApiError::NotFound(_)) => {
                anyhow::bail!(
                    "there is no Secret {} in namespace {}: no signer has created a CA there; hint: apply deploy/ovnkube/pki.yaml, \
                     or give --namespace",
                    domain.name(),
                    rotate.location.namespace
                )
            }
            requested => requested.with_context(|| format!("cannot write the request to {}", domain.secret()))?,
        }
        let what = if rotate.nodes { "a new CA of the nodes" } else if rotate.ca { "a new CA" } else if rotate.retire { "the retirement of former CAs" } else { "a new certificate" };
        console::print(&format!("requested {what}; `ovnkube pki status` shows the progress\n"))?;
        Ok(ExitCode::SUCCESS)
    })
}
