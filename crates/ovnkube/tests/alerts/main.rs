//! Every alert of `deploy/monitoring` fires when its fault occurs and resolves afterwards: all of them in Prometheus' own
//! rule tests, and those of [`coverage::COVERAGE`] also with a real fault.
#![allow(clippy::unwrap_used, clippy::panic)]

mod access;
#[allow(dead_code, reason = "shared with the tests of clusters")]
#[path = "../cluster/common.rs"]
mod common;
mod coverage;
mod databases;
mod faults;
mod rule_cases;
mod rule_tests;
mod signer;
#[allow(dead_code, reason = "shared with the tests of databases")]
#[path = "../db/site.rs"]
mod site;
mod slow_faults;
mod testbed;
mod watch;
