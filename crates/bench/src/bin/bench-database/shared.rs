//! The lab and the workload of `bench-controller`.
#![allow(dead_code)]

#[path = "../bench-controller/controller.rs"]
pub(crate) mod controller;
#[path = "../bench-controller/object_watch.rs"]
pub(crate) mod object_watch;
#[path = "../bench-controller/objects.rs"]
pub(crate) mod objects;
#[path = "../bench-controller/quantile.rs"]
pub(crate) mod quantile;
#[path = "../bench-controller/rows.rs"]
pub(crate) mod rows;
#[path = "../bench-controller/workload.rs"]
pub(crate) mod workload;
#[path = "../bench-controller/world.rs"]
pub(crate) mod world;
