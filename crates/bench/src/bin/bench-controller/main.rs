//! `bench-controller`: costs of `ovnkube controller`, compared with a bare client of the same servers.
//! Writes `target/bench/controller.json`.
//!
//! ```text
//!  small lab  (1,000 pods, 20 nodes)    ─▶ growth · steady pace · burst | bare client · take-over
//!  middle lab (5,000 pods, 100 nodes)   ─▶ growth · backlog of 10,000 pods
//!  large lab  (25,000 pods, 500 nodes)  ─▶ growth · restart | bare lists and dump · take-over
//!  guarded    (1,000 pods, 50 policies)  ─▶ growth under policies
//!  flows      (1,000 Services, 200 policies, 20 nodes)    ─▶ rows and logical flows | the naive form
//!  services   (10,000 Services, 1,000 policies, 500 nodes) ─▶ memory · one endpoint's change · restart
//! ```
//!
//! All servers are real; nodes are objects and light chassis. The controller is the release build next to this program,
//! in its own process on the lab's control machine; the bare clients run in that machine's network as well.

mod backlog;
mod burst;
mod controller;
mod growth;
mod measure;
mod naive;
mod object_watch;
mod objects;
mod options;
mod policies;
mod quantile;
mod restart;
mod rows;
mod services;
mod steady;
mod takeover;
mod workload;
mod world;

use anyhow::Result;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    measure::run(&options::Options::read(&words)?)
}
