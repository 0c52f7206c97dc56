//! A whole cluster of real components on one machine: for the demo, the tests and the benchmarks.
//!
//! ```text
//!  LabSpec ──▶ Artifacts (node image, Kubernetes programs) ──▶ Lab ──▶ machines ──▶ components
//!                                                              │
//!                                   lab.json (the record) ◀────┘   read by `lab status|exec|logs|fault|down`
//! ```
//!
//! A *machine* is a set of namespaces over the node image, connected to one switch (the *underlay*); a *component* is
//! one real program on a machine. A test owns its [`Lab`], and dropping it removes everything; with `lab up` the keeper
//! process owns it. Other kinds of machine (systemd as first process, virtual machines) would go into `machine`, other
//! programs beside `outside`, `tls_router`, `central` and `prometheus`. [`LightChassis`] simulates hundreds of nodes without
//! machines.

mod central;
mod cgroup;
pub mod cli;
pub mod conformance;
mod container_image;
mod control_plane;
mod debian_package;
mod deployment;
pub mod directories;
pub mod disruption;
mod dns;
mod error;
mod fault;
mod flood;
pub mod frames;
mod go_module;
pub mod image;
mod inspect;
mod interrupt;
mod keeper;
mod kubelet;
mod kubernetes_programs;
mod lab;
mod light_chassis;
mod machine;
pub mod matrix;
mod moved_clock;
mod namespace;
mod node;
mod northd_sync;
mod outside;
mod ownership;
pub mod pki;
mod pod;
mod pod_routes;
mod poll;
mod power;
pub mod probe;
mod process;
mod product_image;
mod program;
pub mod progress;
pub mod prometheus;
pub mod punt;
mod ready;
pub mod record;
mod set_on_drop;
mod signed;
mod slow_disk;
mod spec;
mod supervisor;
pub mod tcp_forwarder;
mod teardown;
mod tls_router;
mod underlay;
mod volume_fault;
mod volumes;

pub use central::Database;
pub use dns::ZONE;
pub use fault::DropRules;
pub use flood::Flood;
pub use inspect::machine_dir;
pub use lab::{Artifacts, Lab};
pub use light_chassis::{ChassisSpec, LightChassis};
pub use machine::Machine;
pub use moved_clock::MovedClock;
pub use netmodel::GatewayMode;
pub use northd_sync::NorthdSync;
pub use outside::WEB_PORT;
pub use pod::{Pod, PodInterface};
pub use poll::poll;
pub use power::PowerCut;
pub use program::Program;
pub use set_on_drop::SetOnDrop;
pub use slow_disk::SlowDisk;
pub use spec::{Cni, Databases, Family, Kubernetes, LabSpec, Lifetimes, Ovn, Product, Suite};
pub use tls_router::TlsRoute;
pub use underlay::EXTERNAL_ADDRESSES;
pub use volume_fault::VolumeFault;
pub use volumes::STORAGE_CLASS;
