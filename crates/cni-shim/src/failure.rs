//! What can go wrong, as CNI tells it: a code, a message, details.

use crate::json;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The environment is not that of a CNI plugin.
    Environment(String),
    /// The configuration cannot be read.
    Input(String),
    /// The agent is not there.
    Absent {
        /// The command.
        command: String,
        /// What the system said.
        details: String,
    },
    /// The agent took too long.
    Slow {
        /// The seconds that were waited.
        seconds: u64,
    },
    /// What answered is no agent of ours, or one of another version.
    Foreign(String),
    /// The agent's own error, as it is.
    Told(String),
}

/// The codes of the specification.
const INVALID_ENVIRONMENT: u32 = 4;
const IO_FAILURE: u32 = 5;
const TRY_AGAIN: u32 = 11;
const NOT_AVAILABLE: u32 = 50;
/// Ours: behind those that the specification has.
const FOREIGN: u32 = 100;

impl Failure {
    /// As the runtime reads it.
    pub fn to_json(&self, version: &str) -> String {
        let (code, message, details) = match self {
            Self::Environment(what) => (INVALID_ENVIRONMENT, "not called as a CNI plugin".to_owned(), what.clone()),
            Self::Input(what) => (IO_FAILURE, "the configuration cannot be read from stdin".to_owned(), what.clone()),
            Self::Absent { command, details } => {
                let code = if command == "STATUS" { NOT_AVAILABLE } else { TRY_AGAIN };
                let message = "the node agent of ovnkube does not answer: look at the ovnkube-node pod of this node";
                (code, message.to_owned(), details.clone())
            }
            Self::Slow { seconds } => {
                let message = format!("the node agent of ovnkube did not answer within {seconds} s");
                (TRY_AGAIN, message, "look at the log of the ovnkube-node pod of this node".to_owned())
            }
            Self::Foreign(what) => {
                let message = "what answers on the socket of the node agent is none of this version";
                (FOREIGN, message.to_owned(), what.clone())
            }
            Self::Told(text) => return text.clone(),
        };
        let version = if version.is_empty() { "1.0.0" } else { version };
        let (version, message, details) = (json::text(version), json::text(&message), json::text(&details));
        format!("{{\"cniVersion\":{version},\"code\":{code},\"msg\":{message},\"details\":{details}}}")
    }
}
