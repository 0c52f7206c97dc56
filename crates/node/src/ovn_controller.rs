//! Whether ovn-controller runs and has its database: asked by its control socket, without starting a process.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::readiness::{Part, State};

/// It answers at once, or hangs.
const PATIENCE: Duration = Duration::from_secs(3);
/// How soon it is asked again: soon while something waits for it, seldom while all is well.
const SOON: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_secs(15);
/// An answer of one word is not longer.
const LONGEST: usize = 4096;

/// Keeps a part of the readiness as ovn-controller is. Never ends.
pub(crate) async fn follow(part: Part, southbound: String) {
    let mut pause = SOON;
    loop {
        let state = look(&folder(), &southbound).await;
        pause = if state.is_ok() { SELDOM } else { (pause * 2).clamp(SOON, Duration::from_secs(2)) };
        part.say(&state);
        sleep(pause).await;
    }
}

/// Where OVN's programs have their sockets.
fn folder() -> PathBuf {
    std::env::var_os("OVN_RUNDIR").map_or_else(|| "/var/run/ovn".into(), Into::into)
}

async fn look(folder: &std::path::Path, southbound: &str) -> State {
    let file = folder.join("ovn-controller.pid");
    let process = tokio::fs::read_to_string(&file).await.map_err(|error| {
        format!("ovn-controller does not run: {} cannot be read ({error}); start it", file.display())
    })?;
    let socket = folder.join(format!("ovn-controller.{}.ctl", process.trim()));
    let answer = timeout(PATIENCE, ask(&socket, "connection-status")).await;
    let answer = answer.map_err(|_| "ovn-controller does not answer; look at its log".to_owned())?;
    let answer = answer.map_err(|error| format!("ovn-controller cannot be asked by {}: {error}", socket.display()))?;
    match answer.trim() {
        "connected" => Ok(()),
        other => Err(format!(
            "ovn-controller says {other:?} of its connection to the southbound database {southbound}; is that its address \
             ([ovnsouth] address, OvnSouth of ovn-config), does it answer? Look at ovn-controller's log"
        )),
    }
}

/// One question by the control protocol: JSON-RPC over a unix socket.
async fn ask(socket: &std::path::Path, command: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let question = serde_json::json!({"id": 0, "method": command, "params": []}).to_string();
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > LONGEST {
            return Err(std::io::Error::other("it gave no answer"));
        }
        // The answer has no end but its own.
        if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(&answer) {
            let text = |key: &str| object.get(key).and_then(serde_json::Value::as_str);
            let text = text("result").or(text("error"));
            return text.map(str::to_owned).ok_or_else(|| std::io::Error::other("its answer is no text"));
        }
    }
}
