//! Start and stop: the thread that serves the endpoints and listens for signals.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process;
use std::thread;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::scrape::{self, ScrapeOptions};
use crate::server::{self, EndpointState};
use crate::{Error, Health, LogLevel, LogOptions, Metrics, Shutdown, ShutdownTrigger, StatusPage, init_logs};

/// How long open requests may take once the role has ended: an idle connection must not delay the exit for the whole
/// grace period.
const LONGEST_DRAIN: Duration = Duration::from_secs(5);

/// Options of a role's telemetry.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the role in `ovnkube_build_info`.
    pub role: String,
    /// What this process of the role is for, such as its database; for the log.
    pub instance: Option<String>,
    /// Version in `ovnkube_build_info`.
    pub version: String,
    /// Commit in `ovnkube_build_info`.
    pub commit: String,
    /// Filter and format of the logs.
    pub log: LogOptions,
    /// Listen address of the endpoints; `None` for no endpoints. Port 0 takes a free port.
    pub listen: Option<SocketAddr>,
    /// Name of the setting of `listen`, for error messages.
    pub listen_setting: String,
    /// `/metrics` for scrapers on other machines; `None` for loopback only.
    pub scrape: Option<ScrapeOptions>,
    /// How long the role may take to end after a signal before the process exits.
    pub grace: Duration,
}

impl Options {
    /// Default logs, no endpoints, 30 seconds of grace.
    pub fn new(role: impl Into<String>, version: impl Into<String>, commit: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            instance: None,
            version: version.into(),
            commit: commit.into(),
            log: LogOptions::default(),
            listen: None,
            listen_setting: "the listen address".to_owned(),
            scrape: None,
            grace: Duration::from_secs(30),
        }
    }
}

/// Telemetry of a running role. Dropping it stops the endpoints without waiting for open requests.
#[derive(Debug)]
pub struct Telemetry {
    health: Health,
    metrics: Metrics,
    level: LogLevel,
    status: StatusPage,
    shutdown: Shutdown,
    address: Option<SocketAddr>,
    /// Dropping it signals the thread that the role has ended.
    running: oneshot::Sender<()>,
    /// Resolves when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Telemetry {
    /// Sets up the logs, handles SIGTERM and SIGINT, and serves the endpoints on its own thread. Needs no
    /// async runtime. Once per process.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let level = init_logs(&options.log)?;
        let listener = match options.listen {
            Some(address) => Some(listen(address, &options.listen_setting)?),
            None => None,
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose().map_err(Error::Thread)?;
        let health = Health::default();
        let metrics = Metrics::new(&options.role, &options.version, &options.commit);
        let status = StatusPage::default();
        let (trigger, shutdown) = Shutdown::by_hand();
        let (running, role_ended) = oneshot::channel();
        let (thread_ends, ended) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let keeper = TelemetryThread {
            // Installed before the thread runs, so that no signal after start meets the default handler.
            signals: Signals::take(&runtime).map_err(Error::Thread)?,
            listener,
            scrape: options.scrape.clone(),
            grace: options.grace,
            trigger,
            state: EndpointState {
                health: health.clone(),
                metrics: metrics.clone(),
                level: level.clone(),
                status: status.clone(),
            },
        };
        tracing::info!(
            role = options.role,
            instance = options.instance,
            version = options.version,
            commit = options.commit,
            address = address.map(tracing::field::display),
            "role started"
        );
        thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || {
                runtime.block_on(keeper.run(role_ended));
                // Connections that did not drain in time end here, before `stop` returns.
                runtime.shutdown_background();
                let _ = thread_ends.send(());
            })
            .map_err(Error::Thread)?;
        Ok(Self { health, metrics, level, status, shutdown, address, running, ended })
    }

    /// Conditions and heartbeats of the role.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Access to register the role's metrics.
    pub fn registry<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        self.metrics.with(register)
    }

    /// Handle of the log filter.
    #[must_use]
    pub fn log_level(&self) -> &LogLevel {
        &self.level
    }

    /// What the role reports at `/status`.
    #[must_use]
    pub fn status_page(&self) -> &StatusPage {
        &self.status
    }

    /// Requested by SIGTERM or SIGINT.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Actual listen address, also if port 0 was configured.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Completes open requests, accepts no new ones, and returns. Call it last: signals are not handled afterwards.
    pub async fn stop(self) {
        self.health.set_stopping();
        drop(self.running);
        // An error means that the thread panicked: nothing to wait for.
        let _ = self.ended.await;
    }
}

fn listen(address: SocketAddr, setting: &str) -> Result<TcpListener, Error> {
    let try_it = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    try_it().map_err(|source: io::Error| {
        let setting = setting.to_owned();
        if source.kind() == io::ErrorKind::AddrInUse {
            Error::AddressInUse { address, setting }
        } else {
            Error::Listen { address, setting, source }
        }
    })
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn take(runtime: &Runtime) -> io::Result<Self> {
        let _inside = runtime.enter();
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Name and number of the next signal.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}

/// State of the telemetry thread.
struct TelemetryThread {
    signals: Signals,
    listener: Option<TcpListener>,
    scrape: Option<ScrapeOptions>,
    grace: Duration,
    trigger: ShutdownTrigger,
    state: EndpointState,
}

impl TelemetryThread {
    async fn run(self, role_ended: oneshot::Receiver<()>) {
        let health = self.state.health.clone();
        let (stop_serving, stopped_serving) = oneshot::channel::<()>();
        let (metrics, status) = (self.state.metrics.clone(), self.state.status.clone());
        let scraping = self.scrape.map(|options| tokio::spawn(scrape::run(options, metrics, status)));
        let serving = self.listener.map(|listener| tokio::spawn(serve(listener, self.state, stopped_serving)));
        let watching = tokio::spawn(watch_signals(self.signals, self.trigger, health.clone(), self.grace));

        // A message and a dropped sender mean the same.
        let _ = role_ended.await;
        health.set_stopping();
        tracing::info!("role ended; finishing open requests");
        drop(stop_serving);
        if let Some(scraping) = scraping {
            scraping.abort();
        }
        if let Some(serving) = serving
            && timeout(self.grace.min(LONGEST_DRAIN), serving).await.is_err()
        {
            tracing::warn!("HTTP requests did not end in time; closing their connections");
        }
        watching.abort();
        tracing::info!("role stopped");
    }
}

async fn serve(listener: TcpListener, state: EndpointState, stop: oneshot::Receiver<()>) {
    let service = server::router(state).into_make_service_with_connect_info::<SocketAddr>();
    let served = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => {
            axum::serve(listener, service)
                .with_graceful_shutdown(async {
                    let _ = stop.await;
                })
                .await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!(%error, "HTTP server of metrics and health checks failed; they stay unavailable until a restart");
    }
}

/// The first signal requests the shutdown; a second one, or the end of the grace period, exits the process.
async fn watch_signals(mut signals: Signals, trigger: ShutdownTrigger, health: Health, grace: Duration) {
    let (name, _) = signals.next().await;
    // Not ready first: clients must stop sending work before the role ends.
    health.set_stopping();
    tracing::info!(signal = name, grace_seconds = grace.as_secs_f64(), "role stopping");
    trigger.request();
    if let Ok((name, number)) = timeout(grace, signals.next()).await {
        tracing::warn!(signal = name, "second signal; role exits at once");
        process::exit(128 + number);
    }
    tracing::error!("shutdown did not complete within the grace period; exiting");
    process::exit(1);
}
