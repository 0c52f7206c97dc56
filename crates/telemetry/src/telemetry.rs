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

use crate::server::{self, Shown};
use crate::{Error, Health, LogLevel, LogOptions, Metrics, Shutdown, ShutdownTrigger, init_logs};

/// The longest that open requests are waited for once the role has ended: a peer that connected and says
/// nothing must not hold the process for the whole grace period.
const LONGEST_DRAIN: Duration = Duration::from_secs(5);

/// What a role says about itself when it starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// The role's name, as it appears in `ovnkube_build_info`.
    pub role: String,
    /// The version that the process was built from.
    pub version: String,
    /// The commit that the process was built from.
    pub commit: String,
    /// What to log, and how.
    pub log: LogOptions,
    /// Where the endpoints listen; none listen when absent. Port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// What changes `listen`, as the user writes it: an error names it as the remedy.
    pub listen_setting: String,
    /// How long the role may take to end after a signal, before the process exits without it.
    pub grace: Duration,
}

impl Options {
    /// Options with the usual logs, no endpoints and 30 seconds of grace.
    pub fn new(role: impl Into<String>, version: impl Into<String>, commit: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            version: version.into(),
            commit: commit.into(),
            log: LogOptions::default(),
            listen: None,
            listen_setting: "the listen address".to_owned(),
            grace: Duration::from_secs(30),
        }
    }
}

/// A role's telemetry while it runs. Dropping it stops the endpoints without waiting for open requests.
#[derive(Debug)]
pub struct Telemetry {
    health: Health,
    metrics: Metrics,
    level: LogLevel,
    shutdown: Shutdown,
    address: Option<SocketAddr>,
    /// Dropped, it tells the thread that the role has ended.
    running: oneshot::Sender<()>,
    /// Resolves when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Telemetry {
    /// Sets up the logs, takes the signals SIGTERM and SIGINT, and serves the endpoints on a thread of its
    /// own. Needs no async runtime. Once a process.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let level = init_logs(&options.log)?;
        let listener = match options.listen {
            Some(address) => Some(listen(address, &options.listen_setting)?),
            None => None,
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose().map_err(Error::Thread)?;
        let health = Health::default();
        let metrics = Metrics::new(&options.role, &options.version, &options.commit);
        let (trigger, shutdown) = Shutdown::by_hand();
        let (running, role_ended) = oneshot::channel();
        let (thread_ends, ended) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let keeper = Keeper {
            // Taken before the thread runs, so that no signal after start finds the default handler.
            signals: Signals::take(&runtime).map_err(Error::Thread)?,
            listener,
            grace: options.grace,
            trigger,
            shown: Shown { health: health.clone(), metrics: metrics.clone(), level: level.clone() },
        };
        tracing::info!(
            role = options.role,
            version = options.version,
            commit = options.commit,
            address = address.map(tracing::field::display),
            "started"
        );
        thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || {
                runtime.block_on(keeper.run(role_ended));
                // Connections that did not drain in time end here, before the role is told.
                runtime.shutdown_background();
                let _ = thread_ends.send(());
            })
            .map_err(Error::Thread)?;
        Ok(Self { health, metrics, level, shutdown, address, running, ended })
    }

    /// Where the role declares what makes it ready and alive.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Lets the role register its metrics.
    pub fn registry<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        self.metrics.with(register)
    }

    /// The level of the logs, to show or to change.
    #[must_use]
    pub fn log_level(&self) -> &LogLevel {
        &self.level
    }

    /// What to wait for: a signal to end.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Where the endpoints really listen.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The role has ended: answers the requests that are open, takes no new ones, and returns. To be called
    /// last, for nobody listens to signals afterwards.
    pub async fn stop(self) {
        self.health.set_stopping();
        drop(self.running);
        // An error means that the thread died: then, too, nothing is left to wait for.
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

    /// The next signal to end: its name and number.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}

/// What runs on the telemetry thread.
struct Keeper {
    signals: Signals,
    listener: Option<TcpListener>,
    grace: Duration,
    trigger: ShutdownTrigger,
    shown: Shown,
}

impl Keeper {
    async fn run(self, role_ended: oneshot::Receiver<()>) {
        let health = self.shown.health.clone();
        let (stop_serving, stopped_serving) = oneshot::channel::<()>();
        let serving = self.listener.map(|listener| tokio::spawn(serve(listener, self.shown, stopped_serving)));
        let watching = tokio::spawn(watch_signals(self.signals, self.trigger, health.clone(), self.grace));

        // Both ways of saying it, a message and a dropped sender, mean the same.
        let _ = role_ended.await;
        health.set_stopping();
        tracing::info!("draining");
        drop(stop_serving);
        if let Some(serving) = serving
            && timeout(self.grace.min(LONGEST_DRAIN), serving).await.is_err()
        {
            tracing::warn!("requests were still open at the end");
        }
        watching.abort();
        tracing::info!("stopped");
    }
}

async fn serve(listener: TcpListener, shown: Shown, stop: oneshot::Receiver<()>) {
    let service = server::router(shown).into_make_service_with_connect_info::<SocketAddr>();
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
        tracing::error!(%error, "the endpoints ended");
    }
}

/// The first signal asks the role to end; a second one, or the end of the grace period, ends the process.
async fn watch_signals(mut signals: Signals, trigger: ShutdownTrigger, health: Health, grace: Duration) {
    let (name, _) = signals.next().await;
    // Not ready first: whoever sends work here shall stop before the role does.
    health.set_stopping();
    tracing::info!(signal = name, grace_seconds = grace.as_secs_f64(), "stopping");
    trigger.request();
    if let Ok((name, number)) = timeout(grace, signals.next()).await {
        tracing::warn!(signal = name, "second signal, ending at once");
        process::exit(128 + number);
    }
    tracing::error!("the role did not end within its grace period, ending without it");
    process::exit(1);
}
