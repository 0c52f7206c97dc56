//! Logs, endpoints and metrics of a role, from the settings; and who may scrape the metrics.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use kubernetes::Api;
use telemetry::{Authorization, Authorizer, Options, ReviewFuture, ScrapeOptions, Telemetry};
use tokio::sync::OnceCell;

use super::checked_settings::{metrics_files, path};
use crate::config::{Config, Problems};
use crate::settings::{self, metrics, parse_bind_address};

/// Limit of each of the two calls of a review.
const CALL: Duration = Duration::from_secs(3);

/// Starts the telemetry of a role; `instance` tells apart processes of one role, in the log.
pub(super) fn start(role: &str, instance: Option<&str>, config: &Config) -> anyhow::Result<Telemetry> {
    start_with_status(role, instance, config, None)
}

/// The same; clients on other hosts with a certificate of these authorities may read the status of the role.
pub(super) fn start_with_status(
    role: &str,
    instance: Option<&str>,
    config: &Config,
    authorities: Option<&Path>,
) -> anyhow::Result<Telemetry> {
    let mut options = Options::new(role, telemetry::build::VERSION, telemetry::build::COMMIT);
    options.instance = instance.map(str::to_owned);
    options.log = config.log_options()?;
    options.listen = parse_bind_address(config.value(&settings::METRICS_ADDRESS)?).map_err(|why| anyhow!(why))?;
    options.listen_setting = "[metrics] bind-address".into();
    options.scrape = scrape_options(config, authorities).map_err(|error| Problems(vec![error.to_string()]))?;
    let telemetry = Telemetry::start(&options)?;
    if options.scrape.is_none() {
        tracing::info!(
            "metrics are not served to other machines; set [metrics] tls-bind-address, tls-cert and tls-key to let Prometheus scrape them"
        );
    }
    Ok(telemetry)
}

/// The listener for scrapers; `None` if it is off or there is no certificate for it.
fn scrape_options(config: &Config, authorities: Option<&Path>) -> anyhow::Result<Option<ScrapeOptions>> {
    let listen = parse_bind_address(config.value(&metrics::TLS_ADDRESS)?).map_err(|why| anyhow!(why))?;
    let Some((certificate, private_key)) = metrics_files(config)? else { return Ok(None) };
    let authorizer = Arc::new(ApiAuthorizer { kubeconfig: path(config, &settings::KUBECONFIG)?, api: OnceCell::new() });
    let authorities = authorities.map(Path::to_owned);
    Ok(listen.map(|listen| ScrapeOptions { listen, certificate, private_key, authorities, authorizer }))
}

/// The port at which other hosts find the status of a role; none if it listens nowhere.
pub(super) fn status_port(config: &Config) -> anyhow::Result<Option<u16>> {
    let port = |setting| -> anyhow::Result<Option<u16>> {
        let address = parse_bind_address(config.value(setting)?).map_err(|why| anyhow!(why))?;
        Ok(address.map(|address| address.port()))
    };
    match (metrics_files(config)?, port(&metrics::TLS_ADDRESS)?) {
        (Some(_), Some(port)) => Ok(Some(port)),
        _ => port(&settings::METRICS_ADDRESS),
    }
}

/// Has the API server review tokens and permissions.
#[derive(Debug)]
struct ApiAuthorizer {
    kubeconfig: Option<PathBuf>,
    /// Created with the first review: it belongs to the runtime on which reviews run.
    api: OnceCell<Api>,
}

impl Authorizer for ApiAuthorizer {
    fn review<'a>(&'a self, token: &'a str) -> ReviewFuture<'a> {
        Box::pin(async move {
            let connect = async || {
                let api = Api::from_kubeconfig(self.kubeconfig.as_deref(), None).await;
                api.map(|api| api.with_timeout(CALL)).map_err(|error| error.to_string())
            };
            let api = self.api.get_or_try_init(connect).await?;
            let failed = |error: kubernetes::ApiError| error.to_string();
            let Some(owner) = api.review_token(token).await.map_err(failed)? else {
                return Ok(Authorization::Unauthenticated);
            };
            if api.review_access(&owner, "get", "/metrics").await.map_err(failed)? {
                Ok(Authorization::Allowed)
            } else {
                Ok(Authorization::Forbidden { user: owner.name })
            }
        })
    }
}
