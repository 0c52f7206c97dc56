//! Growth: CPU and memory from an empty cluster to a given number of pods.

use anyhow::Result;
use bench::{Figure, Goal, per_calibration};

use crate::controller::Controller;
use crate::objects::Pods;
use crate::world::World;

/// Pods and nodes that costs are measured at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) pods: usize,
    pub(crate) nodes: usize,
    /// The most that may be resident, in MB.
    pub(crate) peak: f64,
}

/// What the controller needs at one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) size: Size,
    /// CPU seconds per pod.
    pub(crate) per_pod: f64,
}

/// A lab with nodes and a leader.
pub(crate) fn begin(size: Size) -> Result<(World, Controller)> {
    let world = World::start(size.nodes)?;
    let controller = Controller::lead(&world, "c1")?;
    world.join_nodes()?;
    world.settle(&[&controller])?;
    eprintln!("  {} nodes have joined: {:.2} s CPU of the controller so far", size.nodes, controller.cpu()?);
    Ok((world, controller))
}

/// Creates the pods and returns the figures.
pub(crate) fn grow(
    world: &World,
    controller: &Controller,
    size: Size,
    figures: Option<&mut Vec<Figure>>,
) -> Result<Cost> {
    let Size { pods, nodes, peak } = size;
    let words = world.label();
    let before = controller.cpu()?;
    let commits = world.sequence()?.1;
    let grown = world.grow(&Pods::new("grow", pods, nodes))?;
    let cpu = controller.cpu()? - before;
    world.settle(&[controller])?;
    let whole = controller.cpu()?;
    let commits = world.sequence()?.1 - commits;
    let cost = Cost { size, per_pod: cpu / pods as f64 };
    eprintln!("  {cpu:.2} s CPU for them, {whole:.2} s in all, {:.1} MB, {commits} commits", controller.peak()?);
    let Some(figures) = figures else { return Ok(cost) };
    let named = |what: &str| format!("{what}, {pods} pods on {words}");
    let figure = Figure::new(named("CPU from before the first pod to the last annotation"), cpu, "s");
    figures.push(if pods == 1000 { figure.with_goal(Goal::AtMost(0.25)) } else { figure });
    figures.push(Figure::new(named("the same CPU"), per_calibration(cpu)?, "calibrations"));
    figures.push(Figure::new(named("CPU of everything: start of the process, nodes, pods, echoes"), whole, "s"));
    figures.push(Figure::new(named("peak RSS"), controller.peak()?, "MB").with_goal(Goal::AtMost(peak)));
    figures.push(Figure::new(named("creates to annotations"), pods as f64 / grown.seconds, "pods/s"));
    figures.push(Figure::new(named("creates alone, in the same burst"), pods as f64 / grown.creating, "pods/s"));
    figures.push(Figure::new(named("northbound transactions of that burst"), commits as f64, ""));
    Ok(cost)
}

/// Whether growth is linear: CPU for each pod of the larger sizes against the smallest.
pub(crate) fn compare(costs: &[Cost], figures: &mut Vec<Figure>) {
    let Some((small, larger)) = costs.split_first() else { return };
    for cost in larger {
        let name = format!("CPU for each pod at {} pods against {}", cost.size.pods, small.size.pods);
        figures.push(Figure::new(name, cost.per_pod / small.per_pod, "×").with_goal(Goal::AtMost(1.5)));
    }
}
