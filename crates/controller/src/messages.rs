//! Log messages whose absence tests assert: a rewording must not make such an assertion pass silently.

/// A write of annotations or of a condition failed.
pub const API_WRITE_FAILED: &str = "API write failed; retrying";
/// Adopted rows wait for replacements.
pub const LEFTOVERS_KEPT: &str = "rows of the previous controller are kept: their replacements are parked; they are removed once the parked objects are fixed";
/// The server refused a commit.
pub const TRANSACTION_REFUSED: &str = "northbound database refused a transaction";
