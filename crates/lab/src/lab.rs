//! The handle of a running lab: started from a spec, removed on drop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::central::{self, Database};
use crate::container_image;
use crate::control_plane::{API_PORT, ControlPlane, programs};
use crate::deployment;
use crate::directories::{Directories, require_root, require_space};
use crate::dns::NameServer;
use crate::error::{Error, Result};
use crate::fault;
use crate::image;
use crate::inspect;
use crate::kubelet;
use crate::kubernetes_programs;
use crate::light_chassis::{ChassisSpec, LightChassis};
use crate::machine::Machine;
use crate::node;
use crate::outside;
use crate::ownership::{Ownership, Purpose};
use crate::power;
use crate::process::ProcessId;
use crate::program::Program;
use crate::progress::Progress;
use crate::prometheus::{self, Prometheus};
use crate::record::{Endpoints, Phase, Record, RecordFile};
use crate::signed;
use crate::spec::LabSpec;
use crate::supervisor::{Component, MachineOptions, Supervisor, run_parallel};
use crate::tcp_forwarder::TcpForwarder;
use crate::teardown;
use crate::underlay::{CONTROL, FABRIC, OUTSIDE, build_switch, node_name};
use crate::volumes;

const STATE_SPACE_MIB: u64 = 500;
const FAILURES_KEPT: usize = 20;

/// A running lab. Dropping it removes everything that it created; after a panic the logs are printed and kept.
pub struct Lab {
    supervisor: Supervisor,
    forwarders: Vec<TcpForwarder>,
    names: Option<NameServer>,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").field("name", &self.supervisor.spec.name).finish_non_exhaustive()
    }
}

/// What a lab runs on. Building it takes minutes, so it is done (once, then cached) before anything starts.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// Root directory of the node image.
    pub image: PathBuf,
    /// Directory of the Kubernetes programs; only with Kubernetes.
    pub kubernetes: Option<PathBuf>,
    /// The CoreDNS program; only with ovnkube.
    pub coredns: Option<PathBuf>,
    /// Prometheus with promtool; only if the lab was asked for it.
    pub prometheus: Option<prometheus::Programs>,
}

impl Artifacts {
    /// Finds them in the cache or builds them.
    pub fn ensure(directories: &Directories, spec: &LabSpec, progress: &Progress) -> Result<Self> {
        let kubernetes =
            spec.kubernetes.as_ref().map(|_| kubernetes_programs::ensure(directories, progress)).transpose()?;
        let coredns =
            spec.product.as_ref().map(|_| kubernetes_programs::ensure_coredns(directories, progress)).transpose()?;
        let prometheus =
            spec.prometheus.map(|_| prometheus::Programs::ensure(directories, spec.suite, progress)).transpose()?;
        Ok(Self { image: image::ensure(directories, spec.suite, progress)?, kubernetes, coredns, prometheus })
    }
}

impl Lab {
    /// Starts a lab in the directories that the environment names; returns when every component is ready.
    pub fn start(spec: LabSpec) -> Result<Self> {
        Self::start_in(Directories::from_environment()?, spec, Progress::silent())
    }

    /// Starts a lab in the given directories and reports progress.
    pub(crate) fn start_in(directories: Directories, spec: LabSpec, progress: Progress) -> Result<Self> {
        spec.check()?;
        require_root("lab up")?;
        require_space(&directories.labs(), "the state of a lab", STATE_SPACE_MIB, crate::directories::STATE_VARIABLE)?;
        teardown::sweep(&directories);
        let artifacts = Artifacts::ensure(&directories, &spec, &progress)?;
        let record = Record {
            name: spec.name.clone(),
            phase: Phase::Starting,
            owner: ProcessId::of(std::process::id())
                .ok_or_else(|| Error::Invalid("/proc is not mounted; the lab needs it".into()))?,
            spec: spec.clone(),
            image: artifacts.image.clone(),
            kubernetes: artifacts.kubernetes.clone(),
            machines: Vec::new(),
            components: Vec::new(),
            cgroups: Vec::new(),
            endpoints: Endpoints::default(),
        };
        let Some(ownership) = Ownership::take(&directories, &spec.name, Purpose::Own)? else {
            return Err(Error::Running { name: spec.name });
        };
        if directories.lab(&spec.name).exists() {
            // A lab of that name crashed: its leftovers would mix with the new lab.
            teardown::clean_crashed(&directories, &spec.name)?;
        }
        let record_file = RecordFile::create(&directories, record, ownership)?;
        let supervisor = Supervisor::new(directories, spec, &artifacts, record_file, progress)?;
        let mut lab = Self { supervisor, forwarders: Vec::new(), names: None };
        lab.build(&artifacts)?;
        Ok(lab)
    }

