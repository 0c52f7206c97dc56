//! Creates the machines of one lab, and starts, watches and restarts its components.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::directories::Directories;
use crate::dns::resolver_configuration;
use crate::error::{Error, Result, create_dir};
use crate::inspect;
use crate::lab::Artifacts;
use crate::machine::{Machine, MachineConfig, OwnedMachine};
use crate::process::ProcessId;
use crate::progress::Progress;
use crate::ready::{Outcome, Ready, ReadyWatch};
use crate::record::{ComponentRecord, MachineRecord, Phase, RecordFile};
use crate::spec::LabSpec;
use crate::underlay::{AddressPlan, CONTROL, FABRIC, OUTSIDE, database_name, node_name};

/// How long a component may take to become ready. Generous: it only ends what would hang forever.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// A program to run on a machine.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) machine: String,
    pub(crate) args: Vec<String>,
    /// In addition to the environment of every program on a machine.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) ready: Ready,
    /// A command on the same machine that succeeds once the component works; repeated after each (re)start, for a
    /// component whose ready signal comes too early.
    pub(crate) ready_command: Option<Vec<String>>,
}

impl Component {
    pub(crate) fn new(name: impl Into<String>, machine: impl Into<String>, ready: Ready, args: &[&str]) -> Self {
        Self {
            name: name.into(),
            machine: machine.into(),
            args: args.iter().map(ToString::to_string).collect(),
            environment: Vec::new(),
            ready,
            ready_command: None,
        }
    }

    pub(crate) fn ready_command(mut self, args: &[&str]) -> Self {
        self.ready_command = Some(args.iter().map(ToString::to_string).collect());
        self
    }
}

/// Options of a machine that most do not need.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MachineOptions {
    pub(crate) cgroups: bool,
    pub(crate) disks: &'static [&'static str],
}

struct Running {
    component: Component,
    waiter: Option<JoinHandle<Option<ExitStatus>>>,
}

/// What the owner of a lab holds: dropping the machines ends every component.
pub(crate) struct Supervisor {
    pub(crate) directories: Directories,
    pub(crate) spec: LabSpec,
    pub(crate) image: PathBuf,
    pub(crate) kubernetes: Option<PathBuf>,
    /// Root of the extracted package.
    prometheus: Option<PathBuf>,
    pub(crate) plan: AddressPlan,
    pub(crate) progress: Progress,
    pub(crate) record_file: Arc<RecordFile>,
    machines: Mutex<Vec<OwnedMachine>>,
    components: Mutex<BTreeMap<String, Running>>,
    observer: Observer,
}

/// Called when a component starts (`None`) or exits (`Some(status)`).
type Observer = Arc<Mutex<Option<Box<dyn Fn(&str, Option<&str>) + Send>>>>;

