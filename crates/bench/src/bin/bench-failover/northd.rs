//! How long ovn-northd takes to work again after the leader of a database failed: from the fault until a new `nb_cfg` was
//! copied to the southbound database, and back.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench::{Figure, Goal};
use lab::{Database, Databases, Kubernetes, Lab, LabSpec, NorthdSync, Ovn, Program};

use crate::fault::quantile;

const LIMIT: Duration = Duration::from_secs(120);
/// The goal for 95 % of all faults, in seconds.
const GOAL: f64 = 3.0;
/// Between two faults. ovn-northd doubles its backoff, up to 8 s, if it loses a connection that was younger than the last
/// backoff.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
enum Loss {
    Killed,
    Stopped,
    CutOff,
}

impl Loss {
    fn title(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::CutOff => "cut off from the other members",
        }
    }
}

/// A controller with its northd on three raft members of each database, and a client.
struct Bed {
    lab: Lab,
    sync: NorthdSync,
}

pub(crate) fn figures(times: usize) -> Result<Vec<Figure>> {
    let bed = Bed::start()?;
    let mut figures = Vec::new();
    for database in [Database::Northbound, Database::Southbound] {
        for loss in [Loss::Killed, Loss::Stopped, Loss::CutOff] {
            let name = format!("northd works again, {} leader {}", database.short().to_uppercase(), loss.title());
            eprintln!("{name}");
            let mut measured = Vec::new();
            for number in 1..=times {
                let time = bed.lose(database, loss).with_context(|| name.clone())?;
                eprintln!("  {number} of {times}: {:.2} s", time.as_secs_f64());
                measured.push(time);
            }
            let unit = format!("s, of {times}");
            for (quantile_name, share) in [("p50", 0.5), ("p95", 0.95), ("max", 1.0)] {
                let figure = Figure::new(format!("{name}, {quantile_name}"), quantile(&measured, share), &unit);
                figures.push(if share == 0.95 { figure.with_goal(Goal::AtMost(GOAL)) } else { figure });
            }
        }
    }
    Ok(figures)
}

impl Bed {
    fn start() -> Result<Self> {
        let program =
            bench::figures_directory()?.parent().map(Path::to_owned).unwrap_or_default().join("image/ovnkube");
        let ovn = Ovn { databases: Databases::Raft, northds: 0, ..Ovn::default() };
        let lab = Lab::start(LabSpec::for_test("northd")?.ovn(ovn).kubernetes(Kubernetes::default()))?;
        let endpoints = lab.record().endpoints;
        let northbound = endpoints.northbound.context("the lab has no northbound database")?;
        let southbound = endpoints.southbound.context("the lab has no southbound database")?;
        let controller = Program::new("controller", program)
            .arguments(["controller", "--run-northd", "--identity", "one", "--metrics-bind-address", "off"])
            .arguments(["--nb-address", &northbound, "--sb-address", &southbound])
            .arguments(["--k8s-service-cidrs", "10.96.0.0/16"]);
        lab.run(&controller)?;
        let bed = Self { sync: NorthdSync::connect(&northbound)?, lab };
        bed.sync()?;
        Ok(bed)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync.wait(LIMIT)?)
    }

    /// Injects a fault, measures, and undoes it.
    fn lose(&self, database: Database, loss: Loss) -> Result<Duration> {
        // Both databases are whole and in use before the fault.
        std::thread::sleep(SETTLE);
        self.sync()?;
        let leader = lab::poll(LIMIT, || self.lab.raft_leader(database))?;
        let begun = Instant::now();
        let time = match loss {
            Loss::Killed => {
                self.lab.kill(&leader)?;
                let time = self.sync().map(|()| begun.elapsed());
                self.lab.restart(&leader)?;
                time?
            }
            Loss::Stopped => {
                let paused = self.lab.pause(&leader)?;
                let time = self.sync().map(|()| begun.elapsed());
                paused.resume()?;
                time?
            }
            Loss::CutOff => {
                let alone = format!("db-{}", leader.rsplit('-').next().unwrap_or_default());
                let others = ["db-1", "db-2", "db-3"].into_iter().filter(|other| *other != alone);
                let cuts = others.map(|other| self.lab.partition(&alone, other)).collect::<Result<Vec<_>, _>>()?;
                let time = self.sync().map(|()| begun.elapsed());
                for cut in cuts {
                    cut.heal()?;
                }
                time?
            }
        };
        // The member is back before the next fault: two at once would leave no quorum.
        lab::poll(LIMIT, || self.is_whole(database).then_some(()).context("a member did not come back"))?;
        Ok(time)
    }

    /// Whether a leader has heard of both other members lately.
    fn is_whole(&self, database: Database) -> bool {
        let Ok(leader) = self.lab.raft_leader(database) else { return false };
        let machine = format!("db-{}", leader.rsplit('-').next().unwrap_or_default());
        let script = format!(
            "ovn-appctl --timeout=2 -t {} cluster/status {} | grep -c 'last msg [0-9]\\{{1,3\\}} ms ago'",
            database.control_socket(),
            database.schema()
        );
        let counted = self.lab.machine(&machine).and_then(|machine| machine.output(&["sh", "-c", &script]));
        counted.is_ok_and(|counted| String::from_utf8_lossy(&counted.stdout).trim() == "2")
    }
}
