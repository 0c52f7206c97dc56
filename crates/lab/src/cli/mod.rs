//! The `lab` command.

mod conformance;
mod disruption;
mod enter;
mod faults;
mod lab_options;
mod light_chassis;
mod names;
mod probe;
mod show;
mod status;
mod up;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::directories::Directories;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::keeper;
use crate::ownership::has_owner;
use crate::record::Record;
use crate::teardown::{self, Removed};

const DEFAULT_NAME: &str = "default";

#[derive(Debug, Parser)]
#[command(
    name = "lab",
    version = telemetry::build::VERSION_AND_COMMIT,
    about = "A complete cluster of real components on this host: Kubernetes, OVN, Open vSwitch",
    after_help = "Examples:\n  \
        lab up --network ovnkube           two nodes with ovnkube and its databases, an application\n  \
        lab up --kubelets                  Kubernetes and OVN on three raft members, no pod network\n  \
        lab matrix                         measure reachability\n  \
        lab probe --fault 'lab kubectl -n ovn-kubernetes rollout restart daemonset/ovnkube-master'\n  \
                                           measure packet loss caused by a fault\n  \
        lab status                         show machines and components\n  \
        lab exec n1 ovs-vsctl show         run a command on node n1\n  \
        lab kubectl get nodes              run kubectl as administrator\n  \
        lab logs kube-apiserver -f         follow a component's log\n  \
        lab fault kill nb-1                kill a raft member (--databases raft); `lab restart nb-1` restarts it\n  \
        lab down                           remove everything\n\n\
        Directories: OVNKUBE_LAB_CACHE (images, binaries; /var/cache/ovnkube-lab),\n\
        OVNKUBE_LAB_STATE (running labs; /var/lib/ovnkube-lab)."
)]
struct Cli {
    /// Name of the lab; several labs can run in parallel
    #[arg(long, global = true, default_value = DEFAULT_NAME, env = "OVNKUBE_LAB_NAME")]
    name: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a lab; if it is already running, change nothing (status 1 if it runs with other options)
    Up(up::Options),
    /// Remove a lab completely, also after a crash
    Down {
        /// Every lab on this host that no test owns
        #[arg(long)]
        all: bool,
    },
    /// Show machines and components
    Status(show::Output),
    /// List the labs on this host
    List(show::Output),
    /// Run a command on a machine of the lab
    Exec {
        /// The machine: n1, control, db-1, outside, fabric
        machine: String,
        /// The command; a shell if omitted
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
    /// Inject a fault, and print what was done
    Fault {
        #[command(subcommand)]
        fault: faults::Fault,
    },
    /// Show or change records of the lab's name server
    Names {
        #[command(subcommand)]
        names: names::Names,
    },
    /// Measure reachability with real packets and compare it with what the API objects allow; status 1 if they differ
    Matrix(show::Output),
    /// Measure packet loss caused by a fault, compared with a control; status 1 if there is more
    Probe(probe::Options),
    /// Measure packet loss caused by restarts, failovers and cluster changes, compared with a control
    Disruption(disruption::Options),
    /// Run Kubernetes' e2e tests on a lab with ovnkube
    Conformance(conformance::Options),
    /// Restart a component
    Restart {
        /// Name of the component, as in `lab status`
        component: String,
    },
    /// Simulate hundreds of chassis, until Ctrl-C
    LightChassis(light_chassis::Options),
    /// Build the node image and the Kubernetes programs, and start nothing
    Prepare(up::PrepareOptions),
    /// Print a completion script for a shell
    Completions {
        /// Shell to print it for
        shell: clap_complete::Shell,
    },
    /// The process behind `lab up`: owns the lab until it gets SIGTERM
    #[command(hide = true)]
    Keep {
        /// The lab's spec, as JSON
        spec: String,
    },
}

/// Runs the command. Exit status: 0 success, 1 failure (one line says why), 2 wrong usage.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(status) => status,
        Err(error) => {
            console::eprint_line(format_args!("lab: {error}"));
            if matches!(error, Error::Interrupted) { interrupt::EXIT_STATUS.into() } else { ExitCode::FAILURE }
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    let Cli { name, command } = cli;
    let directories = Directories::from_environment()?;
    crate::spec::check_name(&name)?;
    match command {
        Command::Up(options) => up::up(&directories, &name, &options)?,
        Command::Prepare(options) => up::prepare(&directories, &options)?,
        Command::Down { all } => down(&directories, &name, all)?,
        Command::Status(output) => status::status(&load_running(&directories, &name)?, output)?,
        Command::List(output) => show::list(&directories, output)?,
        Command::Exec { machine, command } => {
            return enter::exec(&load_running(&directories, &name)?, &machine, &command);
        }
        Command::Kubectl { arguments } => return enter::kubectl(&load_running(&directories, &name)?, &arguments),
        Command::Logs(options) => return show::logs(&Record::load(&directories, &name)?, &options),
        Command::Fault { fault } => faults::run(&directories, &load_running(&directories, &name)?, &fault)?,
        Command::Names { names } => {
            load_running(&directories, &name)?;
            names::run(&directories, &name, &names)?;
        }
        Command::Restart { component } => {
            load_running(&directories, &name)?.component(&component)?;
            keeper::restart(&directories, &name, &component)?;
            print(&format!("{component} is running again\n"))?;
        }
        Command::Matrix(output) => return show::matrix(&load_running(&directories, &name)?, output),
        Command::Probe(options) => return probe::run(&load_running(&directories, &name)?, &options),
        Command::Disruption(options) => return disruption::run(&directories, &name, &options),
        Command::Conformance(options) => return conformance::run(&directories, &name, &options),
        Command::LightChassis(options) => light_chassis::run(&directories, &name, &options)?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lab", &mut script);
            print(&String::from_utf8_lossy(&script))?;
        }
        Command::Keep { spec } => return keeper::run(&directories, &spec),
    }
    Ok(ExitCode::SUCCESS)
}

