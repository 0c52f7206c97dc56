//! The keeper: the process behind `lab up`. It owns the lab until it gets SIGTERM, watches its components, relays the
//! API server to the host, and serves health and metrics like every role.

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

use crate::directories::Directories;
use crate::error::{Error, Result, create_dir};
use crate::lab::Lab;
use crate::progress::{Event, Progress};
use crate::record::Record;
use crate::spec::LabSpec;

/// Messages from the keeper to `lab up`, one JSON line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Message {
    Progress(Event),
    /// Every component is ready.
    Ready,
    /// The start failed, and what it created is removed.
    Failed {
        error: String,
    },
}

/// `None` once the lab is being removed.
type SharedLab = Arc<Mutex<Option<Lab>>>;

/// The keeper's log. Not in the lab's directory, because it must outlive a lab that failed to start.
pub(crate) fn log_path(directories: &Directories, name: &str) -> PathBuf {
    directories.labs().with_file_name("keepers").join(format!("{name}.log"))
}

pub(crate) fn remove_log(directories: &Directories, name: &str) {
    let _ = std::fs::remove_file(log_path(directories, name));
}

/// Starts the keeper, detached from this terminal.
pub(crate) fn spawn(directories: &Directories, spec: &LabSpec, log: &Path) -> Result<Child> {
    create_dir(log.parent().unwrap_or(directories.cache()))?;
    let errors = std::fs::File::create(log).map_err(Error::io(format!("cannot write {}", log.display())))?;
    let program = std::env::current_exe().map_err(Error::io("cannot find this program"))?;
    let spec =
        serde_json::to_string(spec).map_err(|error| Error::Invalid(format!("cannot encode the spec: {error}")))?;
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

/// Asks the keeper of a lab to restart a component.
pub(crate) fn restart(directories: &Directories, name: &str, component: &str) -> Result<()> {
    let path = socket(directories, name);
    let mut stream =
        UnixStream::connect(&path).map_err(Error::io(format!("cannot reach the keeper of lab {name:?}")))?;
    writeln!(stream, "restart {component}").map_err(Error::io("cannot send the request to the keeper"))?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(Error::io("the keeper did not answer"))?;
    match answer.trim() {
        "ok" => Ok(()),
        error => Err(Error::Invalid(error.to_owned())),
    }
}

fn socket(directories: &Directories, name: &str) -> PathBuf {
    directories.lab(name).join("keeper.sock")
}

/// The keeper's main function.
pub(crate) fn run(directories: &Directories, spec: &str) -> Result<ExitCode> {
    let spec: LabSpec = serde_json::from_str(spec).map_err(|error| Error::Invalid(format!("invalid spec: {error}")))?;
    // Own session: closing the terminal does not end the lab.
    nix::unistd::setsid().ok();
    let telemetry = start_telemetry()?;
    let starting = telemetry.health().condition("lab");
    starting.not_ready("starting");
    let name = spec.name.clone();
    let started = Arc::new(AtomicBool::new(false));
    watch_starter(name, started.clone())?;
    let progress = Progress::new(|event| {
        // If the reader is gone, the watch on the pipe notices it, too.
        let _ = send(&Message::Progress(event));
    });
    let lab = match start(directories, spec, progress, &telemetry) {
        Ok(lab) => lab,
        Err(error) => {
            let _ = send(&Message::Failed { error: error.to_string() });
            return Ok(ExitCode::FAILURE);
        }
    };
    starting.ready();
    started.store(true, Ordering::SeqCst);
    // From here on the lab outlives the process that started it.
    let _ = send(&Message::Ready);
    let shutdown = telemetry.shutdown();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("cannot start the keeper's runtime"))?;
    runtime.block_on(shutdown.wait());
    tracing::info!("SIGTERM received; removing the lab");
    // Waits for a restart that is in progress.
    drop(lock(&lab).take());
    runtime.block_on(telemetry.stop());
    Ok(ExitCode::SUCCESS)
}

fn start_telemetry() -> Result<Telemetry> {
    let mut options = telemetry::Options::new("lab-keeper", telemetry::build::VERSION, telemetry::build::COMMIT);
    options.listen = Some(([127, 0, 0, 1], 0).into());
    Telemetry::start(&options).map_err(|error| Error::Invalid(error.to_string()))
}

fn start(directories: &Directories, spec: LabSpec, progress: Progress, telemetry: &Telemetry) -> Result<SharedLab> {
    let name = spec.name.clone();
    let lab = Lab::start_in(directories.clone(), spec, progress)?;
    let address = telemetry.address();
    lab.publish(|endpoints| endpoints.telemetry = address.map(|address| format!("http://{address}")))?;
    watch_components(&lab, telemetry);
    let collector = Components { directories: directories.clone(), name: name.clone() };
    telemetry.registry(|registry| registry.register_collector(Box::new(collector)));
    let lab = Arc::new(Mutex::new(Some(lab)));
    serve(lab.clone(), &socket(directories, &name))?;
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

/// Serves `lab restart`.
fn serve(lab: SharedLab, path: &Path) -> Result<()> {
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
                _ => "unknown request; the keeper supports only `restart COMPONENT`".into(),
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

fn send(message: &Message) -> std::io::Result<()> {
    let line = serde_json::to_string(message)?;
    writeln!(std::io::stdout(), "{line}")
}

/// Watches the pipe to `lab up`: the kernel reports when its reader is gone.
fn watch_starter(name: String, started: Arc<AtomicBool>) -> Result<()> {
    let watch = move || {
        let stdout = std::io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        while rustix::event::poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
        if !started.load(Ordering::SeqCst) {
            abort_start(&name);
        }
    };
    std::thread::Builder::new()
        .name("starter".into())
        .spawn(watch)
        .map(|_| ())
        .map_err(Error::io("cannot start a thread"))
}

/// `lab up` ended before the lab was ready (Ctrl-C): exit, and have everything removed.
fn abort_start(name: &str) -> ! {
    if let Ok(program) = std::env::current_exe() {
        // `lab down` waits for this process to exit, which stops the machines, and then removes the rest.
        let _ = Command::new(program).args(["--name", name, "down"]).stdout(Stdio::null()).spawn();
    }
    std::process::exit(1);
}

fn lock(lab: &Mutex<Option<Lab>>) -> MutexGuard<'_, Option<Lab>> {
    lab.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// State and memory of the components as metrics, read from the record at each scrape.
#[derive(Debug)]
struct Components {
    directories: Directories,
    name: String,
}

impl Collector for Components {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::result::Result<(), std::fmt::Error> {
        let Ok(record) = Record::load(&self.directories, &self.name) else {
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
