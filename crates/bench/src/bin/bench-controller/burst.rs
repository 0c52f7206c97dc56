//! A burst of creates: pods per second until all are annotated, interleaved with a bare client that knows all results.
//!
//! The bare client patches existing pods in the same way, 32 at a time, and replays the same number of northbound
//! transactions with the same number of ports. It runs twice:
//!
//! - under the load of a controller: with the same burst of creates, and with a watch of all pods, which every client that
//!   patches them needs. Its time ends with the last create and patch.
//! - alone: the highest rate of these servers. It is compared with a controller whose pods existed before it started, from
//!   its first annotation to its last.

use std::time::Instant;

use anyhow::{Context, Result};
use bench::{Figure, Goal};
use kubernetes::Api;
use serde_json::Value;
use tokio::sync::watch;

use crate::controller::Controller;
use crate::object_watch::ObjectWatch;
use crate::objects::{Pods, WIDTH, parallel};
use crate::quantile::Quantiles;
use crate::rows::Writer;
use crate::steady::patch;
use crate::world::World;

const ROUNDS: usize = 3;

pub(crate) fn figures(world: &World, leader: Controller, count: usize) -> Result<(Controller, Vec<Figure>)> {
    let (mut ours, mut found, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    let mut controller = leader;
    for round in 1..=ROUNDS {
        eprintln!("burst of {count} pods, round {round} of {ROUNDS}");
        world.settle(&[&controller])?;
        let (commits, cpu) = (world.sequence()?.1, controller.cpu()?);
        let grown = world.grow(&Pods::new(format!("burst-{round}"), count, world.nodes))?;
        cpus.push(controller.cpu()? - cpu);
        ours.push(count as f64 / grown.seconds);
        world.settle(&[&controller])?;
        let commits = usize::try_from(world.sequence()?.1 - commits)?.max(1);
        controller.end(world)?;
        for (creates, rates) in [(true, &mut beside), (false, &mut alone)] {
            let purpose = format!("bare-burst-{round}-{creates}");
            let seconds = bare(world, &Pods::new(purpose, count, 0), commits, creates)?;
            let rate = count as f64 / seconds;
            eprintln!("  bare, {commits} transactions, with creates {creates}: {rate:.0} pods/s");
            rates.push(rate);
        }
        let (next, rate) = find(world, &Pods::new(format!("found-{round}"), count, world.nodes), round)?;
        found.push(rate);
        controller = next;
    }
    let median = |rates: Vec<f64>| Quantiles::of(rates).median();
    let (ours, found, beside, alone) = (median(ours), median(found), median(beside), median(alone));
    let figures = vec![
        Figure::new(
            "burst: rate against a bare client with the same creates and a watch of pods beside it",
            ours / beside,
            "×",
        ),
        Figure::new(
            "burst of pods created before: rate against a bare client with nothing beside it",
            found / alone,
            "×",
        )
        .with_goal(Goal::AtLeast(0.95)),
        Figure::new("burst: creates to annotations", ours, "pods/s"),
        Figure::new("burst: bare client with the same creates and a watch of pods beside it", beside, "pods/s"),
        Figure::new("burst of pods created before: first to last annotation", found, "pods/s"),
        Figure::new("burst of pods created before: bare client with nothing beside it", alone, "pods/s"),
        Figure::new(format!("burst: CPU of the controller for {count} more pods"), median(cpus), "s"),
    ];
    Ok((controller, figures))
}

/// Pods that exist when a controller starts: the controller, and how many it annotates per second.
fn find(world: &World, pods: &Pods, round: usize) -> Result<(Controller, f64)> {
    world.inside(async |api| {
        pods.prepare(&api).await?;
        pods.create(&api).await
    })?;
    world.await_northd()?;
    let (controller, times) = world.inside(async |api| {
        let mut objects = ObjectWatch::of(&api, "pods", &pods.purpose).await?;
        let controller = Controller::start(world, &format!("burst-{round}"))?;
        objects.annotated(pods.count).await?;
        Ok((controller, objects.times))
    })?;
    let mut annotated: Vec<Instant> = times.values().filter_map(|times| times.annotated).collect();
    annotated.sort_unstable();
    let (first, last) = (annotated.first().context("the controller annotated no pod")?, annotated[annotated.len() - 1]);
    let rate = (annotated.len() - 1) as f64 / (last - *first).as_secs_f64();
    eprintln!("  {} pods created before, annotated once it had begun: {rate:.0} pods/s", pods.count);
    controller.logged(world, "resync complete")?;
    Ok((controller, rate))
}

/// Seconds until all are patched, as a bare watcher sees it, and until all others are created.
fn bare(world: &World, pods: &Pods, commits: usize, creates: bool) -> Result<f64> {
    world.inside(async |api| {
        pods.more().prepare(&api).await?;
        pods.create(&api).await?;
        let uids = uids(&api, pods).await?;
        let mut objects = ObjectWatch::of(&api, "pods", &pods.purpose).await?;
        objects.there(pods.count).await?;
        let writer = Writer::new(&world.northbound, &pods.purpose).await?;
        world.await_northd()?;
        let (done, patched) = watch::channel(0);
        let watching = if creates { Some(ObjectWatch::of_all(&api, "pods").await?) } else { None };
        let watching = tokio::spawn(async move {
            if let Some(mut objects) = watching {
                while objects.step().await.is_ok() {}
            }
        });
        let start = Instant::now();
        let (creator, call) = (pods.more(), api.clone());
        let creating = tokio::spawn(async move {
            if creates {
                creator.create(&call).await?;
            }
            anyhow::Ok(Instant::now())
        });
        let (others, call) = (pods.clone(), api.clone());
        let patching = tokio::spawn(async move {
            parallel(WIDTH, others.count, move |number| {
                let (api, pods, uid, done) = (call.clone(), others.clone(), uids[number].clone(), done.clone());
                async move {
                    patch(&api, &pods, number, &uid).await?;
                    done.send_modify(|count| *count += 1);
                    Ok(())
                }
            })
            .await
        });
        let (replayed, nodes) = (pods.clone(), world.nodes);
        let replaying = tokio::spawn(async move {
            replay(&writer, &replayed, commits, nodes, patched).await?;
            anyhow::Ok(writer)
        });
        let end = objects.annotated(pods.count).await?;
        patching.await??;
        let end = end.max(creating.await??);
        watching.abort();
        replaying.await??.remove().await?;
        Ok((end - start).as_secs_f64())
    })
}

/// Sends the transactions at the pace of the patches.
async fn replay(
    writer: &Writer,
    pods: &Pods,
    commits: usize,
    nodes: usize,
    mut patched: watch::Receiver<usize>,
) -> Result<()> {
    let names: Vec<String> = (0..pods.count).map(|number| pods.port(number)).collect();
    let mut first = 0;
    for batch in 1..=commits {
        // All are sent before the last patch.
        let _ = patched.wait_for(|count| *count >= first).await;
        let end = pods.count * batch / commits;
        writer.write(&names[first..end], first, nodes).await?;
        first = end;
    }
    Ok(())
}

/// The identity of each pod, by its number.
async fn uids(api: &Api, pods: &Pods) -> Result<Vec<String>> {
    let answer = api.get(&format!("/api/v1/pods?labelSelector=bench%3D{}", pods.purpose)).await?;
    let list: Value = serde_json::from_slice(&answer)?;
    let mut uids = vec![String::new(); pods.count];
    for pod in list["items"].as_array().context("the list of pods has no items")? {
        let (name, uid) = (pod["metadata"]["name"].as_str(), pod["metadata"]["uid"].as_str());
        let number: usize =
            name.and_then(|name| name.strip_prefix("web-")?.parse().ok()).context("unexpected pod name")?;
        *uids.get_mut(number).context("unexpected pod number")? = uid.context("a pod has no UID")?.to_owned();
    }
    Ok(uids)
}
