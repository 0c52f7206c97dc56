//! Control sockets of Open vSwitch's and OVN's daemons, as `ovs-appctl` uses them: JSON-RPC over a unix socket.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Longest accepted reply, in bytes; the commands that are used have short ones.
const LONGEST: usize = 64 << 10;

/// Runs one command of a daemon and returns its output. No time limit: a daemon whose main loop hangs never replies.
pub async fn control_command(socket: &Path, command: &str, arguments: &[&str]) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = serde_json::json!({"id": 0, "method": command, "params": arguments}).to_string();
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > LONGEST {
            return Err(io::Error::other("no reply"));
        }
        // A reply has no delimiter: it ends where its JSON ends.
        if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(&answer) {
            let text = |key: &str| object.get(key).and_then(serde_json::Value::as_str);
            return match (text("result"), text("error")) {
                (Some(result), _) => Ok(result.to_owned()),
                (None, Some(error)) => Err(io::Error::other(error.trim().to_owned())),
                (None, None) => Err(io::Error::other("the reply is not text")),
            };
        }
    }
}
