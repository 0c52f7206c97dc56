//! The building site: machines and components of one lab, as their owner makes, watches and restarts them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, make_dir};
use crate::machine::{Blueprint, Machine, OwnedMachine};
use crate::place::Place;
use crate::process::ProcessId;
use crate::progress::Progress;
use crate::ready::{Outcome, Ready, Watch};
use crate::record::{ComponentRecord, Ledger, MachineRecord, Phase};
use crate::spec::LabSpec;
use crate::underlay::{AddressPlan, CONTROL, FABRIC, OUTSIDE, database_name, node_name};
use crate::view;

/// How long a component may take to say that it is ready. Generous: it only ends what would hang for ever.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// A program to run.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) machine: String,
    pub(crate) words: Vec<String>,
    /// Beside what every program on a machine has.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) ready: Ready,
}

impl Component {
    pub(crate) fn new(name: impl Into<String>, machine: impl Into<String>, ready: Ready, words: &[&str]) -> Self {
        Self {
            name: name.into(),
            machine: machine.into(),
            words: words.iter().map(ToString::to_string).collect(),
            environment: Vec::new(),
            ready,
        }
    }
}

/// What a machine needs beyond the usual.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    pub(crate) cgroups: bool,
    pub(crate) disks: &'static [&'static str],
}

struct Running {
    component: Component,
    waiter: Option<JoinHandle<Option<ExitStatus>>>,
}

/// Everything that one owner holds of one lab.
pub(crate) struct Site {
    pub(crate) place: Place,
    pub(crate) spec: LabSpec,
    pub(crate) image: PathBuf,
    pub(crate) kubernetes: Option<PathBuf>,
    pub(crate) plan: AddressPlan,
    pub(crate) progress: Progress,
    pub(crate) ledger: Arc<Ledger>,
    machines: Mutex<Vec<OwnedMachine>>,
    components: Mutex<BTreeMap<String, Running>>,
    observer: Observer,
}

/// Told of each component that starts (`None`) or ends (`Some(status)`).
type Observer = Arc<Mutex<Option<Box<dyn Fn(&str, Option<&str>) + Send>>>>;

impl Site {
    pub(crate) fn new(
        place: Place,
        spec: LabSpec,
        image: PathBuf,
        kubernetes: Option<PathBuf>,
        ledger: Ledger,
        progress: Progress,
    ) -> Result<Self> {
        let plan = AddressPlan::new(spec.family)?;
        make_dir(&ledger.dir().join("logs"))?;
        Ok(Self {
            place,
            spec,
            image,
            kubernetes,
            plan,
            progress,
            ledger: Arc::new(ledger),
            machines: Mutex::default(),
            components: Mutex::default(),
            observer: Observer::default(),
        })
    }

    /// The lab's folder.
    pub(crate) fn dir(&self) -> &Path {
        self.ledger.dir()
    }

    /// A machine's folder.
    pub(crate) fn machine_dir(&self, machine: &str) -> PathBuf {
        view::machine_dir(self.dir(), machine)
    }

    /// The names of all nodes.
    pub(crate) fn nodes(&self) -> Vec<String> {
        (1..=self.spec.nodes).map(node_name).collect()
    }

    /// Makes a machine; it has a loopback and nothing else yet.
    pub(crate) fn add_machine(&self, name: &str, extras: Extras) -> Result<Machine> {
        let mut named: Vec<String> = self.nodes();
        named.extend((1..=3).map(database_name));
        named.extend([CONTROL.to_owned(), OUTSIDE.to_owned()]);
        let mut shared = vec![self.dir().to_owned()];
        shared.extend(self.kubernetes.clone());
        let (owned, init) = OwnedMachine::start(&Blueprint {
            name,
            image: &self.image,
            dir: self.machine_dir(name),
            shared,
            disks: extras.disks,
            cgroups: extras.cgroups,
            hosts: &self.plan.hosts(&named),
        })?;
        lock(&self.machines).push(owned);
        let addresses = self.plan.addresses(name).iter().map(ToString::to_string).collect();
        self.ledger.change(|record| record.machines.push(MachineRecord { name: name.to_owned(), init, addresses }))?;
        self.machine(name)
    }

    /// Makes a machine that is plugged into the underlay, without an address.
    pub(crate) fn add_plugged_machine(&self, name: &str, extras: Extras) -> Result<Machine> {
        let machine = self.add_machine(name, extras)?;
        crate::underlay::plug(&self.machine(FABRIC)?, &machine)?;
        Ok(machine)
    }

    /// Makes a machine that is reachable on the underlay by its `eth0`.
    pub(crate) fn add_attached_machine(&self, name: &str, extras: Extras) -> Result<Machine> {
        let machine = self.add_plugged_machine(name, extras)?;
        crate::underlay::address(&machine, &self.plan, "eth0")?;
        Ok(machine)
    }

    /// A way into a machine.
    pub(crate) fn machine(&self, name: &str) -> Result<Machine> {
        view::machine(&self.ledger.read(), name)
    }

    /// Starts a program and returns when it has said that it is ready.
    pub(crate) fn start(&self, component: Component) -> Result<()> {
        let started = self.launch(&component);
        started.map(|waiter| {
            notify(&self.observer, &component.name, None);
            lock(&self.components).insert(component.name.clone(), Running { component, waiter: Some(waiter) });
        })
    }

