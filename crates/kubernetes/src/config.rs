//! Server address and credentials, from a kubeconfig or from the pod's service account, by kube.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderValue, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::{BoxError, ServiceBuilder, ServiceExt};

use crate::api::Service;

/// The configuration is unusable; no request was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The kubeconfig cannot be read, or lacks what its current context names.
    #[error("cannot use the kubeconfig {file}: {problem}; {remedy}")]
    Kubeconfig {
        /// Path of the file, or the value of KUBECONFIG.
        file: String,
        /// Cause.
        problem: String,
        /// How to fix it.
        remedy: &'static str,
    },
    /// Neither a kubeconfig nor a service account.
    #[error(
        "no Kubernetes API server is known: KUBECONFIG is not set and this is not a pod with a service account \
         ({problem}); pass --kubeconfig, set KUBECONFIG, or run with a mounted service account token"
    )]
    Nowhere {
        /// What the service account lacks.
        problem: String,
    },
    /// Invalid credentials or certificates.
    #[error("cannot use the credentials or certificates for {server}: {problem}")]
    Credentials {
        /// URL of the API server.
        server: String,
        /// Cause.
        problem: String,
    },
}

/// TCP timeout for unacknowledged data: bounds how long calls to a dead API server hang.
const DEAD_AFTER: Duration = Duration::from_secs(15);
/// Limit of the TCP connection alone.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Idle connections are closed after this.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// URL of the API server for a pod that cannot use the Service `kubernetes`.
const SERVER_VARIABLE: &str = "K8S_APISERVER";

/// Reads the configuration: the named file, else KUBECONFIG, else the pod's service
/// account with the server of K8S_APISERVER.
pub(crate) async fn load(file: Option<&Path>, context: Option<&str>) -> Result<Config, ConfigError> {
    let (name, kubeconfig) = match file {
        Some(path) => (path.display().to_string(), Kubeconfig::read_from(path)),
        None => match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
            Some(paths) => {
                let read = Kubeconfig::from_env().and_then(|found| found.ok_or(KubeconfigError::FindPath));
                (PathBuf::from(paths).display().to_string(), read)
            }
            None => {
                if let Some(context) = context {
                    return Err(ConfigError::Kubeconfig {
                        file: "(none: KUBECONFIG is not set)".into(),
                        problem: format!("context {context} is requested"),
                        remedy: "set the kubeconfig that has it",
                    });
                }
                let config = Config::incluster().map_err(|error| ConfigError::Nowhere { problem: chain(&error) })?;
                return with_server(config, std::env::var(SERVER_VARIABLE).ok());
            }
        },
    };
    let failed = |error: &KubeconfigError| ConfigError::Kubeconfig {
        file: name.clone(),
        problem: chain(error),
        remedy: remedy(error),
    };
    let kubeconfig = kubeconfig.map_err(|error| failed(&error))?;
    let proxied = names_proxy(&kubeconfig, context);
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| failed(&error))?;
    if proxied {
        return Err(ConfigError::Kubeconfig {
            file: name,
            problem: "the cluster sets proxy-url".into(),
            remedy: "proxies are not supported; use an API server that is reachable directly",
        });
    }
    Ok(config)
}

/// The service account's configuration with another server: the default address is a Service, which does not work
/// before this project has set up the network.
fn with_server(mut config: Config, server: Option<String>) -> Result<Config, ConfigError> {
    if let Some(server) = server.filter(|server| !server.is_empty()) {
        let parsed = server.parse::<http::Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.host().is_some());
        config.cluster_url = parsed.ok_or_else(|| ConfigError::Nowhere {
            problem: format!("{SERVER_VARIABLE}={server:?} is not a URL such as https://10.0.0.1:6443"),
        })?;
    }
    Ok(config)
}

/// Checks a kubeconfig and the files that it refers to. Contacts no server and starts no credential plugin.
pub async fn check_kubeconfig(file: &Path) -> Result<(), ConfigError> {
    load(Some(file), None).await.map(drop)
}

fn remedy(error: &KubeconfigError) -> &'static str {
    match error {
        KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath => "check the path and its permissions",
        KubeconfigError::CurrentContextNotSet => "set its current-context, or choose a context",
        KubeconfigError::LoadContext(_) => "choose one of its contexts (kubectl config get-contexts)",
        KubeconfigError::LoadClusterOfContext(_) | KubeconfigError::MissingClusterUrl => {
            "set a cluster with a server in its context"
        }
        KubeconfigError::LoadCertificateAuthority(_)
        | KubeconfigError::LoadClientCertificate(_)
        | KubeconfigError::LoadClientKey(_)
        | KubeconfigError::ParseCertificates(_) => "check its certificate files",
        _ => "check it with kubectl --kubeconfig",
    }
}

/// Whether the chosen cluster sets a proxy. HTTPS_PROXY is ignored on purpose: it is for traffic that leaves a site.
fn names_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context.or(kubeconfig.current_context.as_deref());
    let cluster = kubeconfig
        .contexts
        .iter()
        .find(|named| Some(named.name.as_str()) == context)
        .and_then(|named| Some(named.context.as_ref()?.cluster.as_str()));
    kubeconfig
        .clusters
        .iter()
        .filter(|named| Some(named.name.as_str()) == cluster)
        .filter_map(|named| named.cluster.as_ref()?.proxy_url.as_deref())
        .any(|proxy| !proxy.is_empty())
}

/// Builds the HTTP stack: headers, token, base URL, connection pool, TLS.
pub(crate) async fn connect(mut config: Config) -> Result<Service, ConfigError> {
    let server = config.cluster_url.to_string();
    let failed = |problem: String| ConfigError::Credentials { server: server.clone(), problem };
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(crate::USER_AGENT)));
    // kube uses the process's rustls provider, which is ambiguous if a build has several.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails if another thread installed one meanwhile, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    // Credential plugins are programs, and kube blocks on them.
    tokio::task::spawn_blocking(move || stack(&config))
        .await
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(chain(&error)))
}

fn stack(config: &Config) -> Result<Service, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_WITHIN));
    tcp.set_keepalive(Some(DEAD_AFTER));
    tcp.set_keepalive_interval(Some(DEAD_AFTER / 3));
    tcp.set_keepalive_retries(Some(3));
    tcp.set_tcp_user_timeout(Some(DEAD_AFTER));
    let connector = config.rustls_https_connector_with_connector(tcp)?;
    let client = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_FOR)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Service::new(service.map_err(Into::into)))
}

/// An error with its causes, each once. First lines only: parsers quote pieces of the file below, which may contain
/// secrets.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let line = |error: &dyn std::error::Error| error.to_string().lines().next().unwrap_or_default().trim().to_owned();
    let mut text = line(error);
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = line(next);
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = next.source();
    }
    text
}
