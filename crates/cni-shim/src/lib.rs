//! The CNI plugin, which the container runtime starts for each pod. It forwards the request to the node agent.
//!
//! ```text
//!  runtime ──environment, stdin──▶ request ──POST──▶ node agent's socket ──response──▶ stdout, exit status
//! ```
//!
//! It runs as root on the host and takes part in every pod's start. So it has no credentials, opens no path that it is
//! given, needs no library and no async runtime, and reports its own errors as CNI specifies.

mod agent;
mod base64;
mod failure;
mod json;
mod request;

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

pub use failure::Failure;

/// Path of the node agent's socket.
pub const SOCKET: &str = "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock";
/// Version of the protocol on the socket; each side rejects another one.
pub const PROTOCOL: &str = "1";
/// HTTP header that carries [`PROTOCOL`], in both directions.
pub const PROTOCOL_HEADER: &str = "ovnkube-cni";
/// Largest body on the socket in bytes, of a request and of a response. The plugin and the agent enforce the same limit. The
/// largest request is GC, which names all attachments of a node in some hundred bytes each.
pub const MAX_MESSAGE: usize = 1 << 20;
/// CNI versions that the agent supports, oldest first.
pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// How long the plugin waits for the agent, whose own time limits are shorter; the runtime's is longer.
pub const TIMEOUT: Duration = Duration::from_secs(150);

/// What the plugin prints, and its exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// For stdout: a result, an error object, or nothing (DEL, CHECK).
    pub output: String,
    /// False if `output` is an error object.
    pub success: bool,
}

/// Forwards one request to the agent behind the socket.
pub fn run(
    environment: impl Iterator<Item = (OsString, OsString)>,
    stdin: impl Read,
    socket: &Path,
    timeout: Duration,
) -> Outcome {
    let mut version = String::new();
    match forward(environment, stdin, socket, timeout, &mut version) {
        Ok(output) => Outcome { output, success: true },
        Err(failure) => Outcome { output: failure.to_json(&version), success: false },
    }
}

fn forward(
    environment: impl Iterator<Item = (OsString, OsString)>,
    stdin: impl Read,
    socket: &Path,
    timeout: Duration,
    version: &mut String,
) -> Result<String, Failure> {
    let environment = request::environment(environment)?;
    let command = request::command(&environment)?;
    if command == "VERSION" {
        return Ok(versions());
    }
    let mut config = Vec::new();
    let limit = MAX_MESSAGE as u64 + 1;
    stdin.take(limit).read_to_end(&mut config).map_err(|error| Failure::Input(error.to_string()))?;
    version.push_str(json::cni_version(&config).unwrap_or_default());
    let body = request::body(&environment, &config);
    if body.len() > MAX_MESSAGE {
        return Err(Failure::Input(format!(
            "the configuration is too large: with it the request is longer than {MAX_MESSAGE} bytes"
        )));
    }
    agent::post(socket, &body, timeout, command)
}

/// The response to VERSION, which needs no agent: a runtime may ask before one runs.
fn versions() -> String {
    let newest = VERSIONS.last().copied().unwrap_or_default();
    let all: Vec<String> = VERSIONS.iter().map(|version| json::string(version)).collect();
    format!("{{\"cniVersion\":{},\"supportedVersions\":[{}]}}", json::string(newest), all.join(","))
}
