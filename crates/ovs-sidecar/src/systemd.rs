//! systemd's D-Bus API: states of units, signals when they change, and the few methods that are used.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use hostovs::units::{Action, UnitState};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MatchRule, MessageStream, OwnedObjectPath, OwnedVariant};

const DESTINATION: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// Of connecting, and of each call; a start is a job, and its call returns at once.
const LIMIT: Duration = Duration::from_secs(10);

/// Properties of an interface, by name.
type Values = HashMap<String, OwnedVariant>;

/// Why systemd could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SystemdError {
    #[error(
        "cannot connect to the system bus ({0}); check that D-Bus runs on the host, and that its socket is mounted"
    )]
    Connect(zbus::Error),
    #[error("no connection to the system bus within {LIMIT:?}; check that D-Bus runs on the host")]
    Timeout,
    #[error("systemd does not answer {method} ({error})")]
    Call { method: &'static str, error: zbus::Error },
    #[error("the system bus closed the connection")]
    Closed,
}

/// A connection to systemd.
pub(crate) struct Systemd {
    connection: Connection,
    /// A unit may have changed; ends when the connection does.
    changes: mpsc::Receiver<()>,
    /// Object paths of the units that were asked for.
    units: Arc<Mutex<BTreeSet<String>>>,
    reader: AbortHandle,
}

impl Drop for Systemd {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Systemd {
    /// Connects, and subscribes to changes.
    pub(crate) async fn connect(address: Option<&str>) -> Result<Self, SystemdError> {
        let connect = async {
            let builder = address.map_or_else(Builder::system, Builder::address);
            let connection = builder.method_timeout(LIMIT).build().await?;
            let rule = MatchRule::builder().msg_type(Type::Signal).path_namespace(MANAGER_PATH).build()?;
            let signals = MessageStream::for_match_rule(rule, &connection, None).await?;
            Ok((connection, signals))
        };
        let connected = tokio::time::timeout(LIMIT, connect).await.map_err(|_| SystemdError::Timeout)?;
        let (connection, signals) = connected.map_err(SystemdError::Connect)?;
        let (sender, changes) = mpsc::channel(1);
        let units = Arc::default();
        let reader = tokio::spawn(forward(signals, Arc::clone(&units), sender)).abort_handle();
        let systemd = Self { connection, changes, units, reader };
        systemd.manager("Subscribe", &()).await?;
        Ok(systemd)
    }

    /// Waits until a unit that was asked for may have changed.
    pub(crate) async fn changed(&mut self) -> Result<(), SystemdError> {
        self.changes.recv().await.ok_or(SystemdError::Closed)
    }

    /// The state of a unit; a unit that the host does not have is one that is not found.
    pub(crate) async fn unit(&self, name: &str) -> Result<UnitState, SystemdError> {
        let reply = self.manager("LoadUnit", &(name,)).await?;
        let path: OwnedObjectPath = body(&reply, "LoadUnit")?;
        self.units.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_string());
        let unit = self.properties(&path, UNIT).await?;
        let service =
            if text(&unit, "LoadState") == "loaded" { self.properties(&path, SERVICE).await? } else { Values::new() };
        let process = service.get("MainPID").and_then(|value| value.downcast_ref::<u32>().ok());
        Ok(UnitState::new(
            &text(&unit, "LoadState"),
            &text(&unit, "ActiveState"),
            &text(&unit, "SubState"),
            &text(&unit, "UnitFileState"),
            &text(&service, "Result"),
            process.unwrap_or_default(),
        ))
    }

    /// Whether the host is shutting down.
    pub(crate) async fn is_stopping(&self) -> Result<bool, SystemdError> {
        let reply = self.call(MANAGER_PATH, PROPERTIES, "Get", &(MANAGER, "SystemState")).await?;
        let state: OwnedVariant = body(&reply, "SystemState")?;
        Ok(state.downcast_ref::<&str>().is_ok_and(|state| state == "stopping"))
    }

    /// Asks for an action. A job that conflicts with another one is refused: this program gives way.
    pub(crate) async fn act(&self, action: &Action) -> Result<(), SystemdError> {
        match action {
            Action::Enable(unit) => {
                let (runtime, force) = (false, false);
                self.manager("EnableUnitFiles", &(vec![unit.as_str()], runtime, force)).await?;
                self.manager("Reload", &()).await?;
            }
            Action::ResetFailed(unit) => {
                self.manager("ResetFailedUnit", &(unit.as_str(),)).await?;
            }
            Action::Start(unit) => {
                self.manager("StartUnit", &(unit.as_str(), "fail")).await?;
            }
        }
        Ok(())
    }

    async fn properties(&self, path: &OwnedObjectPath, interface: &str) -> Result<Values, SystemdError> {
        let reply = self.call(path.as_str(), PROPERTIES, "GetAll", &(interface,)).await?;
        body(&reply, "GetAll")
    }

    async fn manager<B>(&self, method: &'static str, body: &B) -> Result<zbus::Message, SystemdError>
    where
        B: zbus::wire::export::serde::Serialize + zbus::DynamicType,
    {
        self.call(MANAGER_PATH, MANAGER, method, body).await
    }

    async fn call<B>(
        &self,
        path: &str,
        interface: &str,
        method: &'static str,
        body: &B,
    ) -> Result<zbus::Message, SystemdError>
    where
        B: zbus::wire::export::serde::Serialize + zbus::DynamicType,
    {
        let reply = self.connection.call_method(Some(DESTINATION), path, Some(interface), method, body).await;
        reply.map_err(|error| SystemdError::Call { method, error })
    }
}

/// Reads signals in a task of its own: unread ones would hold up the replies to calls.
async fn forward(mut signals: MessageStream, units: Arc<Mutex<BTreeSet<String>>>, changes: mpsc::Sender<()>) {
    while let Some(Ok(message)) = signals.next().await {
        let header = message.header();
        let is_ours = |path: &str| units.lock().unwrap_or_else(PoisonError::into_inner).contains(path);
        let concerns = header.path().is_some_and(|path| is_ours(path.as_str()));
        // systemd has read unit files again, or an administrator has masked or disabled one.
        let is_general = header.member().is_some_and(|it| matches!(it.as_str(), "UnitFilesChanged" | "Reloading"));
        if (concerns || is_general) && matches!(changes.try_send(()), Err(mpsc::error::TrySendError::Closed(()))) {
            return;
        }
    }
}

fn body<T>(reply: &zbus::Message, method: &'static str) -> Result<T, SystemdError>
where
    T: for<'a> zbus::wire::export::serde::Deserialize<'a> + zbus::Type,
{
    reply.body().deserialize().map_err(|error| SystemdError::Call { method, error })
}

fn text(values: &Values, name: &str) -> String {
    let text = values.get(name).and_then(|value| value.downcast_ref::<&str>().ok());
    text.unwrap_or_default().to_owned()
}
