//! A lab whose databases are members of `ovnkube db serve`, one each, and their processes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use database::Kind;
use database::status::ClusterStatus;
use lab::{ChassisSpec, Kubernetes, Lab, LabSpec, Program};

use crate::object_watch::TIMEOUT;
use crate::world::World;

/// Address of the control machine, where everything runs.
const CONTROL: &str = "10.99.0.1";

/// A process of the control plane.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// Whether it is our program.
    pub(crate) ours: bool,
    pub(crate) pid: u32,
}

impl Process {
    pub(crate) fn cpu(&self) -> Result<f64> {
        Ok(bench::process_cpu_seconds(self.pid)?)
    }

    pub(crate) fn peak(&self) -> Result<f64> {
        Ok(bench::process_peak_megabytes(self.pid)?)
    }
}

pub(crate) struct Managed {
    pub(crate) world: World,
    pub(crate) processes: Vec<Process>,
}

impl Managed {
    /// Starts databases, northd and light chassis.
    pub(crate) fn start(nodes: usize) -> Result<Self> {
        eprintln!("a lab for {nodes} nodes, with databases of `ovnkube db serve`");
        let lab = Lab::start(LabSpec::for_test("bench-database")?.kubernetes(Kubernetes::default()))?;
        let mut processes = Vec::new();
        for (kind, manager, server) in [
            (Kind::Northbound, "ovnkube db, northbound", "ovsdb-server, northbound"),
            (Kind::Southbound, "ovnkube db, southbound", "ovsdb-server, southbound"),
        ] {
            let name = format!("db-{}", kind.short());
            let program = Program::new(&name, ovnkube()?)
                .arguments(["db", "serve", kind.short(), "--host", CONTROL, "--peers", CONTROL, "--listen", "0.0.0.0"])
                .arguments(["--namespace", "default", "--metrics-bind-address", "off"]);
            lab.machine("control")?.run(&["mkdir", "-p", "/etc/ovn", "/run/ovn"])?;
            lab.run(&program)?;
            let pid = lab.record().component(&name)?.process.pid;
            processes.push(Process { name: manager, ours: true, pid });
            processes.push(Process { name: server, ours: false, pid: await_child(pid)? });
        }
        // A server creates its socket a moment after its start.
        lab::poll(TIMEOUT, || lab.nbctl(&["init"]))?;
        lab::poll(TIMEOUT, || lab.sbctl(&["init"]))?;
        let (northbound, southbound) = (socket(&lab, Kind::Northbound), socket(&lab, Kind::Southbound));
        let northd = Program::new("northd", "ovn-northd")
            .arguments([format!("--ovnnb-db={northbound}"), format!("--ovnsb-db={southbound}")])
            .arguments(["-vconsole:warn", "-vsyslog:off", "--log-file=/dev/null"]);
        lab.run(&northd)?;
        let pid = lab.record().component("northd")?.process.pid;
        processes.push(Process { name: "ovn-northd", ours: false, pid });
        lab.nbctl(&["--wait=sb", "sync"])?;
        let chassis = ChassisSpec::numbered("node-", u32::try_from(nodes)?);
        let world = World::around(lab, nodes, [northbound, southbound], &chassis)?.with_northd();
        Ok(Self { world, processes })
    }

    fn command(&self, kind: Kind, command: &str) -> Result<String> {
        let socket = format!("/run/ovn/ovn{}_db.ctl", kind.short());
        let words = ["ovn-appctl", "--timeout=120", "-t", &socket, command, kind.schema()];
        Ok(self.world.lab.machine("control")?.run_within(TIMEOUT, &words)?)
    }

    /// Writes a snapshot of the database, without which its file has every change since the last one.
    pub(crate) fn compact(&self, kind: Kind) -> Result<()> {
        self.command(kind, "ovsdb-server/compact").map(drop)
    }

    /// Size of the database file in bytes.
    pub(crate) fn size(&self, kind: Kind) -> Result<u64> {
        let init = self.world.lab.machine("control")?.init().pid;
        let file = PathBuf::from(format!("/proc/{init}/root/etc/ovn/ovn{}_db.db", kind.short()));
        Ok(std::fs::metadata(&file).with_context(|| format!("no {}", file.display()))?.len())
    }

    /// Number of entries that raft has written so far.
    pub(crate) fn entries(&self, kind: Kind) -> Result<u64> {
        Ok(ClusterStatus::parse(&self.command(kind, "cluster/status")?).log.1)
    }
}

/// The release build next to this program.
pub(crate) fn ovnkube() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("ovnkube");
    if !program.exists() {
        bail!("{} not found: run `make bench-database`, which builds it", program.display());
    }
    Ok(program)
}

/// The socket of a server on the control machine, valid on the host.
fn socket(lab: &Lab, kind: Kind) -> String {
    let root = lab::directories::Directories::from_environment().map(|directories| directories.lab(lab.name()));
    let run = root.map(|root| lab::machine_dir(&root, "control").join("run/ovn")).unwrap_or_default();
    format!("unix:{}", run.join(format!("ovn{}_db.sock", kind.short())).display())
}

/// The first child of a process, as soon as it has one.
pub(crate) fn await_child(pid: u32) -> Result<u32> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // A database file is created by a short-lived child before.
        for child in children(pid) {
            let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if name.trim() == "ovsdb-server" {
                return Ok(child);
            }
        }
        if Instant::now() > deadline {
            bail!("process {pid} did not start ovsdb-server within {TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn children(pid: u32) -> Vec<u32> {
    let parent = |text: &str| text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            parent(&stat) == Some(pid)
        })
        .collect()
}
