//! The control sockets of OVN's and Open vSwitch's daemons: JSON-RPC over a unix socket, without starting a process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::client::Remote;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// A daemon answers at once, or hangs: its main loop serves the socket.
const LIMIT: Duration = Duration::from_secs(3);
/// Answers that are asked for here are not longer.
const LONGEST: usize = 4096;

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
        let answer = timeout(LIMIT, ask(&socket, command, arguments)).await;
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

async fn ask(socket: &Path, command: &str, arguments: &[&str]) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let question = serde_json::json!({"id": 0, "method": command, "params": arguments}).to_string();
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > LONGEST {
            return Err(io::Error::other("no answer"));
        }
        // The answer has no end but its own.
        if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(&answer) {
            let text = |key: &str| object.get(key).and_then(serde_json::Value::as_str);
            return match (text("result"), text("error")) {
                (Some(result), _) => Ok(result.to_owned()),
                (None, Some(error)) => Err(io::Error::other(error.trim().to_owned())),
                (None, None) => Err(io::Error::other("the answer is not text")),
            };
        }
    }
}