    fn build(&mut self, artifacts: &Artifacts) -> Result<()> {
        let supervisor = &self.supervisor;
        supervisor.progress.step("underlay and outside", || {
            build_switch(&supervisor.add_machine(FABRIC, MachineOptions::default())?)?;
            supervisor.add_addressed_machine(CONTROL, MachineOptions::default())?;
            outside::start(supervisor)
        })?;
        let names = NameServer::start(&supervisor.machine(OUTSIDE)?, supervisor.spec.family, supervisor.dir())?;
        // Before the slow steps: if the requested port is in use, the user has to choose another one.
        let forwarder = match &supervisor.spec.kubernetes {
            Some(kubernetes) => {
                let target = SocketAddr::new(supervisor.plan.primary(CONTROL)?, API_PORT);
                Some(TcpForwarder::start(supervisor.machine(CONTROL)?, target, kubernetes.api_port)?)
            }
            None => None,
        };
        let mut plane = None;
        // Independent of each other: Kubernetes, the OVN databases, and Open vSwitch on the nodes.
        run_parallel(vec![
            Box::new(|| {
                if supervisor.spec.kubernetes.is_some() {
                    plane = Some(ControlPlane::start(supervisor)?);
                }
                Ok(())
            }),
            Box::new(|| supervisor.spec.ovn.as_ref().map_or(Ok(()), |ovn| central::start(supervisor, ovn))),
            Box::new(|| self.start_switches()),
        ])?;
        if let (Some(ovn), None) = (&supervisor.spec.ovn, &supervisor.spec.product) {
            supervisor.progress.step("chassis", || {
                self.on_every_node(|_, machine| node::start_ovn_controller(supervisor, &machine, ovn))?;
                if ovn.northds > 0 {
                    // Returns when every chassis has acknowledged nb_cfg.
                    supervisor.machine(CONTROL)?.run(&["ovn-nbctl", "--timeout=100", "--wait=hv", "sync"])?;
                }
                Ok::<_, Error>(())
            })?;
        }
        if let (Some(plane), Some(kubernetes)) = (&plane, &supervisor.spec.kubernetes)
            && kubernetes.kubelets
        {
            supervisor.progress.step("kubelets", || {
                let mut images =
                    container_image::ensure(&supervisor.directories, &supervisor.image, &programs(supervisor)?)?;
                if let (Some(product), Some(coredns)) = (&supervisor.spec.product, &artifacts.coredns) {
                    images.extend(deployment::images(supervisor, product, coredns)?);
                }
                self.on_every_node(|index, machine| {
                    kubelet::start(supervisor, &machine, index, plane, kubernetes, &images)
                })
            })?;
        }
        volumes::start(supervisor)?;
        if let (Some(plane), Some(forwarder)) = (&plane, &forwarder) {
            let kubeconfig = plane.host_kubeconfig(forwarder.address())?;
            supervisor.record_file.change(|record| {
                record.endpoints.api = Some(format!("https://{}", forwarder.address()));
                record.endpoints.kubeconfig = Some(kubeconfig);
            })?;
        }
        if let Some(product) = &supervisor.spec.product {
            deployment::start(supervisor, product)?;
        }
        self.forwarders.extend(forwarder);
        if let (Some(programs), Some(compression)) = (&artifacts.prometheus, supervisor.spec.prometheus) {
            supervisor.progress.step("prometheus", || prometheus::start(supervisor, programs, compression))?;
            let target = SocketAddr::new(supervisor.plan.primary(CONTROL)?, prometheus::PORT);
            let forwarder = TcpForwarder::start(supervisor.machine(CONTROL)?, target, None)?;
            let url = format!("http://{}", forwarder.address());
            supervisor.record_file.change(|record| record.endpoints.prometheus = Some(url))?;
            self.forwarders.push(forwarder);
        }
        self.names = Some(names);
        self.supervisor.record_file.change(|record| record.phase = Phase::Ready)
    }

    fn start_switches(&self) -> Result<()> {
        let supervisor = &self.supervisor;
        if supervisor.spec.nodes == 0 {
            return Ok(());
        }
        let kubelets = supervisor.spec.kubernetes.as_ref().is_some_and(|kubernetes| kubernetes.kubelets);
        let options =
            if kubelets { MachineOptions { cgroups: true, disks: kubelet::DISKS } } else { MachineOptions::default() };
        if !Path::new("/dev/net/tun").exists() {
            return Err(Error::MissingTool {
                program: "/dev/net/tun".into(),
                purpose: "the userspace datapath of Open vSwitch creates its ports with it".into(),
                remedy: "load the tun module (modprobe tun), or pass the device into the container".into(),
            });
        }
        supervisor.progress.step("Open vSwitch on the nodes", || {
            self.on_every_node_named(|_, name| {
                node::start_openvswitch(supervisor, &supervisor.add_connected_machine(name, options)?)
            })
        })
    }

