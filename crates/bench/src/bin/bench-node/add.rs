//! ADD, one pod at a time, interleaved with the minimum, and compared with the time at which the flows were installed.

use std::time::Instant;

use anyhow::Result;
use bench::{Figure, Goal};

use crate::bare;
use crate::port_monitor::PortMonitor;
use crate::world::World;

const PODS: usize = 100;

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let (agent, machine) = (world.agent(1)?, world.node(1)?);
    let monitor = PortMonitor::of(&machine)?;
    let sandboxes = world.sandboxes(1, 2 * PODS)?;
    let (mut whole, mut behind, mut least) = (Vec::new(), Vec::new(), Vec::new());
    for pair in sandboxes.chunks(2) {
        let [ours, other] = pair else { continue };
        let start = Instant::now();
        agent.add(ours)?;
        let answered = Instant::now();
        let installed = monitor.installed(&ours.port())?;
        whole.push((answered - start).as_secs_f64() * 1e3);
        // Both heard it from the same server; the answer may even be first.
        behind.push(answered.saturating_duration_since(installed).as_secs_f64() * 1e3);
        least.push(bare::wire(&machine, &monitor, other)? * 1e3);
    }
    for pair in sandboxes.chunks(2) {
        let [ours, other] = pair else { continue };
        agent.remove(ours)?;
        bare::unwire(&machine, other)?;
    }
    let (whole, behind, least) = (Sorted::of(whole), Sorted::of(behind), Sorted::of(least));
    let limit = Goal::AtMost(1.5);
    Ok(vec![
        Figure::new("ADD: answer after ovn-installed, p99", behind.at(0.99), "ms").with_goal(Goal::AtMost(5.0)),
        Figure::new("ADD: answer after ovn-installed, median", behind.at(0.5), "ms"),
        Figure::new("ADD: one pod at a time, median", whole.at(0.5), "ms"),
        Figure::new("ADD: one pod at a time, p99", whole.at(0.99), "ms"),
        Figure::new("ADD: the bare minimum, median", least.at(0.5), "ms"),
        Figure::new("ADD: against the bare minimum, median", whole.at(0.5) / least.at(0.5), "×").with_goal(limit),
    ])
}

/// Values in order.
struct Sorted(Vec<f64>);

impl Sorted {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value below which this share of all is.
    fn at(&self, share: f64) -> f64 {
        let place = (share * (self.0.len().saturating_sub(1)) as f64).round();
        self.0.get(place as usize).copied().unwrap_or(f64::NAN)
    }
}
