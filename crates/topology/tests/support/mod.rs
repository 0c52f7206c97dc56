//! Simulated API, controller and database for the tests of the core. Each test uses a part.
#![allow(dead_code)]

pub(crate) mod admin_policies;
pub(crate) mod api;
pub(crate) mod controller;
pub(crate) mod database;
pub(crate) mod faults;
pub(crate) mod pods;
pub(crate) mod policies;
pub(crate) mod rng;
pub(crate) mod schema;
pub(crate) mod services;
pub(crate) mod test_cluster;
