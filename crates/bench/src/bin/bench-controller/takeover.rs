//! Takeover by a standby: from acquiring the Lease to the first commit for a waiting pod.

use anyhow::{Context, Result};
use bench::{Figure, Goal};

use crate::controller::{Controller, now};
use crate::object_watch::within;
use crate::objects::Pods;
use crate::quantile::Quantiles;
use crate::rows::Monitor;
use crate::world::World;

/// Pods that are created while there is no leader.
const WAITING: usize = 20;

/// Kills the leader repeatedly; the standby of one round leads in the next.
pub(crate) fn figures(world: &World, leader: Controller, rounds: usize) -> Result<Vec<Figure>> {
    let mut leader = leader;
    let (mut commits, mut outages) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let standby = Controller::start(world, &format!("standby-{round}"))?;
        // It says nothing when it is warm; it has nothing to compute then.
        std::thread::sleep(std::time::Duration::from_secs(2));
        world.settle(&[&leader, &standby])?;
        let pods = Pods::new(format!("orphan-{round}"), WAITING, world.nodes);
        let (killed, seen) = world.inside(async |api| {
            pods.prepare(&api).await?;
            let mut monitor = Monitor::new(&world.northbound).await?;
            world.lab.kill(&leader.name)?;
            let killed = now();
            pods.create(&api).await?;
            let ports: Vec<String> = (0..WAITING).map(|number| pods.port(number)).collect();
            within("a port of a pod that waited", async {
                while !monitor.step().await?.iter().any(|name| ports.contains(name)) {}
                Ok(())
            })
            .await?;
            Ok((killed, now()))
        })?;
        let acquired = standby.logged(world, "Lease acquired")?;
        let (commit, outage) = ((seen - acquired) * 1e3, seen - killed);
        eprintln!("take-over {round}: first commit {commit:.1} ms after the lease, {outage:.2} s after the kill");
        commits.push(commit);
        outages.push(outage);
        leader = standby;
    }
    let pods = world.inside(async |api| count(&api).await)?;
    let named = |what: &str| format!("{what}, take-over by a warm standby, {pods} pods on {}", world.label());
    Ok(vec![
        Figure::new(named("lease acquired to first commit"), Quantiles::of(commits).median(), "ms")
            .with_goal(Goal::AtMost(100.0)),
        Figure::new(named("kill of the leader to first commit"), Quantiles::of(outages).median(), "s"),
    ])
}

/// How many pods there are, as the server estimates it.
async fn count(api: &kubernetes::Api) -> Result<u64> {
    let answer = api.get("/api/v1/pods?limit=1").await?;
    let list: serde_json::Value = serde_json::from_slice(&answer)?;
    let rest =
        list["metadata"]["remainingItemCount"].as_u64().context("the API server did not return remainingItemCount")?;
    Ok(rest + 1)
}
