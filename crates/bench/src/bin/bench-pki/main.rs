//! `bench-pki`: what OVN's certificates cost. Writes `target/bench/pki.json`.
//!
//! ```text
//!  rotation  API server ─▶ signer ─▶ Secrets ─▶ files ─▶ ovsdb-server with 500 TLS sessions: dropped | seconds | CPU
//!  memory    the signer that leads | a signer that stands by | an idle manager of a database
//!  tls       one ovsdb-server, 100 sessions, TLS | TCP | TLS | TCP …: CPU and latency of the same transactions, CPU of connecting
//! ```
//!
//! API server, etcd, signer and ovsdb-server are real. Nodes are sessions of our OVSDB client, without Open vSwitch; this program
//! copies Secrets to files, as kubelets do. All nodes share one certificate.

mod measure;
mod memory;
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
