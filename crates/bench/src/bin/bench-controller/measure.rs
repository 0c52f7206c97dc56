//! Runs all measurements, one lab after the other.

use anyhow::Result;
use bench::Figure;

use crate::growth::{Cost, Size};
use crate::options::Options;
use crate::workload::Services;
use crate::{backlog, burst, growth, naive, policies, restart, services, steady, takeover};

/// Sizes, and their memory goals in MB.
const SMALL: Size = Size { pods: 1_000, nodes: 20, peak: 35.0 };
const MIDDLE: Size = Size { pods: 5_000, nodes: 100, peak: 60.0 };
const LARGE: Size = Size { pods: 25_000, nodes: 500, peak: 150.0 };
/// Pods that wait for a controller.
const BACKLOG: usize = 10_000;
/// Services, and endpoints of each, in the large case.
const SERVICES: Services = Services { count: 10_000, endpoints: 10 };
const FEWER_SERVICES: Services = Services { count: 1_000, endpoints: 10 };
/// Policies beside the fewer Services.
const POLICIES: usize = 200;
/// Pods in each round of a burst.
const BURST: usize = 1_000;

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut figures = vec![bench::calibration()?];
    let mut costs = Vec::new();
    let mut failure = None;
    for (name, measure) in [
        ("small", small as Measure),
        ("middle", middle),
        ("large", large),
        ("guarded", guarded),
        ("flows", flows),
        ("services", many_services),
    ] {
        // Keep the figures before a failure; the next lab is independent.
        if let Err(error) = measure(options, &mut figures, &mut costs) {
            eprintln!("the {name} lab failed: {error:#}");
            failure = failure.or(Some(error));
        }
        bench::write_figures("controller", &figures)?;
    }
    if options.wants("growth") {
        growth::compare(&costs, &mut figures);
    }
    let path = bench::write_figures("controller", &figures)?;
    print!("{}", bench::table(&figures));
    println!("written to {}", path.display());
    failure.map_or(Ok(()), Err)
}

/// Results of one lab: figures, and costs to compare.
type Measure = fn(&Options, &mut Vec<Figure>, &mut Vec<Cost>) -> Result<()>;

/// The size, or that of `--pods`.
fn sized(size: Size, options: &Options) -> Size {
    match options.pods {
        Some(pods) => Size { pods, nodes: options.nodes.unwrap_or((pods / 50).max(2)), ..size },
        None => size,
    }
}

fn small(options: &Options, figures: &mut Vec<Figure>, costs: &mut Vec<Cost>) -> Result<()> {
    if !options.wants_any(&["growth", "steady", "burst", "takeover"]) {
        return Ok(());
    }
    let size = sized(SMALL, options);
    let (world, mut controller) = growth::begin(size)?;
    let with_figures = options.wants("growth").then_some(&mut *figures);
    costs.push(growth::grow(&world, &controller, size, with_figures)?);
    if options.wants("steady") {
        figures.extend(steady::figures(&world, &controller)?);
    }
    if options.wants("burst") {
        let (next, found) = burst::figures(&world, controller, options.pods.unwrap_or(BURST))?;
        controller = next;
        figures.extend(found);
    }
    if options.wants("takeover") {
        figures.extend(takeover::figures(&world, controller, 3)?);
    }
    Ok(())
}

fn middle(options: &Options, figures: &mut Vec<Figure>, costs: &mut Vec<Cost>) -> Result<()> {
    // A quick look has one size only.
    let grows = options.wants("growth") && options.pods.is_none();
    if !grows && !options.wants("backlog") {
        return Ok(());
    }
    let size = sized(MIDDLE, options);
    let (world, controller) = growth::begin(size)?;
    if grows {
        costs.push(growth::grow(&world, &controller, size, Some(figures))?);
    }
    if options.wants("backlog") {
        let (_, found) = backlog::figures(&world, controller, options.pods.unwrap_or(BACKLOG))?;
        figures.extend(found);
    }
    Ok(())
}

fn large(options: &Options, figures: &mut Vec<Figure>, costs: &mut Vec<Cost>) -> Result<()> {
    let grows = options.wants("growth") && options.pods.is_none();
    if !grows && !options.wants_any(&["restart", "takeover"]) {
        return Ok(());
    }
    let size = sized(LARGE, options);
    let (world, mut controller) = growth::begin(size)?;
    let cost = growth::grow(&world, &controller, size, grows.then_some(&mut *figures))?;
    if grows {
        costs.push(cost);
    }
    if options.wants("restart") {
        let (next, found) = restart::figures(&world, controller)?;
        controller = next;
        figures.extend(found);
    }
    if options.wants("takeover") {
        figures.extend(takeover::figures(&world, controller, 1)?);
    }
    Ok(())
}

fn guarded(options: &Options, figures: &mut Vec<Figure>, _: &mut Vec<Cost>) -> Result<()> {
    if options.wants("policies") {
        figures.extend(policies::figures(sized(SMALL, options))?);
    }
    Ok(())
}

fn flows(options: &Options, figures: &mut Vec<Figure>, _: &mut Vec<Cost>) -> Result<()> {
    if options.wants("flows") {
        figures.extend(naive::figures(sized(SMALL, options), fewer(FEWER_SERVICES, options), POLICIES)?);
    }
    Ok(())
}

fn many_services(options: &Options, figures: &mut Vec<Figure>, _: &mut Vec<Cost>) -> Result<()> {
    if options.wants("services") {
        let nodes = sized(LARGE, options).nodes;
        figures.extend(services::figures(nodes, fewer(SERVICES, options))?);
    }
    Ok(())
}

/// As many Services as pods, for a quick look.
fn fewer(services: Services, options: &Options) -> Services {
    Services { count: options.pods.map_or(services.count, |pods| pods.max(200)), ..services }
}
