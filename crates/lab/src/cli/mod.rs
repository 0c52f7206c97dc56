//! The `lab` command: `up`, `down`, `status`, `exec`, `logs`, `fault` for people at a terminal.

mod conformance;
mod disruption;
mod enter;
mod faults;
mod light_chassis;
mod own_lab;
mod probe;
mod show;
mod up;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::keeper;
use crate::ownership::has_owner;
use crate::place::Place;
use crate::record::Record;
use crate::teardown::{self, Removed};

/// The lab that is meant when none is named.
const DEFAULT_NAME: &str = "default";

#[derive(Debug, Parser)]
#[command(
    name = "lab",
    version = telemetry::build::VERSION_AND_COMMIT,
    about = "A whole cluster of real components on this machine: Kubernetes, OVN, Open vSwitch",
    after_help = "Examples:\n  \
        lab up --network ovnkube           two nodes, OVN on three raft members, our network, an application\n  \
        lab up --kubelets                  the same without a network\n  \
        lab matrix                         who reaches whom, measured\n  \
        lab probe --fault 'lab restart nb-1'   what a fault costs, packet by packet\n  \
        lab status                         what runs where\n  \
        lab exec n1 ovs-vsctl show         a command on node n1\n  \
        lab kubectl get nodes              kubectl as administrator\n  \
        lab logs kube-apiserver -f         follow a component's log\n  \
        lab fault kill nb-1                kill a raft member; `lab restart nb-1` brings it back\n  \
        lab down                           remove everything\n\n\
        Folders: OVNKUBE_LAB_CACHE (images, binaries; /var/cache/ovnkube-lab),\n\
        OVNKUBE_LAB_STATE (running labs; /var/lib/ovnkube-lab)."
)]
struct Cli {
    /// The lab's name: several may run side by side.
    #[arg(long, global = true, default_value = DEFAULT_NAME, env = "OVNKUBE_LAB_NAME")]
    name: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a lab; on one that runs already, say so and change nothing
    Up(up::Options),
    /// Remove a lab and everything it made, also after a crash
    Down {
        /// Every lab on this machine that no test owns
        #[arg(long)]
        all: bool,
    },
    /// Show what runs where
    Status(show::Output),
    /// List the labs on this machine
    List(show::Output),
    /// Run a command on a machine of the lab
    Exec {
        /// The machine: n1, control, db-1, outside, fabric
        machine: String,
        /// The command; a shell if none is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run kubectl as administrator of the lab's cluster
    Kubectl {
        /// kubectl's arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show a component's log; without a name, list the components
    Logs(show::LogOptions),
    /// Break something, and say what was done
    Fault {
        #[command(subcommand)]
        fault: faults::Fault,
    },
    /// Measure who reaches whom by real packets, beside what the API says; status 1 if they differ
    Matrix(show::Output),
    /// Measure what a fault costs, packet by packet, beside a control; status 1 if it is more
    Probe(probe::Options),
    /// Measure what restarts, failovers and changes of the cluster cost, beside a control
    Disruption(disruption::Options),
    /// Run Kubernetes' own tests on a lab with our network
    Conformance(conformance::Options),
    /// Start a component again, as after a crash
    Restart {
        /// The component
        component: String,
    },
    /// Simulate chassis by the hundred, until Ctrl-C
    LightChassis(light_chassis::Options),
    /// Make the node image and the Kubernetes programs, and start nothing
    Prepare(up::PrepareOptions),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The process behind `lab up`: owns the lab until it is told to end
    #[command(hide = true)]
    Keep {
        /// The spec, as JSON
        spec: String,
    },
}

/// Runs the command and turns its end into an exit status: 0 done, 1 failed (one line says why), 2 misused.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("lab: {error}");
            if matches!(error, Error::Interrupted) { interrupt::EXIT_STATUS.into() } else { ExitCode::FAILURE }
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    let Cli { name, verb } = cli;
    let place = Place::from_environment()?;
    crate::spec::check_name(&name)?;
    match verb {
        Verb::Up(options) => up::up(&place, &name, &options)?,
        Verb::Prepare(options) => up::prepare(&place, &options)?,
        Verb::Down { all } => down(&place, &name, all)?,
        Verb::Status(output) => show::status(&running(&place, &name)?, output)?,
        Verb::List(output) => show::list(&place, output)?,
        Verb::Exec { machine, command } => {
            return enter::exec(&running(&place, &name)?, &machine, &command);
        }
        Verb::Kubectl { arguments } => return enter::kubectl(&running(&place, &name)?, &arguments),
        Verb::Logs(options) => return show::logs(&Record::load(&place, &name)?, &options),
        Verb::Fault { fault } => faults::run(&place, &running(&place, &name)?, &fault)?,
        Verb::Restart { component } => {
            running(&place, &name)?.component(&component)?;
            keeper::restart(&place, &name, &component)?;
            say(&format!("{component} runs again\n"))?;
        }
        Verb::Matrix(output) => return show::matrix(&running(&place, &name)?, output),
        Verb::Probe(options) => return probe::run(&running(&place, &name)?, &options),
        Verb::Disruption(options) => return disruption::run(&place, &name, &options),
        Verb::Conformance(options) => return conformance::run(&place, &name, &options),
        Verb::LightChassis(options) => light_chassis::run(&place, &name, &options)?,
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lab", &mut script);
            say(&String::from_utf8_lossy(&script))?;
        }
        Verb::Keep { spec } => return keeper::keep(&place, &spec),
    }
    Ok(ExitCode::SUCCESS)
}

/// The record of a lab whose owner lives; a crashed one is named as such.
fn running(place: &Place, name: &str) -> Result<Record> {
    let record = Record::load(place, name)?;
    if has_owner(place, name) {
        return Ok(record);
    }
    Err(Error::Invalid(format!(
        "lab {name:?} has crashed (its owner, pid {}, is gone); `lab down --name {name}` removes what it left",
        record.owner.pid
    )))
}

fn down(place: &Place, name: &str, all: bool) -> Result<()> {
    crate::place::require_root("lab down")?;
    let names = if all { crate::record::lab_names(place) } else { vec![name.to_owned()] };
    let (mut removed, mut failed) = (0, 0);
    for name in &names {
        // Labs that belong to a test end with it.
        if all && has_owner(place, name) && Record::load(place, name).is_ok_and(|record| record.spec.ephemeral) {
            say(&format!("lab {name} belongs to a running test; it is left alone\n"))?;
            continue;
        }
        match teardown::down(place, name) {
            Ok(Removed::Stopped) => say(&format!("lab {name} is removed\n"))?,
            Ok(Removed::CleanedUp { machines }) => {
                say(&format!(
                    "lab {name} had crashed; what it left is removed ({machines} machines were still there)\n"
                ))?;
            }
            Err(Error::NotRunning { .. }) => {
                keeper::forget(place, name);
                say(&format!("no lab named {name:?} is running; nothing to remove\n"))?;
                continue;
            }
            // With --all the others are removed all the same.
            Err(error) if all => {
                eprintln!("lab: {name}: {error}");
                failed += 1;
                continue;
            }
            Err(error) => return Err(error),
        }
        keeper::forget(place, name);
        removed += 1;
    }
    if failed > 0 {
        return Err(Error::Invalid(format!("{failed} labs could not be removed; the lines above say why")));
    }
    if all && removed == 0 {
        say("nothing was left to remove\n")?;
    }
    Ok(())
}

fn say(text: &str) -> Result<()> {
    console::print(text).map_err(|error| Error::Invalid(error.to_string()))
}
