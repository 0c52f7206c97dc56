//! Parse errors of objects.

use std::fmt;

/// An object that cannot be parsed; the test that created it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Kind and name.
    pub object: String,
    /// The parse error.
    pub problem: String,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.object, self.problem)
    }
}

impl std::error::Error for Error {}
