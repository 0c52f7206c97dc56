//! The command line and its help.

mod bridge;
mod controller;
mod db;
mod node;
mod ovs_sidecar;
mod ovsdb;
mod pki;
mod plan;
mod release;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory as _, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::config::ConfigArgs;
use crate::settings::{DEPRECATED, SETTINGS};

pub(crate) use bridge::{BridgeCheck, BridgeDefault, BridgeRender, BridgeVerb, DhcpFamilies, RenderFormat};
pub(crate) use controller::Controller;
pub(crate) use db::{DbVerb, Form, MemberArgs, NodeArgs, Relay, Rename, Replace, Restore, Serve, Status};
pub(crate) use node::Node;
pub(crate) use ovs_sidecar::OvsSidecar;
pub(crate) use ovsdb::{Dump, OvsdbVerb, Server, Transact, Watch};
pub(crate) use pki::{PkiNamespace, PkiRevoke, PkiRotate, PkiServe, PkiStatus, PkiVerb};
pub(crate) use plan::Plan;
pub(crate) use release::Release;

/// OVN networking for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "ovnkube", version = telemetry::build::VERSION_AND_COMMIT, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  ovnkube controller                        the controller, with the settings of the file
  ovnkube node                              the agent of a node
  ovnkube ovs-sidecar                       keeps Open vSwitch running on a node, and shows its logs
  ovnkube db status                         members and health of OVN's databases
  ovnkube pki status                        OVN's certificates, and when they expire
  ovnkube bridge check install-config.yaml  br-ex of each host, checked before it is installed
  ovnkube config example > ovn_k8s.conf     a file to start with
  ovnkube config check ovn_k8s.conf         all problems of a file
  ovnkube config show                       value and source of each setting
  ovnkube health                            readiness of the role on this host
  ovnkube log-level debug                   more logs, without a restart
  ovnkube ovsdb dump unix:/run/ovn/ovnnb_db.sock     the rows of a database
  ovnkube plan -f manifests/                the changes that manifests would cause
  ovnkube release --dry-run                 what handing over to OVN-Kubernetes (Go) would remove

Exit status: 0 success; 1 failure, or not healthy; 2 wrong usage, invalid settings,
or the role cannot be reached; plan also has 3: something would change;
release has 3: the other controller lacks replacements.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Verb,

    /// Configuration file [default: /etc/openvswitch/ovn_k8s.conf, if it exists] [env: OVNKUBE_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,

    #[command(flatten)]
    flags: SettingFlags,
}

impl Cli {
    /// The arguments that select the configuration.
    pub(crate) fn config_args(&self) -> ConfigArgs {
        ConfigArgs { file: self.config.clone(), no_file: false, flags: self.flags.0.clone() }
    }
}

/// Sub-commands. A new role is a variant here, with its arm in `commands::run`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the controller: apply Kubernetes objects to the northbound database
    #[command(alias = "master", after_help = controller::EXAMPLES)]
    Controller(Controller),

    /// Run the node agent: connect the pods of this node, and configure its gateway
    #[command(after_help = node::EXAMPLES)]
    Node(Node),

    /// Keep the host's Open vSwitch running: systemd units, health, logs
    #[command(after_help = ovs_sidecar::EXAMPLES)]
    OvsSidecar(OvsSidecar),

    /// Run a member of OVN's databases, or show their state
    #[command(subcommand, after_help = db::EXAMPLES)]
    Db(DbVerb),

    /// Create and renew OVN's certificates, or show them
    #[command(subcommand, after_help = pki::EXAMPLES)]
    Pki(PkiVerb),

    /// Check and render configurations of br-ex
    #[command(subcommand, after_help = bridge::EXAMPLES)]
    Bridge(BridgeVerb),

    /// Check or show the configuration, or print an example
    #[command(subcommand)]
    Config(ConfigVerb),

    /// Query readiness or liveness of a running role
    #[command(after_help = "\
Examples:
  ovnkube health                                  readiness of the role at [metrics] bind-address
  ovnkube health livez --address 127.0.0.1:9102   for an exec probe; reads no file
  ovnkube health -o json

Exit status: 0 healthy; 1 not healthy; 2 the role cannot be reached.")]
    Health {
        /// Readiness or liveness
        #[arg(value_enum, default_value = "readyz")]
        probe: Probe,
        #[command(flatten)]
        target: Target,
        /// Output format
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },

    /// Show or change the log filter of a running role
    #[command(after_help = "\
Examples:
  ovnkube log-level                      the current filter
  ovnkube log-level debug                everything down to debug
  ovnkube log-level info,ovsdb=trace     one part in detail

The change lasts until the role restarts. It is allowed only from the role's host.

Exit status: 0 done; 1 the role rejected it; 2 the role cannot be reached.")]
    LogLevel {
        /// off, error, warn, info, debug, trace, or directives; if omitted, show the current one
        level: Option<String>,
        #[command(flatten)]
        target: Target,
    },

    /// Dump, watch or change any OVSDB server
    #[command(subcommand, after_help = ovsdb::EXAMPLES)]
    Ovsdb(OvsdbVerb),

    /// Show the changes that manifests would cause, or evaluate reachability
    #[command(after_help = plan::EXAMPLES)]
    Plan(Plan),

    /// Hand the northbound database over to OVN-Kubernetes (Go), and remove ovnkube's rows
    #[command(after_help = release::EXAMPLES)]
    Release(Release),

    /// Print version and commit
    Version {
        /// Print JSON
        #[arg(short, long, value_parser = ["json"])]
        output: Option<String>,
    },

    /// Print a shell completion script
    #[command(after_help = "\
