//! `ovnkube pki`: OVN's certificates.

mod revoke;
mod rotate;
mod serve;
mod status;

use std::path::Path;
use std::process::ExitCode;

use kubernetes::Api;
use pki::signer::Store;

use crate::cli::{PkiNamespace, PkiVerb};
use crate::config::ConfigArgs;

pub(super) fn run(verb: &PkiVerb, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match verb {
        PkiVerb::Serve(role) => serve::run(role, args),
        PkiVerb::Status(status) => status::run(status, args),
        PkiVerb::Rotate(rotate) => rotate::run(rotate, args),
        PkiVerb::Revoke(revoke) => revoke::run(revoke, args),
    }
}

/// The objects of a namespace, for a short command.
async fn store(kubeconfig: Option<&Path>, location: &PkiNamespace) -> anyhow::Result<Store> {
    let api = Api::from_kubeconfig(kubeconfig, None).await?;
    Ok(Store::new(api, &location.namespace))
}
