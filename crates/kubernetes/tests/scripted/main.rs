//! The watch against a server that does, on request, what real ones do at the worst moment.

// A test that cannot go on says so by a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod server;
mod watches;
