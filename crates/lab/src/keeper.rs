//! The keeper: the process behind `lab up`. It owns the lab until it is told to end, watches its components, lets the
//! host reach the API server, and shows its health and metrics like every role.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use telemetry::{Condition, Telemetry};

use crate::error::{Error, Result, make_dir};
use crate::lab::Lab;
use crate::place::Place;
use crate::progress::{Event, Progress};
use crate::record::Record;
use crate::spec::LabSpec;

/// What the keeper tells `lab up`, one JSON line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Message {
    /// A step began or ended.
    Progress(Event),
    /// The lab answers.
    Ready,
    /// It does not, and what was made is removed.
    Failed {
        /// One line.
        why: String,
    },
}

/// The lab, until it is taken out to be removed.
type Kept = Arc<Mutex<Option<Lab>>>;

/// The keeper's own log. It is not in the lab's folder, because it tells why a lab has none.
pub(crate) fn log_path(place: &Place, name: &str) -> PathBuf {
    place.labs().with_file_name("keepers").join(format!("{name}.log"))
}

/// Removes the keeper's log with the lab.
pub(crate) fn forget(place: &Place, name: &str) {
    let _ = std::fs::remove_file(log_path(place, name));
}

/// Starts the keeper, away from this terminal.
pub(crate) fn spawn(place: &Place, spec: &LabSpec, log: &Path) -> Result<Child> {
    make_dir(log.parent().unwrap_or(place.cache()))?;
    let errors = std::fs::File::create(log).map_err(Error::io(format!("cannot write {}", log.display())))?;
    let program = std::env::current_exe().map_err(Error::io("cannot find this program"))?;
    let spec =
        serde_json::to_string(spec).map_err(|error| Error::Invalid(format!("cannot pass the spec on: {error}")))?;
    Command::new(program)
        .args(["keep", &spec])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(Error::io("cannot start the lab's keeper"))
}

/// Asks the keeper of a lab to start a component again.
pub(crate) fn restart(place: &Place, name: &str, component: &str) -> Result<()> {
    let path = socket(place, name);
    let mut stream =
        UnixStream::connect(&path).map_err(Error::io(format!("cannot reach the keeper of lab {name:?}")))?;
    writeln!(stream, "restart {component}").map_err(Error::io("cannot ask the keeper"))?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(Error::io("the keeper did not answer"))?;
    match answer.trim() {
        "ok" => Ok(()),
        why => Err(Error::Invalid(why.to_owned())),
    }
}

fn socket(place: &Place, name: &str) -> PathBuf {
    place.lab(name).join("keeper.sock")
}

/// The keeper's life.
pub(crate) fn keep(place: &Place, spec: &str) -> Result<ExitCode> {
    let spec: LabSpec =
        serde_json::from_str(spec).map_err(|error| Error::Invalid(format!("the keeper got no spec: {error}")))?;
    // A session of its own: closing the terminal does not end the lab.
    nix::unistd::setsid().ok();
    let telemetry = start_telemetry()?;
    let starting = telemetry.health().condition("lab");
    starting.not_ready("starting");
    let name = spec.name.clone();
    let started = Arc::new(AtomicBool::new(false));
    watch_starter(name, started.clone())?;
    let progress = Progress::new(|event| {
        // If nobody listens any more, the watch on the pipe knows it too.
        let _ = tell(&Message::Progress(event));
    });
    let lab = match start(place, spec, progress, &telemetry) {
        Ok(lab) => lab,
        Err(error) => {
            let _ = tell(&Message::Failed { why: error.to_string() });
            return Ok(ExitCode::FAILURE);
        }
    };
    starting.ready();
    started.store(true, Ordering::SeqCst);
    // From here on the lab outlives whoever started it.
    let _ = tell(&Message::Ready);
    let shutdown = telemetry.shutdown();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("cannot start the keeper's runtime"))?;
    runtime.block_on(shutdown.wait());
    tracing::info!("told to end; removing the lab");
    // Waits for a restart that is under way.
    drop(lock(&lab).take());
    runtime.block_on(telemetry.stop());
    Ok(ExitCode::SUCCESS)
}

fn start_telemetry() -> Result<Telemetry> {
    let mut options = telemetry::Options::new("lab-keeper", telemetry::build::VERSION, telemetry::build::COMMIT);
    options.listen = Some(([127, 0, 0, 1], 0).into());
    Telemetry::start(&options).map_err(|error| Error::Invalid(error.to_string()))
}

