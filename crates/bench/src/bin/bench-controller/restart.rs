//! A restart over an unchanged cluster, interleaved with its minimum: the same lists and the same dump.

use std::time::Instant;

use anyhow::{Result, bail};
use bench::{Figure, Goal, per_calibration};
use kubernetes::Api;
use topology::plan::TABLES;

use crate::controller::Controller;
use crate::quantile::Quantiles;
use crate::rows::connect;
use crate::world::World;

const ROUNDS: usize = 3;
/// Stops the leader, and starts others.
pub(crate) fn figures(world: &World, leader: Controller) -> Result<(Controller, Vec<Figure>)> {
    let (mut ours, mut bare, mut cpus, mut peaks, mut leading) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut pods, mut writes) = (0, 0);
    let mut controller = leader;
    for round in 1..=ROUNDS {
        world.settle(&[&controller])?;
        controller.end(world)?;
        let (listed, lists) = world.inside(async |api| lists(&api).await)?;
        let dump = world.inside(async |_| {
            let start = Instant::now();
            connect(&world.northbound, &TABLES).await?;
            Ok(start.elapsed().as_secs_f64())
        })?;
        pods = listed;
        bare.push(lists + dump);
        controller = Controller::resynced(world, &format!("restart-{round}"))?;
        let seconds = controller.until(world, "resync complete")?;
        ours.push(seconds);
        leading.push(controller.until(world, "\"started leading\"")?);
        cpus.push(controller.cpu()?);
        peaks.push(controller.peak()?);
        eprintln!(
            "restart over {pods} pods, round {round}: reviewed after {seconds:.2} s, {:.2} s CPU, {:.1} MB; bare lists \
             {lists:.2} s, bare dump {dump:.2} s",
            controller.cpu()?,
            controller.peak()?
        );
        world.settle(&[&controller])?;
        let (writer, number) = world.sequence()?;
        if !writer.starts_with(&controller.name) {
            bail!("{writer} wrote last, not {}", controller.name);
        }
        writes = writes.max(number);
    }
    let median = |values: Vec<f64>| Quantiles::of(values).median();
    let (ours, bare, cpu) = (median(ours), median(bare), median(cpus));
    let named = |what: &str| format!("{what}, restart over {pods} unchanged pods on {}", world.label());
    let figures = vec![
        Figure::new(named("northbound transactions, the epoch included"), writes as f64, "")
            .with_goal(Goal::AtMost(1.0)),
        Figure::new(named("start of the process to everything reviewed against bare lists and dump"), ours / bare, "×")
            .with_goal(Goal::AtMost(1.5)),
        Figure::new(named("start of the process to everything reviewed"), ours, "s"),
        Figure::new(named("start of the process to leading"), median(leading), "s"),
        Figure::new(named("bare lists and dump"), bare, "s"),
        Figure::new(named("CPU to everything reviewed"), cpu, "s"),
        Figure::new(named("CPU to everything reviewed"), per_calibration(cpu)?, "calibrations"),
        Figure::new(named("peak RSS"), median(peaks), "MB"),
    ];
    Ok((controller, figures))
}

/// The three lists side by side in pages of 500, as the controller reads them, and the objects thrown away: how many
/// pods there are, and the seconds.
async fn lists(api: &Api) -> Result<(usize, f64)> {
    let start = Instant::now();
    let (nodes, namespaces, pods) = tokio::join!(list(api, "nodes"), list(api, "namespaces"), list(api, "pods"));
    nodes.and(namespaces)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((pods?, seconds))
}

async fn list(api: &Api, plural: &str) -> Result<usize> {
    let (mut next, mut objects) = (String::new(), 0);
    loop {
        let answer = api.get(&format!("/api/v1/{plural}?limit=500{next}")).await?;
        // The server writes the token before the objects, and there is one such key in each object's own metadata.
        let head = String::from_utf8_lossy(&answer[..answer.len().min(4096)]);
        objects += answer.windows(20).filter(|window| *window == b"\"creationTimestamp\":").count();
        let token = head.split_once("\"items\"").map_or(&*head, |(head, _)| head).split_once("\"continue\":\"");
        match token.and_then(|(_, rest)| rest.split_once('"')) {
            Some((token, _)) => next = format!("&continue={}", token.replace('=', "%3D").replace('+', "%2B")),
            None => return Ok(objects),
        }
    }
}
