//! What the tests of the core are made of: the API, a controller and the database as they are in the simulation. Each
//! test uses a part of it.
#![allow(dead_code)]

pub(crate) mod admin_policies;
pub(crate) mod api;
pub(crate) mod controller;
pub(crate) mod database;
pub(crate) mod faults;
pub(crate) mod pods;
pub(crate) mod policies;
pub(crate) mod quiet;
pub(crate) mod rng;
pub(crate) mod schema;
pub(crate) mod services;
