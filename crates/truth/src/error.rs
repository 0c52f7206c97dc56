//! What can be wrong with the objects.

use std::fmt;

/// An object that this crate cannot read: the test that made it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The object, as kind and name.
    pub object: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.object, self.problem)
    }
}

impl std::error::Error for Error {}
