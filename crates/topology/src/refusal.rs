//! Why an object cannot have what it asks for.

use std::fmt;

/// Why an object is parked: what it has stays as it is, and somebody is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In one word, for the Event's reason.
    pub reason: &'static str,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
