//! `bench-pki`: what OVN's certificates cost. Writes `target/bench/pki.json`.
//!
//! ```text
//!  rotation  API server ─▶ signer ─▶ Secrets ─▶ files ─▶ ovsdb-server with 500 TLS sessions: dropped | seconds | CPU
//!  nodes     500 requests of nodes at once | a rotation of their CA under as many sessions with the listener for nodes, and 500
//!            requests again: sessions dropped | seconds | CPU
//!  listener  100 sessions, listener for nodes | port without it, in turn: CPU and latency of the same transactions
//!  memory    the signer that leads | a signer that stands by | an idle manager of a database
//!  tls       one ovsdb-server, 100 sessions, TLS | TCP | TLS | TCP …: CPU and latency of the same transactions, CPU of connecting
//! ```
//!
//! API server, etcd, signer and ovsdb-server are real. Nodes are sessions of our OVSDB client, without Open vSwitch; this program
//! copies Secrets to files, as kubelets do. In `rotation` and `tls` all sessions share one certificate.

mod listener;
mod measure;
mod memory;
mod nodes;
mod options;
mod rotation;
mod sessions;
mod site;
mod tls;

use anyhow::Result;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    measure::run(&options::Options::read(&words)?)
}
