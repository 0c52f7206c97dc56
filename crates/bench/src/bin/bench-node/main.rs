//! `bench-node`: costs of the CNI plugin and the node agent, compared with the minimum. Writes
//! `target/bench/node.json`.
//!
//! ```text
//!  shim     ─▶ CPU of one call | /bin/true · size
//!  idle     ─▶ memory and CPU of an agent that has nothing to do
//!  add      ─▶ one pod at a time | netlink, one transaction and the wait for ovn-controller, by hand
//!  packets  ─▶ throughput and latency between pods | two ports of a plain bridge · a bare tunnel
//!  crowd    ─▶ memory with 250 pods · 300 pods at once
//! ```
//!
//! All is real: API server, databases, northd, Open vSwitch and ovn-controller on two nodes, the controller and the
//! agents as release builds in processes of their own.

mod add;
mod agent;
mod bare;
mod crowd;
mod idle;
mod measure;
mod packets;
mod port_monitor;
mod shim;
mod world;

use anyhow::Result;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    measure::run(&words)
}
