//! The evaluator, rule by rule: each case is a sentence of the API's documentation, or a known pitfall.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admin;
mod network_policy;
mod services;
mod world;
