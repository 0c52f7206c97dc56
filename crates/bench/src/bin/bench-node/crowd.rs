//! Many pods: 250 existing ones, and 300 at once.

use std::time::Instant;

use anyhow::Result;
use bench::{Figure, Goal};

use crate::agent::Agent;
use crate::world::{Sandbox, World};

const STANDING: usize = 250;
const AT_ONCE: usize = 300;
/// Concurrent requests where concurrency is not what is measured.
const WIDTH: usize = 16;
const TRANSACTIONS: &str = "ovnkube_node_port_transactions_total";

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let agent = world.agent(1)?;
    let standing = world.sandboxes(1, STANDING)?;
    let each = |what: fn(&Agent, &Sandbox) -> Result<()>, sandboxes: &[Sandbox]| -> Result<()> {
        sandboxes.chunks(WIDTH).try_for_each(|few| together(&agent, few, what).into_iter().collect())
    };
    each(Agent::add, &standing)?;
    let (resident, _) = agent.memory()?;
    each(Agent::remove, &standing)?;

    let crowd = world.sandboxes(1, AT_ONCE)?;
    let (before, counted) = (agent.memory()?.0, agent.counter(TRANSACTIONS)?);
    let start = Instant::now();
    let added = together(&agent, &crowd, Agent::add);
    let seconds = start.elapsed().as_secs_f64();
    let failed = added.iter().filter(|added| added.is_err()).inspect(|added| eprintln!("  {added:?}")).count();
    let transactions = agent.counter(TRANSACTIONS)? - counted;
    let after = agent.memory()?.0;
    let start = Instant::now();
    each(Agent::remove, &crowd)?;
    let removal = start.elapsed().as_secs_f64();
    Ok(vec![
        Figure::new("agent: RSS with 250 pods", resident, "MB").with_goal(Goal::AtMost(40.0)),
        Figure::new("300 ADDs at once: that failed", failed as f64, "").with_goal(Goal::AtMost(0.0)),
        Figure::new("300 ADDs at once: until all are answered", seconds, "s"),
        Figure::new("300 ADDs at once: transactions", transactions, "").with_goal(Goal::AtMost(100.0)),
        Figure::new("300 ADDs at once: RSS after", after, "MB"),
        Figure::new("300 ADDs at once: RSS that they added", after - before, "MB").with_goal(Goal::AtMost(12.0)),
        Figure::new("300 DELs, 16 at a time", removal, "s"),
    ])
}

/// Runs a request for all sandboxes at once; returns each result.
fn together(agent: &Agent, sandboxes: &[Sandbox], what: fn(&Agent, &Sandbox) -> Result<()>) -> Vec<Result<()>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = sandboxes.iter().map(|sandbox| scope.spawn(move || what(agent, sandbox))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
        };
        threads.into_iter().map(ended).collect()
    })
}
