//! A lab in the hands of its owner: started from a spec, removed when it goes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::central::{self, Database};
use crate::container_image;
use crate::control_plane::{API_PORT, API_SERVER, ControlPlane, await_api, programs};
use crate::deployment;
use crate::error::{Error, Result};
use crate::fault;
use crate::image;
use crate::kubelet;
use crate::kubernetes_programs;
use crate::light_chassis::{ChassisSpec, LightChassis};
use crate::machine::Machine;
use crate::node;
use crate::outside;
use crate::ownership::{Ownership, Purpose};
use crate::place::{Place, require_root, require_space};
use crate::process::ProcessId;
use crate::program::Program;
use crate::progress::Progress;
use crate::record::{Endpoints, Ledger, Phase, Record};
use crate::relay::Relay;
use crate::site::{Extras, Site, side_by_side};
use crate::spec::LabSpec;
use crate::teardown;
use crate::underlay::{CONTROL, FABRIC, build_switch, node_name};
use crate::view;

const STATE_SPACE_MIB: u64 = 500;
const FAILURES_KEPT: usize = 20;

/// A running lab. Dropping it removes everything that it made; after a panic the logs are shown and kept.
pub struct Lab {
    site: Site,
    relay: Option<Relay>,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").field("name", &self.site.spec.name).finish_non_exhaustive()
    }
}

/// What a lab runs on, found or made: the long part, done before anything starts.
#[derive(Debug, Clone)]
pub struct Supplies {
    /// The node image.
    pub image: PathBuf,
    /// The Kubernetes programs, if the lab has Kubernetes.
    pub kubernetes: Option<PathBuf>,
    /// The cluster's name service, if the lab has our network.
    pub coredns: Option<PathBuf>,
}

impl Supplies {
    /// Finds or makes them.
    pub fn ensure(place: &Place, spec: &LabSpec, progress: &Progress) -> Result<Self> {
        let kubernetes = spec.kubernetes.as_ref().map(|_| kubernetes_programs::ensure(place, progress)).transpose()?;
        let coredns =
            spec.product.as_ref().map(|_| kubernetes_programs::ensure_coredns(place, progress)).transpose()?;
        Ok(Self { image: image::ensure(place, spec.suite, progress)?, kubernetes, coredns })
    }
}

impl Lab {
    /// Starts a lab in the folders that the environment names. Returns when everything asked for answers.
    pub fn start(spec: LabSpec) -> Result<Self> {
        Self::start_in(Place::from_environment()?, spec, Progress::silent())
    }

    /// Starts a lab in folders of one's own choice, telling progress.
    pub fn start_in(place: Place, spec: LabSpec, progress: Progress) -> Result<Self> {
        spec.check()?;
        require_root("lab up")?;
        require_space(&place.labs(), "the state of a lab", STATE_SPACE_MIB, crate::place::STATE_VARIABLE)?;
        teardown::sweep(&place);
        let supplies = Supplies::ensure(&place, &spec, &progress)?;
        let record = Record {
            name: spec.name.clone(),
            phase: Phase::Starting,
            owner: ProcessId::of(std::process::id())
                .ok_or_else(|| Error::Invalid("/proc is not mounted; the lab needs it".into()))?,
            spec: spec.clone(),
            image: supplies.image.clone(),
            kubernetes: supplies.kubernetes.clone(),
            machines: Vec::new(),
            components: Vec::new(),
            cgroups: Vec::new(),
            endpoints: Endpoints::default(),
        };
        let Some(ownership) = Ownership::take(&place, &spec.name, Purpose::Own)? else {
            return Err(Error::Running { name: spec.name });
        };
        if place.lab(&spec.name).exists() {
            // A lab of that name crashed: what it left would mix with the new one.
            teardown::clean_crashed(&place, &spec.name)?;
        }
        let ledger = Ledger::create(&place, record, ownership)?;
        let site = Site::new(place, spec, supplies.image, supplies.kubernetes, ledger, progress)?;
        let mut lab = Self { site, relay: None };
        lab.build(supplies.coredns.as_deref())?;
        Ok(lab)
    }

