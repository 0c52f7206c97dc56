//! Errors, as a runtime reads them: a code that machines act on, a message and details for people.

use std::fmt;

use serde_json::json;

use crate::version::Version;

/// The codes of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The version is not spoken here.
    IncompatibleVersion,
    /// A container is not known.
    UnknownContainer,
    /// A variable of the environment is missing or wrong.
    InvalidEnvironment,
    /// Something could not be read or written.
    Io,
    /// The request is no JSON of the right form.
    NotDecoded,
    /// The configuration does not make sense.
    InvalidConfiguration,
    /// It may work later.
    TryAgainLater,
    /// The plugin cannot do anything at present.
    NotAvailable,
    /// The plugin cannot do anything at present, and what it made does not work either.
    NotAvailableAndBroken,
    /// The pod is gone, or is another one by now: this sandbox gets no network.
    PodReplaced,
    /// What was made is not as it should be.
    CheckFailed,
    /// Anything else.
    Internal,
}

impl Code {
    /// As it is sent.
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
            // From 100 on they are ours.
            Self::PodReplaced => 101,
            Self::CheckFailed => 102,
            Self::Internal => 999,
        }
    }
}

/// Why a request was not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For machines.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// What to do about it, or what the system said.
    pub details: String,
}

impl Failure {
    /// With nothing to add.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// Adds what to do about it, or what the system said.
    #[must_use]
    pub fn with_details(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }

    /// As the runtime reads it.
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