fn start(place: &Place, spec: LabSpec, progress: Progress, telemetry: &Telemetry) -> Result<Kept> {
    let name = spec.name.clone();
    let lab = Lab::start_in(place.clone(), spec, progress)?;
    let address = telemetry.address();
    lab.publish(|endpoints| endpoints.telemetry = address.map(|address| format!("http://{address}")))?;
    watch_components(&lab, telemetry);
    let collector = Components { place: place.clone(), name: name.clone() };
    telemetry.registry(|registry| registry.register_collector(Box::new(collector)));
    let lab = Arc::new(Mutex::new(Some(lab)));
    serve(lab.clone(), &socket(place, &name))?;
    Ok(lab)
}

/// Ready means that every component runs.
fn watch_components(lab: &Lab, telemetry: &Telemetry) {
    let conditions: Vec<(String, Condition)> = lab
        .record()
        .components
        .iter()
        .map(|component| (component.name.clone(), telemetry.health().condition(&component.name)))
        .collect();
    lab.observe(move |component, ended| {
        for (_, condition) in conditions.iter().filter(|(name, _)| name == component) {
            match ended {
                None => condition.ready(),
                Some(status) => condition.not_ready(status),
            }
        }
    });
}

/// Answers `lab restart`.
fn serve(lab: Kept, path: &Path) -> Result<()> {
    let listener = UnixListener::bind(path).map_err(Error::io(format!("cannot listen on {}", path.display())))?;
    let answer = move || {
        for mut stream in listener.incoming().flatten() {
            let Ok(reader) = stream.try_clone() else {
                continue;
            };
            let mut line = String::new();
            let read = BufReader::new(reader).read_line(&mut line);
            let lab = lock(&lab);
            let Some(lab) = lab.as_ref() else { return };
            let reply = match line.trim().split_once(' ') {
                Some(("restart", component)) if read.is_ok() => {
                    lab.restart(component).map_or_else(|error| error.to_string(), |()| "ok".into())
                }
                _ => "the keeper understands only `restart COMPONENT`".into(),
            };
            let _ = writeln!(stream, "{}", reply.replace('\n', " "));
        }
    };
    std::thread::Builder::new()
        .name("keeper".into())
        .spawn(answer)
        .map(|_| ())
        .map_err(Error::io("cannot start a thread"))
}

/// One line to `lab up`.
fn tell(message: &Message) -> std::io::Result<()> {
    let line = serde_json::to_string(message)?;
    writeln!(std::io::stdout(), "{line}")
}

/// Watches the pipe to `lab up`: the kernel tells at once when its reader is gone.
fn watch_starter(name: String, started: Arc<AtomicBool>) -> Result<()> {
    let watch = move || {
        let stdout = std::io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        while rustix::event::poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
        if !started.load(Ordering::SeqCst) {
            give_up(&name);
        }
    };
    std::thread::Builder::new()
        .name("starter".into())
        .spawn(watch)
        .map(|_| ())
        .map_err(Error::io("cannot start a thread"))
}

/// Whoever started this is gone before the lab was ready (Ctrl-C): end, and have what was made removed.
fn give_up(name: &str) -> ! {
    if let Ok(program) = std::env::current_exe() {
        // It waits for this process's end, which ends the machines, and then removes the rest.
        let _ = Command::new(program).args(["--name", name, "down"]).stdout(Stdio::null()).spawn();
    }
    std::process::exit(1);
}

fn lock(lab: &Mutex<Option<Lab>>) -> MutexGuard<'_, Option<Lab>> {
    lab.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What runs, as metrics, read from the record when somebody asks.
#[derive(Debug)]
struct Components {
    place: Place,
    name: String,
}

impl Collector for Components {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::result::Result<(), std::fmt::Error> {
        let Ok(record) = Record::load(&self.place, &self.name) else {
            return Ok(());
        };
        let mut up =
            encoder.encode_descriptor("lab_component_up", "Whether the component runs", None, MetricType::Gauge)?;
        for component in &record.components {
            let labels = [("component", component.name.as_str()), ("machine", component.machine.as_str())];
            ConstGauge::new(i64::from(component.process.is_alive())).encode(up.encode_family(&labels)?)?;
        }
        let mut memory = encoder.encode_descriptor(
            "lab_component_resident_memory_bytes",
            "Resident memory of the component, in bytes",
            None,
            MetricType::Gauge,
        )?;
        for component in &record.components {
            let labels = [("component", component.name.as_str()), ("machine", component.machine.as_str())];
            if let Some(kib) = component.process.resident_kib().and_then(|kib| i64::try_from(kib).ok()) {
                ConstGauge::new(kib * 1024).encode(memory.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
