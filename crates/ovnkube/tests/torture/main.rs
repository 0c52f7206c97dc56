//! Torture of the databases: ports are written through our client while the members, run by `ovnkube db serve`, suffer
//! faults. No acknowledged write is lost or takes effect twice, and the files of the members are consistent.
//!
//! A short form runs by default; `make torture` runs the long one, on two versions of Open vSwitch. `TORTURE_SEED` replays the
//! order of faults. See docs/torture.md.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fault;
mod inject;
mod ledger;
mod members;
mod run;
mod schedule;
mod verdict;
mod writer;