    fn build(&mut self, coredns: Option<&Path>) -> Result<()> {
        let site = &self.site;
        site.progress.step("underlay and outside", || {
            build_switch(&site.add_machine(FABRIC, Extras::default())?)?;
            site.add_attached_machine(CONTROL, Extras::default())?;
            outside::start(site)
        })?;
        // First of all, since a port that is taken is the caller's to mend.
        let relay = match &site.spec.kubernetes {
            Some(kubernetes) => {
                let target = SocketAddr::new(site.plan.primary(CONTROL)?, API_PORT);
                Some(Relay::start(site.machine(CONTROL)?, target, kubernetes.api_port)?)
            }
            None => None,
        };
        let mut plane = None;
        // Three things that do not need each other: Kubernetes, OVN's databases, and Open vSwitch on the nodes.
        side_by_side(vec![
            Box::new(|| {
                if site.spec.kubernetes.is_some() {
                    plane = Some(ControlPlane::start(site)?);
                }
                Ok(())
            }),
            Box::new(|| site.spec.ovn.as_ref().map_or(Ok(()), |ovn| central::start(site, ovn))),
            Box::new(|| self.start_switches()),
        ])?;
        if let (Some(ovn), None) = (&site.spec.ovn, &site.spec.product) {
            site.progress.step("chassis", || {
                self.on_every_node(|_, machine| node::start_ovn_controller(site, &machine, ovn))?;
                if ovn.northds > 0 {
                    // Returns when every chassis has caught up.
                    site.machine(CONTROL)?.run(&["ovn-nbctl", "--timeout=100", "--wait=hv", "sync"])?;
                }
                Ok::<_, Error>(())
            })?;
        }
        if let (Some(plane), Some(kubernetes)) = (&plane, &site.spec.kubernetes)
            && kubernetes.kubelets
        {
            site.progress.step("kubelets", || {
                let mut images = container_image::ensure(&site.place, &site.image, &programs(site)?)?;
                if let (Some(product), Some(coredns)) = (&site.spec.product, coredns) {
                    images.extend(deployment::images(site, product, coredns)?);
                }
                self.on_every_node(|index, machine| kubelet::start(site, &machine, index, plane, kubernetes, &images))
            })?;
        }
        if let (Some(plane), Some(relay)) = (&plane, &relay) {
            let kubeconfig = plane.host_kubeconfig(relay.address())?;
            site.ledger.change(|record| {
                record.endpoints.api = Some(format!("https://{}", relay.address()));
                record.endpoints.kubeconfig = Some(kubeconfig);
            })?;
        }
        if let Some(product) = &site.spec.product {
            deployment::start(site, product)?;
        }
        self.relay = relay;
        self.site.ledger.change(|record| record.phase = Phase::Ready)
    }

    fn start_switches(&self) -> Result<()> {
        let site = &self.site;
        if site.spec.nodes == 0 {
            return Ok(());
        }
        let kubelets = site.spec.kubernetes.as_ref().is_some_and(|kubernetes| kubernetes.kubelets);
        let extras = if kubelets { Extras { cgroups: true, disks: kubelet::DISKS } } else { Extras::default() };
        if !Path::new("/dev/net/tun").exists() {
            return Err(Error::MissingTool {
                program: "/dev/net/tun".into(),
                purpose: "Open vSwitch's userspace datapath makes its ports with it".into(),
                remedy: "load the tun module (modprobe tun), or pass the device into the container".into(),
            });
        }
        site.progress.step("Open vSwitch on the nodes", || {
            self.on_every_node_named(|_, name| node::start_openvswitch(site, &site.add_plugged_machine(name, extras)?))
        })
    }

