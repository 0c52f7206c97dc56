//! CNI errors: a code for the runtime, a message and details for people.

use std::fmt;

use serde_json::json;

use crate::version::Version;

/// Error codes of the CNI specification, and from 100 on ovnkube's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The requested CNI version is not supported.
    IncompatibleVersion,
    /// The sandbox, or its network namespace, does not exist.
    UnknownContainer,
    /// A CNI variable is missing or invalid.
    InvalidEnvironment,
    /// The kernel or a file could not be read or written.
    Io,
    /// The request or the configuration is not valid JSON.
    NotDecoded,
    /// A field of the network configuration is missing or invalid.
    InvalidConfiguration,
    /// A temporary failure: the runtime should retry.
    TryAgainLater,
    /// STATUS: ADD would fail now.
    NotAvailable,
    /// STATUS: ADD would fail now, and running pods may have no network.
    NotAvailableAndBroken,
    /// The pod is gone or was recreated: this sandbox gets no network.
    PodReplaced,
    /// CHECK found a difference.
    CheckFailed,
    /// A bug, or an unexpected error.
    Internal,
}

impl Code {
    /// Value in the error object.
    pub fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::UnknownContainer => 3,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::NotDecoded => 6,
            Self::InvalidConfiguration => 7,
            Self::TryAgainLater => 11,
            Self::NotAvailable => 50,
            Self::NotAvailableAndBroken => 51,
            Self::PodReplaced => 101,
            Self::CheckFailed => 102,
            Self::Internal => 999,
        }
    }
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Decides whether the runtime retries.
    pub code: Code,
    /// What failed, and for which object.
    pub message: String,
    /// The cause, or the remedy; may be empty.
    pub details: String,
}

impl Failure {
    /// Without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// Adds the cause, or the remedy.
    #[must_use]
    pub fn with_details(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }

    /// The JSON that the runtime reads.
    pub fn to_json(&self, version: Version) -> String {
        let Self { code, message, details } = self;
        json!({"cniVersion": version.name(), "code": code.number(), "msg": message, "details": details}).to_string()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.details.is_empty() {
            write!(f, " ({})", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
