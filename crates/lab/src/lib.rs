//! A whole cluster of real components on one machine: for the demo, the tests and the benchmarks.
//!
//! ```text
//!  LabSpec ──▶ Supplies (node image, Kubernetes programs) ──▶ Lab ──▶ machines ──▶ components
//!                                                              │
//!                                   lab.json (the record) ◀────┘   read by `lab status|exec|logs|fault|down`
//! ```
//!
//! A *machine* is a set of namespaces over the node image, all plugged into one switch (the *underlay*); a *component*
//! is one real program on a machine. A test owns its [`Lab`] and dropping it removes everything; for people the keeper
//! of `lab up` owns it. Later kinds of machine (systemd as first process, virtual machines) join at [`machine`],
//! later programs (a TLS router, DNS) as components beside [`outside`] and [`central`]. Nodes by the hundred, without
//! machines, are [`light_chassis`].

pub mod central;
mod cgroup;
pub mod cli;
pub mod conformance;
pub mod container_image;
pub mod control_plane;
mod deployment;
pub mod disruption;
pub mod error;
pub mod fault;
mod go_module;
pub mod image;
mod interrupt;
mod keeper;
mod kubelet;
pub mod kubernetes_programs;
mod lab;
pub mod light_chassis;
pub mod machine;
pub mod matrix;
mod namespace;
pub mod node;
pub mod outside;
mod over;
pub mod ownership;
pub mod pki;
pub mod place;
pub mod pod;
mod pod_routes;
pub mod probe;
pub mod process;
mod product_image;
pub mod program;
pub mod progress;
mod ready;
pub mod record;
pub mod relay;
mod site;
pub mod spec;
pub mod teardown;
pub mod underlay;
pub mod view;

pub use central::Database;
pub use error::{Error, Result};
pub use lab::{Lab, Supplies};
pub use light_chassis::{ChassisSpec, LightChassis};
pub use machine::Machine;
pub use over::Over;
pub use pod::{Pod, Wiring};
pub use program::Program;
pub use spec::{Cni, Databases, Family, Gateway, Kubernetes, LabSpec, Ovn, Product, Suite};
