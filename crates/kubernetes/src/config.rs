//! Where the API server is and who we are: from a kubeconfig or from the pod's service account, by kube.

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

/// A connection could not be set up; nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be used.
    #[error("cannot use the kubeconfig {file}: {problem}; {remedy}")]
    Kubeconfig {
        /// Its path, or the whole of KUBECONFIG.
        file: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// There is no file, and this is no pod.
    #[error(
        "no Kubernetes API server is known: KUBECONFIG is not set and this is not a pod with a service account \
         ({problem}); name a kubeconfig, or run with a mounted service account token"
    )]
    Nowhere {
        /// What is missing of the service account.
        problem: String,
    },
    /// Credentials or certificates cannot be used.
    #[error("cannot use the credentials or certificates for {server}: {problem}")]
    Credentials {
        /// The API server.
        server: String,
        /// What is wrong.
        problem: String,
    },
}

/// A peer that is silent for so long is gone: bounds what a dead API server costs the calls that are in flight.
const DEAD_AFTER: Duration = Duration::from_secs(15);
/// For the TCP connection alone.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Unused connections are closed after this.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// The API server of a pod that cannot use the cluster's own address for it.
const SERVER_VARIABLE: &str = "K8S_APISERVER";

/// Reads the configuration: the named file, or else what KUBECONFIG names, or else the pod's service
/// account, with the server that K8S_APISERVER names.
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
                        problem: format!("it should hold the context {context}"),
                        remedy: "name the file that does",
                    });
                }
                let config = Config::incluster().map_err(|error| ConfigError::Nowhere { problem: chain(&error) })?;
                return elsewhere(config, std::env::var(SERVER_VARIABLE).ok());
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
            problem: "its cluster sets proxy-url".into(),
            remedy: "proxies are not supported; name an API server that can be reached directly",
        });
    }
    Ok(config)
}

/// The service account's configuration, for the server that the pod was told instead of the cluster's own address for it:
/// that address is a Service's, which whoever makes the network cannot use before there is one.
fn elsewhere(mut config: Config, server: Option<String>) -> Result<Config, ConfigError> {
    if let Some(server) = server.filter(|server| !server.is_empty()) {
        let parsed = server.parse::<http::Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.host().is_some());
        config.cluster_url = parsed.ok_or_else(|| ConfigError::Nowhere {
            problem: format!("{SERVER_VARIABLE}={server:?} is no address such as https://10.0.0.1:6443"),
        })?;
    }
    Ok(config)
}

/// Whether a kubeconfig can be read, with the files that it names. Asks no server and starts no credential plugin.
pub async fn check_kubeconfig(file: &Path) -> Result<(), ConfigError> {
    load(Some(file), None).await.map(drop)
}

fn remedy(error: &KubeconfigError) -> &'static str {
    match error {
        KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath => "check the path and its permissions",
        KubeconfigError::CurrentContextNotSet => "set current-context in it, or name a context",
        KubeconfigError::LoadContext(_) => "name one of its contexts (kubectl config get-contexts)",
        KubeconfigError::LoadClusterOfContext(_) | KubeconfigError::MissingClusterUrl => {
            "give its context a cluster with a server"
        }
        KubeconfigError::LoadCertificateAuthority(_)
        | KubeconfigError::LoadClientCertificate(_)
        | KubeconfigError::LoadClientKey(_)
        | KubeconfigError::ParseCertificates(_) => "check the certificate files that it names",
        _ => "check it with kubectl --kubeconfig",
    }
}

/// Whether the chosen cluster asks for a proxy. (HTTPS_PROXY is ignored on purpose: it is meant for the way out of a
/// site, and the API server is in it.)
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

/// Makes the stack that carries requests: headers, token, base address, pool of connections, TLS.
pub(crate) async fn connect(mut config: Config) -> Result<Service, ConfigError> {
    let server = config.cluster_url.to_string();
    let failed = |problem: String| ConfigError::Credentials { server: server.clone(), problem };
    config.headers.push((header::USER_AGENT, HeaderValue::from_static(crate::USER_AGENT)));
    // kube asks rustls for the process's provider. Where a build has several, that would be nobody's choice.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails if somebody chose one in this moment, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    // Credential plugins are programs, and kube waits for them.
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

/// An error with its causes, each once: the outermost words alone ("client error (Connect)") help nobody. Of each the first
/// line: what a parser shows below is a piece of the file, which may hold a secret.
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
