//! Why an operation or a commit failed, in the server's words.

use serde_json::{Value, json};

/// An error as the server names it. The names are the server's own; the details are for people and may differ.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {details}")]
pub(crate) struct Fault {
    name: &'static str,
    details: String,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $function:ident = $name:literal;)*) => {
        $($(#[$doc])* pub(crate) fn $function(details: impl Into<String>) -> Self {
            Self { name: $name, details: details.into() }
        })*
    };
}

impl Fault {
    faults! {
        /// Values of the wrong type, too many or too few of them, and tables that are not there.
        syntax = "syntax error";
        unknown_column = "unknown column";
        constraint = "constraint violation";
        referential = "referential integrity violation";
        /// The name that the server gives to duplicates in a set, where it forgot to choose one.
        duplicate_element = "ovsdb error";
        duplicate_uuid = "duplicate uuid";
        duplicate_name = "duplicate uuid-name";
        domain = "domain error";
        range = "range error";
        timed_out = "timed out";
        aborted = "aborted";
        not_owner = "not owner";
    }

    /// The element of the answer.
    pub(crate) fn to_json(&self) -> Value {
        json!({"error": self.name, "details": self.details})
    }
}
