//! `bench-ovsdb`: costs of our OVSDB client, compared with the bare client and with OVN's tools.
//! Writes `target/bench/ovsdb.json`.
//!
//! ```text
//!  raft lab ───────▶ write: ours | bare-ovsdb
//!  standalone lab ─▶ load:  ours (this program as `load REMOTE`) | bare-ovsdb, ovsdb-client dump, ovn-nbctl daemon
//!                └─▶ latency of one change: ours | a bare socket
//! ```

mod child;
mod latency;
mod load;
mod measure;
mod rows;
mod socket;
mod write;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => measure::run(),
        ["load", remote] => load::load(remote),
        unknown => bail!("unknown arguments {:?}; bench-ovsdb takes none", unknown.join(" ")),
    }
}
