//! A backlog: pods that were created while no controller ran.

use anyhow::Result;
use bench::{Figure, Goal};

use crate::controller::Controller;
use crate::object_watch::ObjectWatch;
use crate::objects::Pods;
use crate::world::World;

/// Stops the leader, creates the backlog and starts another controller.
pub(crate) fn figures(world: &World, leader: Controller, count: usize) -> Result<(Controller, Vec<Figure>)> {
    eprintln!("a backlog of {count} pods");
    leader.end(world)?;
    let pods = Pods::new("backlog", count, world.nodes);
    world.inside(async |api| {
        pods.prepare(&api).await?;
        pods.create(&api).await
    })?;
    let controller = world.inside(async |api| {
        let mut objects = ObjectWatch::of(&api, "pods", &pods.purpose).await?;
        let controller = Controller::start(world, "backlog")?;
        objects.annotated(count).await?;
        Ok(controller)
    })?;
    let cpu = controller.cpu()?;
    let seconds = crate::controller::now() - controller.started();
    world.settle(&[&controller])?;
    let (_, commits) = world.sequence()?;
    eprintln!("  {commits} commits, {seconds:.2} s, {cpu:.2} s CPU, {:.1} MB", controller.peak()?);
    let named = |what: &str| format!("{what}, a backlog of {count} pods found at start, {}", world.label());
    let figures = vec![
        Figure::new(named("northbound transactions"), commits as f64, "").with_goal(Goal::AtMost(200.0)),
        Figure::new(named("start of the process to the last annotation"), seconds, "s"),
        Figure::new(named("CPU to the last annotation"), cpu, "s"),
        Figure::new(named("peak RSS"), controller.peak()?, "MB"),
    ];
    Ok((controller, figures))
}
