//! `ovnkube pki serve`: runs the signer.

use std::process::ExitCode;

use pki::signer::SignerOptions;
use pki::{Policy, parse_duration};

use crate::cli::PkiServe;
use crate::commands::{checked_settings, controller, role_telemetry};
use crate::config::{Config, ConfigArgs, Problems};

pub(super) fn run(role: &PkiServe, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(args)?;
    let options = options(role, &config).map_err(|error| Problems(vec![format!("{error:#}")]))?;
    let telemetry = role_telemetry::start("pki", None, &config)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let ended = pki::signer::run(options, &telemetry).await;
        telemetry.stop().await;
        ended
    });
    ended.map(|()| ExitCode::SUCCESS).map_err(Into::into)
}

fn options(role: &PkiServe, config: &Config) -> anyhow::Result<SignerOptions> {
    let (ca_lifetime, leaf_lifetime) = (parse_duration(&role.ca_lifetime)?, parse_duration(&role.leaf_lifetime)?);
    let or = |given: &Option<String>, usual| given.as_deref().map_or(Ok(usual), parse_duration);
    let policy = Policy {
        ca_lifetime,
        ca_renew_after: or(&role.ca_renew_after, ca_lifetime / 10 * 9)?,
        leaf_lifetime,
        leaf_renew_after: or(&role.leaf_renew_after, leaf_lifetime / 2)?,
        distribution_delay: parse_duration(&role.distribution_delay)?,
        revoke_deleted_after: parse_duration(&role.revoke_deleted_after)?,
        names: role.names.clone(),
    };
    policy.check()?;
    Ok(SignerOptions {
        kubeconfig: checked_settings::kubeconfig(config)?,
        namespace: role.location.namespace.clone(),
        identity: controller::identity(role.identity.as_deref())?,
        policy,
    })
}
