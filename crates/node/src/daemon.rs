//! The control sockets of OVN's and Open vSwitch's daemons: JSON-RPC over a unix socket, without starting a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::{Remote, control_command};
use tokio::time::timeout;

/// A daemon answers at once, or hangs: its main loop serves the socket.
const LIMIT: Duration = Duration::from_secs(3);

/// A daemon with a pidfile and a control socket.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    name: &'static str,
    folder: PathBuf,
}

impl Daemon {
    /// This host's ovn-controller.
    pub(crate) fn ovn_controller() -> Self {
        let folder = std::env::var_os("OVN_RUNDIR").map_or_else(|| "/var/run/ovn".into(), Into::into);
        Self { name: "ovn-controller", folder }
    }

    /// The ovs-vswitchd of a database.
    pub(crate) fn vswitchd(database: &Remote) -> Self {
        Self { name: "ovs-vswitchd", folder: switch_folder(database) }
    }

    /// The process that its pidfile names.
    pub(crate) async fn process(&self) -> Result<u32, String> {
        let file = self.folder.join(format!("{}.pid", self.name));
        let text = tokio::fs::read_to_string(&file).await.map_err(|error| {
            format!("{} is not running: cannot read {} ({error}); start it", self.name, file.display())
        })?;
        text.trim().parse().map_err(|_| format!("{} holds no process id: restart {}", file.display(), self.name))
    }

    /// Runs a command, as `ovs-appctl` does.
    pub(crate) async fn ask(&self, command: &str, arguments: &[&str]) -> Result<String, String> {
        let process = self.process().await?;
        let socket = self.folder.join(format!("{}.{process}.ctl", self.name));
        let answer = timeout(LIMIT, control_command(&socket, command, arguments)).await;
        let answer = answer.map_err(|_| {
            let name = self.name;
            format!("{name} (process {process}) is hung: no answer on its control socket within {LIMIT:?}; restart it")
        })?;
        answer.map_err(|error| format!("cannot reach {} by {}: {error}; is it running?", self.name, socket.display()))
    }
}

/// Where ovs-vswitchd has its sockets: beside those of its database.
pub(crate) fn switch_folder(database: &Remote) -> PathBuf {
    match database {
        Remote::Unix(path) => path.parent().map_or_else(|| "/var/run/openvswitch".into(), Path::to_path_buf),
        Remote::Tcp(_) | Remote::Ssl(_) => PathBuf::from("/var/run/openvswitch"),
    }
}