/// The record of a lab whose owner lives; an error if it has crashed.
fn load_running(directories: &Directories, name: &str) -> Result<Record> {
    let record = Record::load(directories, name)?;
    if has_owner(directories, name) {
        return Ok(record);
    }
    Err(Error::Invalid(format!(
        "lab {name:?} has crashed (its owner, pid {}, is gone); `lab down --name {name}` removes its leftovers",
        record.owner.pid
    )))
}

fn down(directories: &Directories, name: &str, all: bool) -> Result<()> {
    crate::directories::require_root("lab down")?;
    let names = if all { crate::record::lab_names(directories) } else { vec![name.to_owned()] };
    let (mut removed, mut failed) = (0, 0);
    for name in &names {
        // Labs of a test are removed by it.
        if all
            && has_owner(directories, name)
            && Record::load(directories, name).is_ok_and(|record| record.spec.ephemeral)
        {
            print(&format!("lab {name} belongs to a running test; skipped\n"))?;
            continue;
        }
        match teardown::down(directories, name) {
            Ok(Removed::Stopped) => print(&format!("lab {name} is removed\n"))?,
            Ok(Removed::CleanedUp { machines }) => {
                print(&format!(
                    "lab {name} had crashed; its leftovers are removed ({machines} machines still existed)\n"
                ))?;
            }
            Err(Error::NotRunning { .. }) => {
                keeper::remove_log(directories, name);
                print(&format!("no lab named {name:?} is running; nothing to remove\n"))?;
                continue;
            }
            // With --all the other labs are removed nevertheless.
            Err(error) if all => {
                console::eprint_line(format_args!("lab: {name}: {error}"));
                failed += 1;
                continue;
            }
            Err(error) => return Err(error),
        }
        keeper::remove_log(directories, name);
        removed += 1;
    }
    if failed > 0 {
        return Err(Error::Invalid(format!("{failed} labs could not be removed; see the lines above")));
    }
    if all && removed == 0 {
        print("nothing to remove\n")?;
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    console::print(text).map_err(|error| Error::Invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_declared_consistently() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_records_name_is_not_the_labs_name() {
        for words in [&["set", "db-1.names.lab", "10.99.0.11"][..], &["remove", "db-1.names.lab"]] {
            let cli = Cli::try_parse_from([&["lab", "--name", "second", "names"], words].concat()).unwrap();
            assert_eq!(cli.name, "second");
            let Command::Names { names: names::Names::Set { record, .. } | names::Names::Remove { record } } =
                cli.command
            else {
                panic!("{words:?}");
            };
            assert_eq!(record, "db-1.names.lab");
        }
    }
}
