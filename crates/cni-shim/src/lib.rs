//! The CNI plugin: what the container runtime starts for each pod. It knows nothing itself.
//!
//! ```text
//!  runtime ──environment, stdin──▶ question ──POST──▶ node agent's socket ──answer──▶ stdout, exit status
//! ```
//!
//! It runs as root on the host and takes part in every pod's start: so it has no credential, opens no path that it was
//! given, needs no library and no runtime, and says in CNI's own words what is wrong.

mod ask;
mod base64;
mod failure;
mod json;
mod question;

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

pub use ask::{PROTOCOL, PROTOCOL_HEADER};
pub use failure::Failure;

/// Where the node agent listens.
pub const SOCKET: &str = "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock";
/// The versions of CNI that the agent speaks, oldest first.
pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// How long the agent may take. It gives up long before; the runtime's own patience is longer.
pub const PATIENCE: Duration = Duration::from_secs(150);
/// The longest configuration that is read.
pub const LONGEST: u64 = 4 << 20;

/// What is printed, and whether it is good.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// For stdout; may be empty.
    pub text: String,
    /// Whether it is a result, not an error.
    pub good: bool,
}

/// Does what the runtime asks for, by the agent behind the socket.
pub fn run(
    environment: impl Iterator<Item = (OsString, OsString)>,
    input: impl Read,
    socket: &Path,
    patience: Duration,
) -> Outcome {
    let mut version = String::new();
    match answer(environment, input, socket, patience, &mut version) {
        Ok(text) => Outcome { text, good: true },
        Err(Failure::Told(text)) => Outcome { text, good: false },
        Err(failure) => Outcome { text: failure.to_json(&version), good: false },
    }
}

fn answer(
    environment: impl Iterator<Item = (OsString, OsString)>,
    input: impl Read,
    socket: &Path,
    patience: Duration,
    version: &mut String,
) -> Result<String, Failure> {
    let environment = question::environment(environment)?;
    let command = question::command(&environment)?;
    if command == "VERSION" {
        return Ok(versions());
    }
    let mut config = Vec::new();
    input.take(LONGEST + 1).read_to_end(&mut config).map_err(|error| Failure::Input(error.to_string()))?;
    if config.len() as u64 > LONGEST {
        return Err(Failure::Input(format!("the configuration on stdin is longer than {LONGEST} bytes")));
    }
    version.push_str(json::cni_version(&config).unwrap_or_default());
    let body = question::body(&environment, &config);
    ask::ask(socket, &body, patience, command)
}

/// Which versions are spoken: known without the agent, so that a runtime can ask before it runs.
fn versions() -> String {
    let newest = VERSIONS.last().copied().unwrap_or_default();
    let all: Vec<String> = VERSIONS.iter().map(|version| json::text(version)).collect();
    format!("{{\"cniVersion\":{},\"supportedVersions\":[{}]}}", json::text(newest), all.join(","))
}