    fn on_every_node_named(&self, work: impl Fn(u32, &str) -> Result<()> + Sync) -> Result<()> {
        let work = &work;
        side_by_side(
            (1..=self.site.spec.nodes)
                .map(|index| -> Box<dyn FnOnce() -> Result<()> + Send + '_> {
                    Box::new(move || work(index, &node_name(index)))
                })
                .collect(),
        )
    }

    fn on_every_node(&self, work: impl Fn(u32, Machine) -> Result<()> + Sync) -> Result<()> {
        self.on_every_node_named(|index, name| work(index, self.site.machine(name)?))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.site.spec.name
    }

    /// What it made, as of now.
    pub fn record(&self) -> Record {
        self.site.ledger.read().clone()
    }

    /// A way into a machine.
    pub fn machine(&self, name: &str) -> Result<Machine> {
        self.site.machine(name)
    }

    /// A way into node `index`, from 1.
    pub fn node(&self, index: u32) -> Result<Machine> {
        self.machine(&node_name(index))
    }

    /// Runs `ovn-nbctl` and returns what it printed.
    pub fn nbctl(&self, words: &[&str]) -> Result<String> {
        self.control_tool(&["ovn-nbctl", "--timeout=100"], words)
    }

    /// Runs `ovn-sbctl` and returns what it printed.
    pub fn sbctl(&self, words: &[&str]) -> Result<String> {
        self.control_tool(&["ovn-sbctl", "--timeout=100"], words)
    }

    /// Runs `kubectl` as administrator and returns what it printed.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.control_tool(&["kubectl"], words)
    }

    /// `kubectl apply` of a manifest.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        self.machine(CONTROL)?.run_with_input(&["kubectl", "apply", "-f", "-"], manifest)
    }

    fn control_tool(&self, tool: &[&str], words: &[&str]) -> Result<String> {
        self.machine(CONTROL)?.run(&[tool, words].concat())
    }

    /// The component that leads a database's raft now, as one of its members sees it.
    pub fn raft_leader(&self, database: Database) -> Result<String> {
        view::raft_leader(&self.record(), database)
    }

    /// Loses all files of a database and creates it anew, empty, at the same addresses.
    pub fn recreate_database(&self, database: Database) -> Result<()> {
        let ovn = self.site.spec.ovn.clone().ok_or_else(|| Error::Invalid("this lab has no OVN".into()))?;
        central::recreate(&self.site, &ovn, database)
    }

    /// Simulated chassis at the lab's southbound database; see [`LightChassis`].
    pub fn light_chassis(&self, chassis: &[ChassisSpec]) -> Result<LightChassis> {
        let southbound = self.site.ledger.read().endpoints.southbound.clone();
        LightChassis::start(&southbound.ok_or_else(|| Error::Invalid("this lab has no OVN".into()))?, chassis)
    }

    /// Runs a program of one's own as a component: [`Lab::kill`], [`Lab::pause`], [`Lab::terminate`] and
    /// [`Lab::restart`] know it by its name.
    pub fn run(&self, program: &Program) -> Result<()> {
        let running = self.record().component(program.name()).is_ok_and(|component| component.process.is_alive());
        if running {
            return Err(Error::Invalid(format!("a component named {:?} runs already", program.name())));
        }
        self.site.start(program.component(self.site.dir())?)
    }

    /// Asks a component to end (SIGTERM), waits for it and tells how it ended.
    pub fn terminate(&self, component: &str, limit: Duration) -> Result<ExitStatus> {
        fault::terminate(&self.record(), component)?;
        self.site.wait_end(component, limit)
    }

    /// Waits for a component's end and tells how it ended.
    pub fn wait_end(&self, component: &str, limit: Duration) -> Result<ExitStatus> {
        self.site.wait_end(component, limit)
    }

    /// What a component wrote so far.
    pub fn log(&self, component: &str) -> Result<String> {
        let log = view::log(&self.record(), component)?;
        let bytes = std::fs::read(&log).map_err(Error::io(format!("cannot read {}", log.display())))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Starts a component again as it was started first; returns when it does its work again.
    pub fn restart(&self, component: &str) -> Result<()> {
        self.site.restart(component)?;
        if component == API_SERVER { await_api(&self.site) } else { Ok(()) }
    }

    /// Kills a component; see [`fault::kill`].
    pub fn kill(&self, component: &str) -> Result<fault::Killed> {
        fault::kill(&self.record(), component)
    }

    /// Stops a component; see [`fault::pause`].
    pub fn pause(&self, component: &str) -> Result<fault::Paused> {
        fault::pause(&self.record(), component)
    }

    /// Cuts two machines off from each other; see [`fault::partition`].
    pub fn partition(&self, one: &str, other: &str) -> Result<fault::Drops> {
        fault::partition(&self.record(), one, other)
    }

    /// Loses packets of a machine; see [`fault::lose`].
    pub fn lose(&self, machine: &str, percent: u8) -> Result<fault::Drops> {
        fault::lose(&self.record(), machine, percent)
    }

    /// Puts a small disk on a machine; see [`fault::small_disk`].
    pub fn small_disk(&self, machine: &str, path: &str, mib: u32) -> Result<fault::SmallDisk> {
        fault::small_disk(&self.record(), machine, path, mib)
    }

    /// Changes what the record says of how to reach the lab.
    pub fn publish(&self, change: impl FnOnce(&mut Endpoints)) -> Result<()> {
        self.site.ledger.change(|record| change(&mut record.endpoints))
    }

    /// Has every start (`None`) and end (`Some(status)`) of a component told; those that run are told at once.
    pub fn observe(&self, observer: impl Fn(&str, Option<&str>) + Send + 'static) {
        self.site.observe(observer);
    }

    /// Shows the end of every log and keeps the logs, for the one who looks into a failure.
    fn keep_logs(&self) {
        let record = self.record();
        eprintln!("---- lab {} failed; the end of each log:", record.name);
        for component in &record.components {
            let tail = view::tail(&component.log, 12);
            let state = component.ended.as_deref().unwrap_or("running");
            eprintln!("---- {} on {} ({state})\n{tail}", component.name, component.machine);
        }
        let kept = self.site.place.failed(&record.name);
        let moved = crate::error::make_dir(&kept).is_ok()
            && record.components.iter().all(|component| {
                component.log.file_name().is_none_or(|name| std::fs::copy(&component.log, kept.join(name)).is_ok())
            });
        if moved {
            eprintln!("---- whole logs are kept in {}", kept.display());
        }
        deployment::keep_logs_of_pods(&self.site, &kept);
        forget_old_logs(kept.parent().unwrap_or(&kept));
    }
}

/// Keeps the logs of the last failures only.
fn forget_old_logs(failed: &Path) {
    let Ok(entries) = std::fs::read_dir(failed) else { return };
    let mut kept: Vec<_> =
        entries.flatten().filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    kept.sort();
    for (_, old) in kept.iter().rev().skip(FAILURES_KEPT) {
        let _ = std::fs::remove_dir_all(old);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.relay = None;
        let started = self.site.ledger.read().phase == Phase::Ready;
        if std::thread::panicking() || !started {
            self.keep_logs();
        }
        self.site.stop_everything();
        let record = self.record();
        if let Err(error) = teardown::clean(&self.site.place.lab(&record.name), &record) {
            tracing::error!(lab = record.name, %error, "cannot remove all of the lab; `lab down` can be run again");
        } else {
            self.site.ledger.forget();
        }
    }
}
