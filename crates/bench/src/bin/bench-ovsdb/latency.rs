//! Latency of a change of one row: our client compared with a bare socket with the same monitor.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::{Figure, Goal};
use ovsdb::client::Client;
use serde_json::{Value, json};

use crate::rows::{DATABASE, TABLES, connect, replica_config};
use crate::socket::Socket;

/// Changes in each of the two rounds.
const CHANGES: usize = 400;

/// Arrivals; the first one is that of the whole database.
type Arrivals = Receiver<Instant>;
type Reader = (Arrivals, JoinHandle<Result<()>>);

pub(crate) fn figures(remote: &str, requests: &Value) -> Result<Vec<Figure>> {
    // The server notifies its clients one after the other, so the readers take turns in connecting first.
    let mut late = round(remote, requests, true)?;
    late.extend(round(remote, requests, false)?);
    late.sort_by(f64::total_cmp);
    let at = |share: f64| late.get(((late.len() - 1) as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    println!(
        "one-row change, ours after the bare reader (ms): median {:.3}, p90 {:.3}, p99 {:.3} (spread {:.3}–{:.3}, {} changes)",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.0),
        at(1.0),
        late.len()
    );
    Ok(vec![
        Figure::new("one-row change seen by a consumer, p99 after a bare reader", at(0.99), "ms")
            .with_goal(Goal::AtMost(1.0)),
        Figure::new("one-row change seen by a consumer, median after a bare reader", at(0.5), "ms"),
    ])
}

/// Milliseconds from the bare reader's arrival to ours, for each change.
fn round(remote: &str, requests: &Value, bare_first: bool) -> Result<Vec<f64>> {
    let mut writer = Socket::connect(remote)?;
    let port = a_port(&mut writer)?;
    let mut readers: Vec<Reader> = Vec::new();
    for bare in [bare_first, !bare_first] {
        let reader = if bare { bare_reader(remote, requests) } else { our_reader(remote) };
        readers.push(reader);
        let (arrivals, _) = &readers[readers.len() - 1];
        arrivals.recv_timeout(Duration::from_secs(60)).context("a reader did not get the database")?;
    }
    let mut late = Vec::with_capacity(CHANGES);
    for change in 0..=CHANGES {
        write(&mut writer, &port, change, bare_first)?;
        let mut arrived = Vec::new();
        for (arrivals, _) in &readers {
            arrived.push(arrivals.recv_timeout(Duration::from_secs(30)).context("a change did not reach a reader")?);
        }
        let (bare, ours) = if bare_first { (arrived[0], arrived[1]) } else { (arrived[1], arrived[0]) };
        let after =
            ours.saturating_duration_since(bare).as_secs_f64() - bare.saturating_duration_since(ours).as_secs_f64();
        late.push(after * 1e3);
        // Not in step with the server's timers.
        thread::sleep(Duration::from_micros(500 + (change as u64 * 37) % 1000));
    }
    // The readers end at the next change once their channels are dropped.
    let handles: Vec<_> = readers.into_iter().map(|(_, handle)| handle).collect();
    write(&mut writer, &port, CHANGES + 1, bare_first)?;
    for handle in handles {
        handle.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
    }
    // The first change finds everything cold.
    Ok(late.split_off(1))
}

fn a_port(writer: &mut Socket) -> Result<Value> {
    let answer = transact(writer, &json!({"op": "select", "table": TABLES[1], "where": [], "columns": ["_uuid"]}))?;
    let rows = answer["rows"].as_array().and_then(|rows| rows.get(rows.len() / 2));
    Ok(rows.context("the switch has no port")?["_uuid"].clone())
}

fn write(writer: &mut Socket, port: &Value, change: usize, bare_first: bool) -> Result<()> {
    let row = json!({"external_ids": ["map", [["namespace", "x"], ["change", format!("{change} {bare_first}")]]]});
    let operation = json!({"op": "update", "table": TABLES[1], "where": [["_uuid", "==", port]], "row": row});
    transact(writer, &operation).map(|_| ())
}

fn transact(writer: &mut Socket, operation: &Value) -> Result<Value> {
    writer.send(&json!({"id": 1, "method": "transact", "params": [DATABASE, operation]}).to_string())?;
    let (message, _) = writer.receive()?;
    let mut answer: Value = serde_json::from_slice(&message)?;
    let result = answer["result"][0].take();
    if result.is_null() || !result["error"].is_null() {
        bail!("the server refused {operation}: {result} {answer}");
    }
    Ok(result)
}

fn bare_reader(remote: &str, requests: &Value) -> Reader {
    let zero = "00000000-0000-0000-0000-000000000000";
    let params = json!([DATABASE, "bare", requests, zero]);
    let request = json!({"id": 1, "method": "monitor_cond_since", "params": params}).to_string();
    let remote = remote.to_owned();
    reader(move |arrived_at| {
        let mut socket = Socket::connect(&remote)?;
        socket.send(&request)?;
        while arrived_at.send(socket.receive()?.1).is_ok() {}
        Ok(())
    })
}

fn our_reader(remote: &str) -> Reader {
    let remote = remote.to_owned();
    reader(move |arrived_at| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client: Client = connect(replica_config(&remote)?).await?;
            let mut changes = client.subscribe();
            loop {
                let seen = changes.next().await;
                let now = Instant::now();
                if seen.changes.is_empty() || arrived_at.send(now).is_err() {
                    return Ok(());
                }
            }
        })
    })
}

fn reader(read: impl FnOnce(&Sender<Instant>) -> Result<()> + Send + 'static) -> Reader {
    let (arrived_at, arrivals) = channel();
    (arrivals, thread::spawn(move || read(&arrived_at)))
}
