//! What TLS costs a southbound server: the same load over TLS and over TCP, in turn, on one server.

use anyhow::Result;
use bench::Figure;

use crate::sessions::Sessions;
use crate::site::{Site, Transport};

/// Nodes that see each change.
const SESSIONS: usize = 100;
/// Transactions of one run.
const TRANSACTIONS: u64 = 200;
/// Runs of each transport.
const RUNS: usize = 5;

/// What one transport costs, measured once; medians of [`RUNS`] are reported.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// CPU of the server for opening all sessions, in milliseconds for each.
    connecting: f64,
    /// CPU of the server, in microseconds for each session that sees a transaction.
    update: f64,
    /// Median milliseconds until a transaction is acknowledged.
    acknowledged: f64,
    /// Median milliseconds until all sessions have seen it.
    seen: f64,
}

pub(crate) fn figures(site: &Site, figures: &mut Vec<Figure>) -> Result<()> {
    eprintln!("{TRANSACTIONS} transactions that {SESSIONS} sessions see, over TLS and TCP");
    let (mut tls, mut plain) = (Vec::new(), Vec::new());
    for number in 0..RUNS {
        for (transport, runs) in [(Transport::Tls, &mut tls), (Transport::Plain, &mut plain)] {
            let run = measure(site, transport)?;
            eprintln!("  {number} {}: {run:?}", transport.name());
            runs.push(run);
        }
    }
    for (what, unit, of) in [
        ("CPU of ovsdb-server to accept a session", "ms", (|run| run.connecting) as fn(&Run) -> f64),
        ("CPU of ovsdb-server for a session that sees a transaction", "µs", |run| run.update),
        ("latency until a transaction is acknowledged, median", "ms", |run| run.acknowledged),
        ("latency until 100 sessions have seen a transaction, median", "ms", |run| run.seen),
    ] {
        let [tls, plain] = [&tls, &plain].map(|runs| median(runs.iter().map(of).collect()));
        figures.push(Figure::new(format!("TLS: {what}, over TLS"), tls, unit));
        figures.push(Figure::new(format!("TLS: {what}, over TCP"), plain, unit));
        figures.push(Figure::new(format!("TLS: {what}, TLS against TCP"), tls / plain, "×"));
    }
    Ok(())
}

fn measure(site: &Site, transport: Transport) -> Result<Run> {
    site.inside(async |_| {
        let before = site.cpu("sb")?;
        let mut sessions = Sessions::open(site, transport, SESSIONS).await?;
        let opened = site.cpu("sb")?;
        let (mut acknowledged, mut seen) = (Vec::new(), Vec::new());
        for number in 0..TRANSACTIONS {
            // Unlike the value that the last run left.
            let (first, last) =
                sessions.write(number + 1_000 + 1_000_000 * u64::from(transport == Transport::Tls)).await?;
            acknowledged.push(first * 1e3);
            seen.push(last * 1e3);
        }
        let updates = TRANSACTIONS as f64 * SESSIONS as f64;
        Ok(Run {
            connecting: (opened - before) * 1e3 / SESSIONS as f64,
            update: (site.cpu("sb")? - opened) * 1e6 / updates,
            acknowledged: median(acknowledged),
            seen: median(seen),
        })
    })
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
