//! Errors of operations and commits, with the server's names.

use serde_json::{Value, json};

/// An error with the server's name; the details may differ from the server's.
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
        /// Values of the wrong type, a wrong number of values, unknown tables.
        syntax = "syntax error";
        unknown_column = "unknown column";
        constraint = "constraint violation";
        referential = "referential integrity violation";
        /// Duplicates in a set; the server uses this generic name.
        duplicate_element = "ovsdb error";
        duplicate_uuid = "duplicate uuid";
        duplicate_name = "duplicate uuid-name";
        domain = "domain error";
        range = "range error";
        timed_out = "timed out";
        aborted = "aborted";
        not_owner = "not owner";
    }

    /// The error as an element of the reply.
    pub(crate) fn to_json(&self) -> Value {
        json!({"error": self.name, "details": self.details})
    }
}
