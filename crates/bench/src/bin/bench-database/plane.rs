//! The whole control plane: CPU and memory of every process, our share, and the managers when nothing happens.

use std::time::Duration;

use anyhow::Result;
use bench::{Figure, Goal};

use crate::controller::Controller;
use crate::disk::{Census, Stage};
use crate::managed::{Managed, Process};
use crate::objects::Pods;
use crate::workload::{Policies, Services};

/// Endpoints of each Service.
pub(crate) const ENDPOINTS: usize = 10;
/// How long idle processes are watched.
const IDLE: Duration = Duration::from_secs(60);

/// What was measured while one lab grew.
pub(crate) struct Grown {
    pub(crate) stages: Vec<Stage>,
}

/// Grows a cluster object by object; returns the sizes of the databases at each stage.
pub(crate) fn grow(census: Census, figures: &mut Vec<Figure>) -> Result<Grown> {
    let mut managed = Managed::start(census.nodes)?;
    let controller = Controller::lead(&managed.world, "c1")?;
    managed.processes.push(Process { name: "ovnkube controller", ours: true, pid: controller.pid });
    let world = &managed.world;
    world.settle(&[&controller])?;
    let mut stages = vec![Stage::measure(&managed, Census::default())?];
    let mut here = Census::default();

    // In two steps: the southbound database grows with the square of the nodes.
    for nodes in [census.nodes / 2, census.nodes] {
        world.join_some(here.nodes..nodes)?;
        here.nodes = nodes;
        world.settle(&[&controller])?;
        stages.push(Stage::measure(&managed, here)?);
    }

    world.grow(&Pods::new("grow", census.pods, census.nodes))?;
    here.pods = census.pods;
    world.settle(&[&controller])?;
    processes(&managed.processes, here, figures)?;
    stages.push(Stage::measure(&managed, here)?);

    let services = Services { count: census.services, endpoints: ENDPOINTS };
    world.inside(async |api| services.create(&api).await)?;
    here.services = census.services;
    world.settle(&[&controller])?;
    stages.push(Stage::measure(&managed, here)?);

    let namespaces = (census.policies / 10).max(1);
    let policies = Policies { purpose: "grow".into(), count: census.policies, namespaces };
    world.inside(async |api| policies.create(&api).await)?;
    here.policies = census.policies;
    world.settle(&[&controller])?;
    stages.push(Stage::measure(&managed, here)?);

    idle(&managed.processes, here, figures)?;
    Ok(Grown { stages })
}

/// CPU seconds and peak memory of every process so far.
fn processes(processes: &[Process], census: Census, figures: &mut Vec<Figure>) -> Result<()> {
    let size = format!("{} pods on {} nodes", census.pods, census.nodes);
    let (mut whole, mut ours) = ((0.0, 0.0), (0.0, 0.0));
    for process in processes {
        let (cpu, peak) = (process.cpu()?, process.peak()?);
        whole = (whole.0 + cpu, whole.1 + peak);
        if process.ours {
            ours = (ours.0 + cpu, ours.1 + peak);
        }
        eprintln!("  {}: {cpu:.2} s CPU, {peak:.1} MB", process.name);
        figures.push(Figure::new(format!("control plane: CPU of {}, {size}", process.name), cpu, "s"));
        let figure = Figure::new(format!("control plane: peak RSS of {}, {size}", process.name), peak, "MB");
        figures.push(if process.name.starts_with("ovnkube db") {
            figure.with_goal(Goal::AtMost(15.0))
        } else {
            figure
        });
    }
    figures.push(Figure::new(format!("control plane: CPU of all, {size}"), whole.0, "s"));
    figures.push(Figure::new(format!("control plane: peak RSS of all, {size}"), whole.1, "MB"));
    figures.push(Figure::new(format!("control plane: our share of the CPU, {size}"), 100.0 * ours.0 / whole.0, "%"));
    figures.push(Figure::new(format!("control plane: our share of the memory, {size}"), 100.0 * ours.1 / whole.1, "%"));
    Ok(())
}

/// CPU of the databases' managers while nothing changes.
fn idle(processes: &[Process], census: Census, figures: &mut Vec<Figure>) -> Result<()> {
    let managers: Vec<&Process> = processes.iter().filter(|process| process.name.starts_with("ovnkube db")).collect();
    let before = managers.iter().map(|process| process.cpu()).collect::<Result<Vec<f64>>>()?;
    std::thread::sleep(IDLE);
    for (process, before) in managers.into_iter().zip(before) {
        let percent = 100.0 * (process.cpu()? - before) / IDLE.as_secs_f64();
        let name = format!("idle CPU of {}, {} nodes", process.name, census.nodes);
        figures.push(Figure::new(name, percent, "% of a core").with_goal(Goal::AtMost(0.1)));
    }
    Ok(())
}
