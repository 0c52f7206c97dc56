//! Watches against a scripted server with rare failures.

#![allow(clippy::unwrap_used, clippy::panic)]

mod server;
mod watches;
