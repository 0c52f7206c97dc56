//! Many Services over many nodes: memory, what one changed endpoint costs, and a restart that writes nothing.

use anyhow::{Context, Result};
use bench::{Figure, Goal};
use kubernetes::{Api, Patch};
use serde_json::json;

use crate::controller::Controller;
use crate::workload::{Policies, Services};
use crate::world::World;

/// Changes of one endpoint that are looked at.
const CHANGES: usize = 20;
/// Policies that a restart finds beside the Services.
const POLICIES: usize = 1_000;

pub(crate) fn figures(nodes: usize, services: Services) -> Result<Vec<Figure>> {
    let Services { count, endpoints } = services;
    let world = World::start(nodes)?;
    let controller = Controller::measured(&world, "services")?;
    world.join_nodes()?;
    world.settle(&[&controller])?;
    let before = controller.peak()?;
    eprintln!("{count} Services with {endpoints} endpoints on {}", world.label());
    let (started, busy) = (std::time::Instant::now(), controller.cpu()?);
    world.inside(async |api| services.create(&api).await)?;
    world.settle(&[&controller])?;
    let (peak, cpu) = (controller.peak()?, controller.cpu()? - busy);
    eprintln!(
        "  {:.1} s, {cpu:.2} s CPU, {before:.1} MB before and {peak:.1} MB after",
        started.elapsed().as_secs_f64()
    );
    let rows = world.count_rows(&["Load_Balancer", "Chassis_Template_Var"])?;
    let named = |what: &str| format!("{what}, {count} Services with {endpoints} endpoints on {}", world.label());
    let mut figures = vec![
        Figure::new(named("peak RSS more than without"), peak - before, "MB").with_goal(Goal::AtMost(60.0)),
        Figure::new(named("CPU to make them"), cpu, "s"),
        Figure::new(named("rows of load balancers and variables"), rows as f64, ""),
    ];
    let (operations, transactions) = one_endpoint(&world, &controller, services)?;
    figures.push(
        Figure::new(named("operations of one endpoint's change, the sequence's own included"), operations, "")
            .with_goal(Goal::AtMost(3.0)),
    );
    figures.push(
        Figure::new(named("transactions of one endpoint's change"), transactions, "").with_goal(Goal::AtMost(1.0)),
    );
    let policies = Policies { purpose: "guarded".into(), count: POLICIES, namespaces: POLICIES / 10 };
    world.inside(async |api| policies.create(&api).await)?;
    world.settle(&[&controller])?;
    controller.end(&world)?;
    let again = Controller::resynced(&world, "services-again")?;
    let seconds = again.until(&world, "resync complete")?;
    world.settle(&[&again])?;
    let (_, writes) = world.sequence()?;
    let named =
        |what: &str| format!("{what}, restart over {count} Services and {POLICIES} policies, {}", world.label());
    figures.push(
        Figure::new(named("northbound writes beyond the epoch"), (writes - 1) as f64, "").with_goal(Goal::AtMost(0.0)),
    );
    figures.push(Figure::new(named("start of the process to everything reviewed"), seconds, "s"));
    figures.push(Figure::new(named("peak RSS"), again.peak()?, "MB"));
    Ok(figures)
}

/// The most operations and transactions that one changed endpoint of a ClusterIP took.
fn one_endpoint(world: &World, controller: &Controller, services: Services) -> Result<(f64, f64)> {
    let (mut operations, mut transactions) = (0, 0);
    for number in (1..).filter(|number| !Services::has_node_port(*number)).take(CHANGES) {
        world.settle(&[controller])?;
        let (asked, committed) = (operations_of(world)?, world.sequence()?.1);
        world.inside(async |api| change_endpoint(&api, services, number).await)?;
        world.settle(&[controller])?;
        let took = world.sequence()?.1 - committed;
        transactions = transactions.max(took);
        // The guard's own write of the sequence is one for each transaction.
        operations = operations.max(operations_of(world)? - asked + took);
    }
    Ok((operations as f64, transactions as f64))
}

/// One endpoint of a slice gets another address.
async fn change_endpoint(api: &Api, services: Services, number: usize) -> Result<()> {
    let address = Services::address(number, services.endpoints + 1);
    let change = json!([{"op": "replace", "path": "/endpoints/0/addresses/0", "value": address}]).to_string();
    api.patch(&Services::slice_path(number), Patch::Json, change.into_bytes()).await?;
    Ok(())
}

/// How many operations its transactions had so far, without the guards.
fn operations_of(world: &World) -> Result<u64> {
    let text = world.metrics()?;
    let line = text.lines().find(|line| !line.starts_with('#') && line.contains("nb_operations"));
    let value =
        line.and_then(|line| line.rsplit_once(' ')).context("the controller has no metric of its operations")?.1;
    Ok(value.parse::<f64>()? as u64)
}