Examples:
  source <(ovnkube completions bash)
  ovnkube completions fish > ~/.config/fish/completions/ovnkube.fish")]
    Completions {
        /// Shell of the script
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Report all problems of the file, the environment and the flags, and of their combination
    Check {
        /// File to check instead of the configured one
        file: Option<PathBuf>,
    },
    /// Show the value and the source of each setting
    Show {
        /// Output format
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Print a commented file with all settings
    Example,
}

/// Address of a role.
#[derive(Debug, Args)]
pub(crate) struct Target {
    // Not a doc comment: rustdoc would take the brackets of the section for a link.
    #[arg(
        long,
        value_name = "ADDRESS",
        help = "Address of the role [default: [metrics] bind-address of the configuration]"
    )]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Probe {
    /// Whether the role can take work
    Readyz,
    /// Whether the role makes progress, or must be restarted
    Livez,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

/// One flag per entry of the settings table; values by flag.
#[derive(Debug)]
struct SettingFlags(BTreeMap<&'static str, String>);

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let command = DEPRECATED.iter().fold(command, |command, former| {
            command.arg(Arg::new(former.flag).long(former.flag).hide(true).global(true))
        });
        SETTINGS.into_iter().fold(command, |command, setting| {
            let help = format!("{} [default: {}] [env: {}]", setting.help, setting.default, setting.variable());
            command.arg(
                Arg::new(setting.flag)
                    .long(setting.flag)
                    .value_name(setting.placeholder)
                    .help(help)
                    .long_help(format!(
                        "{}; allowed: {} [default: {}] [env: {}]",
                        setting.help,
                        setting.allowed,
                        setting.default,
                        setting.variable()
                    ))
                    .help_heading("Global options")
                    // `-h` shows the common flags only; `--help` shows all.
                    .hide_short_help(!matches!(setting.section, "logging" | "metrics"))
                    .global(true),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |flag| matches.get_one::<String>(flag).cloned();
        let flags = SETTINGS.into_iter().map(|setting| setting.flag).chain(DEPRECATED.iter().map(|former| former.flag));
        let values = flags.filter_map(|flag| Some((flag, value(flag)?)));
        Ok(Self(values.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses the command line; help and mistakes return the exit status.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed stdout cannot be reported.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            console::eprint_line(format_args!(
                "{}",
                in_one_line(&error.render().to_string(), &command_of(std::env::args()))
            ));
            ExitCode::from(2)
        }
    })
}

/// The command and its sub-commands among the arguments, such as `ovnkube db status`. Clap's message does not always have them.
fn command_of(arguments: impl Iterator<Item = String>) -> String {
    let (mut command, mut path) = (Cli::command(), "ovnkube".to_owned());
    for word in arguments.skip(1) {
        if let Some(found) = command.find_subcommand(&word).cloned() {
            path.push_str(&format!(" {word}"));
            command = found;
        }
    }
    path
}

/// Joins the paragraphs of a clap message into one line that ends with a hint.
fn in_one_line(message: &str, command: &str) -> String {
    let mut line = String::new();
    for part in message.lines().map(str::trim) {
        if part.is_empty() || part.starts_with("Usage: ") || part.starts_with("For more information") {
            continue;
        }
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(&part.replacen("tip: ", "hint: ", 1));
    }
    if !line.contains("hint: ") {
        line.push_str(&format!("; hint: see {command} --help"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn setting_flags_are_accepted_before_and_after_the_command() {
        for line in [
            ["ovnkube", "--log-level", "debug", "config", "show"],
            ["ovnkube", "config", "show", "--log-level", "debug"],
        ] {
            let args = Cli::try_parse_from(line).unwrap().config_args();
            assert_eq!(args.flags.get("log-level").map(String::as_str), Some("debug"));
            assert_eq!(args.flags.len(), 1);
        }
    }

    #[test]
    fn mistakes_are_one_line_with_a_hint() {
        for line in [
            vec!["ovnkube", "verzion"],
            vec!["ovnkube", "health", "--adress", "x"],
            vec!["ovnkube", "health", "-o", "yaml"],
            vec!["ovnkube", "completions"],
            vec!["ovnkube", "version", "extra"],
        ] {
            let message = in_one_line(&Cli::try_parse_from(&line).unwrap_err().to_string(), "ovnkube");
            assert!(message.starts_with("error: "), "{message}");
            assert!(message.contains("hint: "), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        for (line, command) in [
            (&["ovnkube", "db", "status", "-o", "yaml"][..], "ovnkube db status"),
            (&["ovnkube", "--log-level", "debug", "pki", "rotate", "--al"], "ovnkube pki rotate"),
            (&["ovnkube", "verzion"], "ovnkube"),
        ] {
            assert_eq!(command_of(line.iter().map(|word| (*word).to_owned())), command);
        }
        let message = "error: a value is missing\n\nFor more information, try '--help'.";
        assert_eq!(
            in_one_line(message, "ovnkube db status"),
            "error: a value is missing; hint: see ovnkube db status --help"
        );
    }
}