    fn on_every_node_named(&self, work: impl Fn(u32, &str) -> Result<()> + Sync) -> Result<()> {
        let work = &work;
        run_parallel(
            (1..=self.supervisor.spec.nodes)
                .map(|index| -> Box<dyn FnOnce() -> Result<()> + Send + '_> {
                    Box::new(move || work(index, &node_name(index)))
                })
                .collect(),
        )
    }

    fn on_every_node(&self, work: impl Fn(u32, Machine) -> Result<()> + Sync) -> Result<()> {
        self.on_every_node_named(|index, name| work(index, self.supervisor.machine(name)?))
    }

    /// Unique among the labs on this host.
    pub fn name(&self) -> &str {
        &self.supervisor.spec.name
    }

    /// A snapshot of the record: machines, components, endpoints.
    pub fn record(&self) -> Record {
        self.supervisor.record_file.read().clone()
    }

    /// The lab's directory on the host.
    pub(crate) fn dir(&self) -> &Path {
        self.supervisor.dir()
    }

    /// A handle to run commands on a machine.
    pub fn machine(&self, name: &str) -> Result<Machine> {
        self.supervisor.machine(name)
    }

    /// A handle to node `index`, counted from 1.
    pub fn node(&self, index: u32) -> Result<Machine> {
        self.machine(&node_name(index))
    }

    /// Copies the certificates that ovnkube's signer created to the files of the lab (`pki/ovn`), again after a rotation.
    pub fn export_certificates(&self) -> Result<()> {
        signed::export(&self.supervisor)
    }

    /// Runs `ovn-nbctl` and returns its output.
    pub fn nbctl(&self, args: &[&str]) -> Result<String> {
        self.control_tool(&["ovn-nbctl", "--timeout=100"], args)
    }

    /// Runs `ovn-sbctl` and returns its output.
    pub fn sbctl(&self, args: &[&str]) -> Result<String> {
        self.control_tool(&["ovn-sbctl", "--timeout=100"], args)
    }

    /// Runs `kubectl` as administrator and returns its output.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.control_tool(&["kubectl"], args)
    }

    /// Runs `kubectl apply` with a manifest.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        self.machine(CONTROL)?.run_with_input(&["kubectl", "apply", "-f", "-"], manifest)
    }

    fn control_tool(&self, tool: &[&str], args: &[&str]) -> Result<String> {
        self.machine(CONTROL)?.run(&[tool, args].concat())
    }

    /// The component that is the raft leader of a database, according to its members.
    pub fn raft_leader(&self, database: Database) -> Result<String> {
        inspect::raft_leader(&self.record(), database)
    }

    /// Deletes all files of a database and recreates it, empty, at the same addresses.
    pub fn recreate_database(&self, database: Database) -> Result<()> {
        let ovn = self.supervisor.spec.ovn.clone().ok_or_else(|| Error::Invalid("this lab has no OVN".into()))?;
        central::recreate(&self.supervisor, &ovn, database)
    }

    /// Questions to the lab's Prometheus.
    pub fn prometheus(&self) -> Result<Prometheus> {
        self.supervisor.record_file.read().component("prometheus")?;
        Ok(Prometheus::on(self.machine(CONTROL)?))
    }

    /// Simulated chassis connected to the lab's southbound database; see [`LightChassis`].
    pub fn light_chassis(&self, chassis: &[ChassisSpec]) -> Result<LightChassis> {
        let southbound = self.supervisor.record_file.read().endpoints.southbound.clone();
        LightChassis::start(&southbound.ok_or_else(|| Error::Invalid("this lab has no OVN".into()))?, chassis)
    }

    /// Runs a program under test as a component: [`Lab::kill`], [`Lab::pause`], [`Lab::terminate`] and
    /// [`Lab::restart`] take its name.
    pub fn run(&self, program: &Program) -> Result<()> {
        let running = self.record().component(program.name()).is_ok_and(|component| component.process.is_alive());
        if running {
            return Err(Error::Invalid(format!("a component named {:?} is already running", program.name())));
        }
        self.supervisor.start(program.component(self.supervisor.dir())?)
    }

    pub(crate) fn start_component(&self, component: Component) -> Result<()> {
        self.supervisor.start(component)
    }

    /// Sends SIGTERM to a component and returns its exit status.
    pub fn terminate(&self, component: &str, limit: Duration) -> Result<ExitStatus> {
        fault::terminate(&self.record(), component)?;
        self.supervisor.wait_end(component, limit)
    }

    /// Waits until a component exits and returns its exit status.
    pub fn wait_end(&self, component: &str, limit: Duration) -> Result<ExitStatus> {
        self.supervisor.wait_end(component, limit)
    }

    /// Standard output and error of all starts of a component.
    pub fn log(&self, component: &str) -> Result<String> {
        let log = inspect::log(&self.record(), component)?;
        let bytes = std::fs::read(&log).map_err(Error::io(format!("cannot read {}", log.display())))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Restarts a component with its original command line; returns when it is ready.
    pub fn restart(&self, component: &str) -> Result<()> {
        self.supervisor.restart(component)
    }

    /// Sends SIGKILL to a component; returns when it is gone.
    pub fn kill(&self, component: &str) -> Result<fault::Killed> {
        fault::kill(&self.record(), component)
    }

    /// Sends SIGSTOP to a component; it keeps its sockets and answers nothing.
    pub fn pause(&self, component: &str) -> Result<fault::Paused> {
        fault::pause(&self.record(), component)
    }

    /// Drops all packets between two machines.
    pub fn partition(&self, one: &str, other: &str) -> Result<fault::DropRules> {
        fault::partition(&self.record(), one, other)
    }

    /// Drops all packets from one machine to another, but not those in the other direction.
    pub fn partition_one_way(&self, from: &str, to: &str) -> Result<fault::DropRules> {
        fault::partition_one_way(&self.record(), from, to)
    }

    /// Drops a percentage of a machine's packets, at random.
    pub fn lose(&self, machine: &str, percent: u8) -> Result<fault::DropRules> {
        fault::lose(&self.record(), machine, percent)
    }

    /// Cuts the power of a node: everything on it dies at once, and no packet tells the others.
    pub fn cut_power(&self, node: &str) -> Result<power::PowerCut> {
        power::cut(&self.supervisor, node)
    }

    /// Boots a node again; returns when its kubelet runs. Its pods follow.
    pub fn restore_power(&self, cut: power::PowerCut) -> Result<()> {
        power::restore(&self.supervisor, cut)
    }

    /// Mounts a small tmpfs at a path of a machine; the content of the directory is copied.
    pub fn small_disk(&self, machine: &str, path: &str, mib: u32) -> Result<fault::SmallDisk> {
        fault::small_disk(&self.record(), machine, path, mib)
    }

    /// Changes the endpoints in the record.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Endpoints)) -> Result<()> {
        self.supervisor.record_file.change(|record| change(&mut record.endpoints))
    }

    /// Calls `observer` at every start (`None`) and exit (`Some(status)`) of a component, and once for each existing
    /// one.
    pub fn observe(&self, observer: impl Fn(&str, Option<&str>) + Send + 'static) {
        self.supervisor.observe(observer);
    }

    /// Prints the end of every log and copies the logs, for debugging.
    fn keep_logs(&self) {
        let record = self.record();
        eprintln!("---- lab {} failed; last lines of each log:", record.name);
        for component in &record.components {
            let tail = inspect::tail(&component.log, 12);
            let state = component.ended.as_deref().unwrap_or("running");
            eprintln!("---- {} on {} ({state})\n{tail}", component.name, component.machine);
        }
        let kept = self.supervisor.directories.failed(&record.name);
        let moved = crate::error::create_dir(&kept).is_ok()
            && record.components.iter().all(|component| {
                component.log.file_name().is_none_or(|name| std::fs::copy(&component.log, kept.join(name)).is_ok())
            });
        if moved {
            eprintln!("---- complete logs are in {}", kept.display());
        }
        deployment::keep_pod_logs(&self.supervisor, &kept);
        remove_old_logs(kept.parent().unwrap_or(&kept));
    }
}

/// Keeps only the logs of the latest failures.
fn remove_old_logs(failed: &Path) {
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
        self.forwarders.clear();
        self.names = None;
        let started = self.supervisor.record_file.read().phase == Phase::Ready;
        if std::thread::panicking() || !started {
            self.keep_logs();
        }
        self.supervisor.stop_everything();
        let record = self.record();
        if let Err(error) = teardown::clean(&self.supervisor.directories.lab(&record.name), &record) {
            tracing::error!(lab = record.name, %error, "cannot remove the lab completely; run `lab down`");
        } else {
            self.supervisor.record_file.delete_lock_file();
        }
    }
}