    fn launch(&self, component: &Component) -> Result<JoinHandle<Option<ExitStatus>>> {
        let Component { name, machine, .. } = component;
        let log = self.dir().join("logs").join(format!("{name}.log"));
        let doing = format!("cannot write {}", log.display());
        let output = File::options().create(true).append(true).open(&log).map_err(Error::io(doing.clone()))?;
        let errors = output.try_clone().map_err(Error::io(doing))?;

        let notify = format!("notify-{name}");
        let watch = Watch::prepare(&component.ready, &self.machine_dir(machine).join("run").join(&notify), &log)?;
        let machine = self.machine(machine)?;
        let mut command = machine.command(&component.words)?;
        command.envs(component.environment.iter().map(|(key, value)| (key, value)));
        if matches!(component.ready, Ready::Notify) {
            command.env("NOTIFY_SOCKET", format!("/run/{notify}"));
        }
        // A group of its own: the terminal's Ctrl-C is for the owner, who then ends the machines in order.
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let mut child = machine.spawn(&mut command)?;

        let pid = child.id();
        let process = ProcessId::of(pid).unwrap_or(ProcessId { pid, started: 0 });
        let recorded = self.ledger.change(|record| {
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
            // One whose end nobody asks for would keep its machine from ending.
            let _ = child.kill().and_then(|()| child.wait());
        }
        recorded?;
        let handle = process.open();
        let waiter = self.watch_end(name.clone(), process, move || child.wait().ok())?;
        let outcome = match &handle {
            Some(handle) => watch.wait(handle, Instant::now() + READY_LIMIT)?,
            // Whoever asked for no sign of life does not mind a short one.
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
                let tail = view::tail(&log, 3).replace('\n', " | ");
                Err(Error::Ended { component: name.clone(), status, log, tail })
            }
        }
    }

    /// Waits for the end of a component in a thread of its own and writes it down.
    fn watch_end(
        &self,
        name: String,
        process: ProcessId,
        wait: impl FnOnce() -> Option<ExitStatus> + Send + 'static,
    ) -> Result<JoinHandle<Option<ExitStatus>>> {
        let ledger = self.ledger.clone();
        let observer = self.observer.clone();
        std::thread::Builder::new()
            .name(format!("end-of-{name}"))
            .spawn(move || {
                let status = wait();
                if ledger.read().phase != Phase::Stopping {
                    let ended = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
                    tracing::warn!(component = name, status = ended, "component ended");
                    // The record is for people who look; a component's end does not depend on it.
                    let _ = ledger.change(|record| {
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

    /// Asks until a command succeeds on a machine, for what has no event of its own; the component's end ends it.
    pub(crate) fn await_answer(&self, component: &str, machine: &str, words: &[&str]) -> Result<()> {
        let found = self.ledger.read().component(component)?.clone();
        let machine = self.machine(machine)?;
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let answer = machine.run(words);
            if answer.is_ok() {
                return Ok(());
            }
            let ended = found.process.open().is_none_or(|process| process.wait(Duration::from_millis(20)));
            if ended || Instant::now() > deadline {
                return answer.map(|_| ());
            }
        }
    }

    /// Waits for a component's end and tells how it ended.
    pub(crate) fn wait_end(&self, name: &str, limit: Duration) -> Result<ExitStatus> {
        let process = self.ledger.read().component(name)?.process;
        if let Some(handle) = process.open()
            && !handle.wait(limit)
        {
            return Err(Error::Invalid(format!("{name} (pid {}) still runs after {limit:?}", process.pid)));
        }
        let waiter = lock(&self.components).get_mut(name).and_then(|running| running.waiter.take());
        let status = waiter.and_then(|waiter| waiter.join().ok().flatten());
        status.ok_or_else(|| Error::Invalid(format!("how {name} ended was told already, or is not known")))
    }

    /// Starts a component again as it was; one that still runs is killed first.
    pub(crate) fn restart(&self, name: &str) -> Result<()> {
        let component = {
            let mut components = lock(&self.components);
            let Some(running) = components.get_mut(name) else {
                drop(components);
                self.ledger.read().component(name)?;
                return Err(Error::Invalid(format!("component {name} was never ready; there is nothing to restart")));
            };
            let process = self.ledger.read().component(name)?.process;
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

    /// Has every start and end of a component told; those that run are told at once.
    pub(crate) fn observe(&self, observer: impl Fn(&str, Option<&str>) + Send + 'static) {
        *lock(&self.observer) = Some(Box::new(observer));
        for component in self.ledger.read().components.clone() {
            notify(&self.observer, &component.name, component.ended.as_deref());
        }
    }

    /// Ends every machine, and with them every component, and waits until they are gone.
    pub(crate) fn stop_everything(&self) {
        let _ = self.ledger.change(|record| record.phase = Phase::Stopping);
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

/// Runs pieces of work side by side and returns the first error of the first piece that failed.
pub(crate) fn side_by_side<'a>(work: Vec<Box<dyn FnOnce() -> Result<()> + Send + 'a>>) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|piece| scope.spawn(piece)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Error::Invalid("a thread of the lab panicked".into()))))
            .fold(Ok(()), Result::and)
    })
}
