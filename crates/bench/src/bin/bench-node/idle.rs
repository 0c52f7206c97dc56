//! An idle agent.

use std::time::{Duration, Instant};

use anyhow::Result;
use bench::{Figure, Goal};

use crate::world::World;

const SPAN: Duration = Duration::from_secs(30);

pub(crate) fn measure(world: &World) -> Result<Vec<Figure>> {
    let agent = world.agent(1)?;
    // Skip its start.
    std::thread::sleep(Duration::from_secs(5));
    let (start, before) = (Instant::now(), agent.cpu()?);
    std::thread::sleep(SPAN);
    let share = (agent.cpu()? - before) / start.elapsed().as_secs_f64() * 100.0;
    let (resident, _) = agent.memory()?;
    Ok(vec![
        Figure::new("agent: RSS idle", resident, "MB").with_goal(Goal::AtMost(25.0)),
        Figure::new("agent: CPU when nothing happens", share, "% of a core").with_goal(Goal::AtMost(0.2)),
    ])
}
