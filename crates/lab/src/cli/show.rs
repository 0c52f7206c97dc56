//! `lab list`, `lab logs` and `lab matrix`; what `lab up` prints at the end.

use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use console::table::{self, Cell, Tone};
use serde::Serialize;

use super::print;
use crate::directories::Directories;
use crate::error::{Error, Result};
use crate::inspect;
use crate::matrix::Matrix;
use crate::ownership::has_owner;
use crate::record::{Phase, Record, lab_names};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    #[default]
    Table,
    Json,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Output {
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

impl Output {
    pub(super) fn is_json(self) -> bool {
        self.output == Format::Json
    }
}

#[derive(Debug, Args)]
pub(super) struct LogOptions {
    /// The component; `keeper` is the process that owns the lab
    component: Option<String>,
    /// Keep printing new lines
    #[arg(short, long)]
    follow: bool,
    /// Number of lines, from the end
    #[arg(long, default_value_t = 100)]
    tail: usize,
}

pub(super) fn components_on(record: &Record, machine: &str) -> String {
    let on = record.components.iter().filter(|component| component.machine == machine);
    on.map(|component| component.name.as_str()).collect::<Vec<_>>().join(" ")
}

/// What `lab up` prints at the end: machines, components, and how to use the lab.
pub(super) fn summary(record: &Record) -> Result<()> {
    let rows = record.machines.iter().map(|machine| {
        [
            Cell::plain(&machine.name),
            Cell::plain(machine.addresses.join(" ")),
            Cell::plain(components_on(record, &machine.name)),
        ]
    });
    print(&table::render(["MACHINE", "ADDRESSES", "RUNS"], rows.collect(), table::colour()))?;
    print("\n")?;
    how_to_use(record)
}

pub(super) fn how_to_use(record: &Record) -> Result<()> {
    let name = if record.name == super::DEFAULT_NAME { String::new() } else { format!(" --name {}", record.name) };
    let lab = std::env::current_exe().map_or_else(|_| "lab".into(), |path| path.display().to_string());
    let mut text = String::new();
    let mut line = |what: &str, how: String| text.push_str(&format!("{what:<14} {how}\n"));
    if let (Some(kubeconfig), Some(programs)) = (&record.endpoints.kubeconfig, &record.kubernetes) {
        line("kubectl", format!("export KUBECONFIG={} PATH={}:$PATH", kubeconfig.display(), programs.display()));
        line("or", format!("{lab}{name} kubectl get nodes"));
    }
    if let Some(api) = &record.endpoints.api {
        line("API server", api.clone());
    }
    if let Some(prometheus) = &record.endpoints.prometheus {
        line("Prometheus", format!("{prometheus}/alerts"));
    }
    if record.endpoints.northbound.is_some() {
        line("OVN", format!("{lab}{name} exec control ovn-nbctl show"));
    }
    line("on a machine", format!("{lab}{name} exec n1"));
    line("logs", format!("{lab}{name} logs"));
    if let Some(telemetry) = &record.endpoints.telemetry {
        line("health", format!("{telemetry}/readyz, {telemetry}/metrics"));
    }
    line("remove it", format!("{lab}{name} down"));
    let kubelets = record
        .spec
        .kubernetes
        .as_ref()
        .is_some_and(|kubernetes| kubernetes.kubelets && kubernetes.cni == crate::spec::Cni::None);
    if kubelets && record.spec.product.is_none() {
        text.push_str(
            "\nNodes are NotReady until a pod network is installed; `--cni bridge` installs the standard one.\n",
        );
    }
    print(&text)
}

/// Measures the connectivity matrix and prints it; the exit status says whether it is as expected.
pub(super) fn matrix(record: &Record, output: Output) -> Result<ExitCode> {
    crate::directories::require_root("lab matrix")?;
    let matrix = Matrix::measure(record)?;
    if output.output == Format::Json {
        console::print_json(&matrix).map_err(|error| Error::Invalid(error.to_string()))?;
    } else {
        print(&matrix.table(table::colour()))?;
    }
    Ok(if matrix.wrong().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Serialize)]
struct Listed {
    name: String,
    state: &'static str,
    nodes: u32,
    suite: &'static str,
}

pub(super) fn list(directories: &Directories, output: Output) -> Result<()> {
    let labs: Vec<Listed> = lab_names(directories)
        .into_iter()
        .map(|name| {
            let owned = has_owner(directories, &name);
            let record = Record::load(directories, &name).ok();
            let state = match record.as_ref().map(|record| record.phase) {
                Some(Phase::Ready) if owned => "ready",
                Some(Phase::Stopping) if owned => "stopping",
                _ if owned => "starting",
                _ => "crashed",
            };
            let (nodes, suite) = record.map_or((0, "?"), |record| (record.spec.nodes, record.spec.suite.as_str()));
            Listed { name, state, nodes, suite }
        })
        .collect();
    if output.output == Format::Json {
        return console::print_json(&labs).map_err(|error| Error::Invalid(error.to_string()));
    }
    if labs.is_empty() {
        return print("no lab is running; `lab up` starts one\n");
    }
    let rows = labs.iter().map(|lab| {
        let tone = if lab.state == "ready" { Tone::Good } else { Tone::Bad };
        [Cell::plain(&lab.name), Cell::new(lab.state, tone), Cell::plain(lab.nodes.to_string()), Cell::plain(lab.suite)]
    });
    print(&table::render(["LAB", "STATE", "NODES", "SUITE"], rows.collect(), table::colour()))
}

pub(super) fn logs(record: &Record, options: &LogOptions) -> Result<ExitCode> {
    let Some(component) = &options.component else {
        let rows = record.components.iter().map(|component| {
            let size = std::fs::metadata(&component.log).map_or(0, |meta| meta.len());
            [
                Cell::plain(&component.name),
                Cell::plain(format!("{} KiB", size.div_ceil(1024))),
                Cell::plain(component.log.display().to_string()),
            ]
        });
        print(&table::render(["COMPONENT", "SIZE", "LOG"], rows.collect(), table::colour()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let log = if component == "keeper" {
        crate::keeper::log_path(&Directories::from_environment()?, &record.name)
    } else {
        inspect::log(record, component)?
    };
    if options.follow {
        let tail = options.tail.to_string();
        // tail -F uses kernel events.
        Command::new("tail").args(["-n", &tail, "-F"]).arg(&log).status().map_err(Error::io("cannot run tail"))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!("{}\n", inspect::tail(&log, options.tail)))?;
    Ok(ExitCode::SUCCESS)
}
