//! Errors of the plugin itself, as the CNI specification encodes them: code, message, details.

use crate::json;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A CNI variable is missing or invalid.
    Environment(String),
    /// The configuration on stdin cannot be read, or is too large.
    Input(String),
    /// No connection to the agent's socket, or it broke.
    Unreachable {
        /// The CNI command; STATUS has an error code of its own.
        command: String,
        /// The socket and the error of the system.
        details: String,
    },
    /// The agent did not respond in time.
    Timeout {
        /// How long the plugin waited.
        seconds: u64,
    },
    /// The server behind the socket is not the node agent, or has another protocol version.
    UnexpectedResponse(String),
    /// The agent's own error: JSON that is printed unchanged.
    Agent(String),
}

// Codes of the specification.
const INVALID_ENVIRONMENT: u32 = 4;
const IO_FAILURE: u32 = 5;
const TRY_AGAIN_LATER: u32 = 11;
const NOT_AVAILABLE: u32 = 50;
/// From 100 on, codes are the plugin's own.
const UNEXPECTED_RESPONSE: u32 = 100;

impl Failure {
    /// The error object that the runtime reads, in a CNI version; 1.0.0 if the configuration named none.
    pub fn to_json(&self, version: &str) -> String {
        let (code, message, details) = match self {
            Self::Environment(what) => (INVALID_ENVIRONMENT, "not called as a CNI plugin".to_owned(), what.clone()),
            Self::Input(what) => {
                (IO_FAILURE, "cannot read the network configuration from stdin".to_owned(), what.clone())
            }
            Self::Unreachable { command, details } => {
                let code = if command == "STATUS" { NOT_AVAILABLE } else { TRY_AGAIN_LATER };
                let message = "cannot reach the ovnkube node agent; check the ovnkube-node pod of this node";
                (code, message.to_owned(), details.clone())
            }
            Self::Timeout { seconds } => {
                let message = format!("the ovnkube node agent did not respond within {seconds} s");
                (TRY_AGAIN_LATER, message, "see the log of the ovnkube-node pod of this node".to_owned())
            }
            Self::UnexpectedResponse(what) => {
                (UNEXPECTED_RESPONSE, "unexpected response from the node agent's socket".to_owned(), what.clone())
            }
            Self::Agent(text) => return text.clone(),
        };
        let version = if version.is_empty() { "1.0.0" } else { version };
        let (version, message, details) = (json::string(version), json::string(&message), json::string(&details));
        format!("{{\"cniVersion\":{version},\"code\":{code},\"msg\":{message},\"details\":{details}}}")
    }
}