impl Supervisor {
    pub(crate) fn new(
        directories: Directories,
        spec: LabSpec,
        artifacts: &Artifacts,
        record_file: RecordFile,
        progress: Progress,
    ) -> Result<Self> {
        let plan = AddressPlan::new(spec.family)?;
        create_dir(&record_file.dir().join("logs"))?;
        Ok(Self {
            directories,
            spec,
            image: artifacts.image.clone(),
            kubernetes: artifacts.kubernetes.clone(),
            prometheus: artifacts.prometheus.as_ref().map(|programs| programs.root().to_owned()),
            plan,
            progress,
            record_file: Arc::new(record_file),
            machines: Mutex::default(),
            components: Mutex::default(),
            observer: Observer::default(),
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.record_file.dir()
    }

    pub(crate) fn machine_dir(&self, machine: &str) -> PathBuf {
        inspect::machine_dir(self.dir(), machine)
    }

    pub(crate) fn nodes(&self) -> Vec<String> {
        (1..=self.spec.nodes).map(node_name).collect()
    }

    /// Creates a machine; it has only a loopback interface.
    pub(crate) fn add_machine(&self, name: &str, options: MachineOptions) -> Result<Machine> {
        let mut named: Vec<String> = self.nodes();
        named.extend((1..=3).map(database_name));
        named.extend([CONTROL.to_owned(), OUTSIDE.to_owned()]);
        let mut shared = vec![self.dir().to_owned()];
        shared.extend(self.kubernetes.clone());
        shared.extend(self.prometheus.clone());
        let (owned, init) = OwnedMachine::start(&MachineConfig {
            name,
            image: &self.image,
            dir: self.machine_dir(name),
            shared,
            disks: options.disks,
            cgroups: options.cgroups,
            hosts: &self.plan.hosts(&named),
            resolver: &resolver_configuration(self.plan.addresses(OUTSIDE).iter().map(|own| own.address())),
        })?;
        lock(&self.machines).push(owned);
        let addresses = self.plan.addresses(name).iter().map(ToString::to_string).collect();
        self.record_file
            .change(|record| record.machines.push(MachineRecord { name: name.to_owned(), init, addresses }))?;
        self.machine(name)
    }

    /// Creates a machine that is connected to the underlay, without an address.
    pub(crate) fn add_connected_machine(&self, name: &str, options: MachineOptions) -> Result<Machine> {
        let machine = self.add_machine(name, options)?;
        crate::underlay::plug(&self.machine(FABRIC)?, &machine)?;
        Ok(machine)
    }

    /// Creates a machine with its addresses on `eth0`.
    pub(crate) fn add_addressed_machine(&self, name: &str, options: MachineOptions) -> Result<Machine> {
        let machine = self.add_connected_machine(name, options)?;
        crate::underlay::configure_addresses(&machine, &self.plan, "eth0")?;
        Ok(machine)
    }

    pub(crate) fn machine(&self, name: &str) -> Result<Machine> {
        inspect::machine(&self.record_file.read(), name)
    }

    /// Starts a program; returns when it is ready: its ready signal has come and its ready command has succeeded.
    pub(crate) fn start(&self, component: Component) -> Result<()> {
        let waiter = self.launch(&component)?;
        notify(&self.observer, &component.name, None);
        let started = component.clone();
        lock(&self.components).insert(started.name.clone(), Running { component, waiter: Some(waiter) });
        self.await_ready_command(&started)
    }

    fn launch(&self, component: &Component) -> Result<JoinHandle<Option<ExitStatus>>> {
        let Component { name, machine, .. } = component;
        let log = self.dir().join("logs").join(format!("{name}.log"));
        let context = format!("cannot write {}", log.display());
        let output = File::options().create(true).append(true).open(&log).map_err(Error::io(context.clone()))?;
        let errors = output.try_clone().map_err(Error::io(context))?;

        let notify = format!("notify-{name}");
        let watch = ReadyWatch::prepare(&component.ready, &self.machine_dir(machine).join("run").join(&notify), &log)?;
        let machine = self.machine(machine)?;
        let mut command = machine.command(&component.args)?;
        command.envs(component.environment.iter().map(|(key, value)| (key, value)));
        if matches!(component.ready, Ready::Notify) {
            command.env("NOTIFY_SOCKET", format!("/run/{notify}"));
        }
        // Own process group: Ctrl-C on the terminal is for the owner, which then stops the machines gracefully.
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let mut child = machine.spawn(&mut command)?;

        let pid = child.id();
        let process = ProcessId::of(pid).unwrap_or(ProcessId { pid, started: 0 });
        let recorded = self.record_file.change(|record| {
            record.components.retain(|other| other.name != *name);
            record.components.push(ComponentRecord {
                name: name.clone(),
                machine: machine.name.clone(),
                process,
                log: log.clone(),
                ended: None,
            });
        });
        if recorded.is_err() {
            // A child that is never waited for would keep its machine from stopping.
            let _ = child.kill().and_then(|()| child.wait());
        }
        recorded?;
        let handle = process.open();
        let waiter = self.watch_end(name.clone(), process, move || child.wait().ok())?;
        let outcome = match &handle {
            Some(handle) => watch.wait(handle, Instant::now() + READY_LIMIT)?,
            // It exited already; without a ready signal that is allowed.
            None if matches!(component.ready, Ready::Running) => Outcome::Ready,
            None => Outcome::Ended,
        };
        match outcome {
            Outcome::Ready => Ok(waiter),
            Outcome::TimedOut => Err(Error::NotReady {
                component: name.clone(),
                seconds: READY_LIMIT.as_secs(),
                awaited: component.ready.describe(),
                log,
            }),
            Outcome::Ended => {
                let status = waiter
                    .join()
                    .ok()
                    .flatten()
                    .map_or_else(|| "status unknown".to_owned(), |status| status.to_string());
                let tail = inspect::tail(&log, 3).replace('\n', " | ");
                Err(Error::Ended { component: name.clone(), status, log, tail })
            }
        }
    }

    /// Waits for a component's exit in a separate thread and records it.
    fn watch_end(
        &self,
        name: String,
        process: ProcessId,
        wait: impl FnOnce() -> Option<ExitStatus> + Send + 'static,
    ) -> Result<JoinHandle<Option<ExitStatus>>> {
        let record_file = self.record_file.clone();
        let observer = self.observer.clone();
        std::thread::Builder::new()
            .name(format!("end-of-{name}"))
            .spawn(move || {
                let status = wait();
                if record_file.read().phase != Phase::Stopping {
                    let ended = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
                    tracing::warn!(component = name, status = ended, "component ended");
                    // The record is only informative here; the exit happened either way.
                    let _ = record_file.change(|record| {
                        for component in record.components.iter_mut().filter(|other| other.process == process) {
                            component.ended = Some(ended.clone());
                        }
                    });
                    notify(&observer, &name, Some(&ended));
                }
                status
            })
            .map_err(Error::io("cannot start a thread"))
    }

    /// Repeats the ready command until it succeeds, the component exits, or the time limit passes.
    fn await_ready_command(&self, component: &Component) -> Result<()> {
        let Some(args) = &component.ready_command else { return Ok(()) };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let process = self.record_file.read().component(&component.name)?.process;
        let machine = self.machine(&component.machine)?;
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let answer = machine.run(&args);
            if answer.is_ok() {
                return Ok(());
            }
            let ended = process.open().is_none_or(|process| process.wait(Duration::from_millis(20)));
            if ended || Instant::now() > deadline {
                return answer.map(|_| ());
            }
        }
    }

    /// Waits until a component exits and returns its exit status.
    pub(crate) fn wait_end(&self, name: &str, limit: Duration) -> Result<ExitStatus> {
        let process = self.record_file.read().component(name)?.process;
        if let Some(handle) = process.open()
            && !handle.wait(limit)
        {
            return Err(Error::Invalid(format!("{name} (pid {}) is still running after {limit:?}", process.pid)));
        }
        let waiter = lock(&self.components).get_mut(name).and_then(|running| running.waiter.take());
        let status = waiter.and_then(|waiter| waiter.join().ok().flatten());
        status.ok_or_else(|| Error::Invalid(format!("the exit status of {name} was returned already, or is unknown")))
    }

    /// Restarts a component with its original command line; kills it first if it is running.
    pub(crate) fn restart(&self, name: &str) -> Result<()> {
        let component = {
            let mut components = lock(&self.components);
            let Some(running) = components.get_mut(name) else {
                drop(components);
                self.record_file.read().component(name)?;
                return Err(Error::Invalid(format!("component {name} was never ready; there is nothing to restart")));
            };
            let process = self.record_file.read().component(name)?.process;
            if let Some(handle) = process.open() {
                handle.signal(rustix::process::Signal::KILL);
            }
            if let Some(waiter) = running.waiter.take() {
                let _ = waiter.join();
            }
            running.component.clone()
        };
        self.start(component)
    }

    /// See [`crate::Lab::observe`].
    pub(crate) fn observe(&self, observer: impl Fn(&str, Option<&str>) + Send + 'static) {
        *lock(&self.observer) = Some(Box::new(observer));
        for component in self.record_file.read().components.clone() {
            notify(&self.observer, &component.name, component.ended.as_deref());
        }
    }

    /// Stops every machine, and with them every component, and waits until they are gone.
    pub(crate) fn stop_everything(&self) {
        let _ = self.record_file.change(|record| record.phase = Phase::Stopping);
        lock(&self.machines).clear();
        for running in lock(&self.components).values_mut() {
            if let Some(waiter) = running.waiter.take() {
                let _ = waiter.join();
            }
        }
    }
}

fn notify(observer: &Observer, component: &str, ended: Option<&str>) {
    if let Some(observer) = lock(observer).as_ref() {
        observer(component, ended);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs tasks in parallel; if several fail, returns the error of the first in the list.
pub(crate) fn run_parallel<'a>(work: Vec<Box<dyn FnOnce() -> Result<()> + Send + 'a>>) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|piece| scope.spawn(piece)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Error::Invalid("a thread of the lab panicked".into()))))
            .fold(Ok(()), Result::and)
    })
}
