//! Pods under policies: what 1,000 pods with 50 policies cost.

use anyhow::Result;
use bench::{Figure, Goal, per_calibration};

use crate::growth;
use crate::growth::Size;
use crate::objects::Pods;
use crate::workload::Policies;

/// Policies, spread over the namespaces of the pods.
const POLICIES: usize = 50;

pub(crate) fn figures(size: Size) -> Result<Vec<Figure>> {
    let Size { pods, nodes, .. } = size;
    let (world, controller) = growth::begin(size)?;
    let crowd = Pods::new("guarded", pods, nodes);
    let policies =
        Policies { purpose: crowd.purpose.clone(), count: POLICIES, namespaces: crowd.namespaces().min(POLICIES) };
    eprintln!("{pods} pods under {POLICIES} policies");
    let before = controller.cpu()?;
    let commits = world.sequence()?.1;
    world.inside(async |api| policies.create(&api).await)?;
    let grown = world.grow(&crowd)?;
    let cpu = controller.cpu()? - before;
    world.settle(&[&controller])?;
    let commits = world.sequence()?.1 - commits;
    eprintln!("  {cpu:.2} s CPU for them, {:.1} MB, {commits} commits", controller.peak()?);
    let named = |what: &str| format!("{what}, {pods} pods with {POLICIES} policies on {}", world.label());
    let figure = Figure::new(named("CPU from before the first policy to the last annotation"), cpu, "s");
    Ok(vec![
        if pods == 1000 { figure.with_goal(Goal::AtMost(0.35)) } else { figure },
        Figure::new(named("the same CPU"), per_calibration(cpu)?, "calibrations"),
        Figure::new(named("peak RSS"), controller.peak()?, "MB").with_goal(Goal::AtMost(40.0)),
        Figure::new(named("creates to annotations"), pods as f64 / grown.seconds, "pods/s"),
        Figure::new(named("northbound transactions"), commits as f64, ""),
    ])
}
