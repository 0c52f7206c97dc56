//! The command line: what can be asked for, and help that teaches it.

mod controller;
mod node;
mod ovsdb;
mod plan;
mod release;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::config::Given;
use crate::settings::SETTINGS;

pub(crate) use controller::Controller;
pub(crate) use node::Node;
pub(crate) use ovsdb::{Dump, OvsdbVerb, Server, Transact, Watch};
pub(crate) use plan::Plan;
pub(crate) use release::Release;

/// OVN networking for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "ovnkube", version = telemetry::build::VERSION_AND_COMMIT, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  ovnkube controller                        the controller, with the settings of the file
  ovnkube node                              the agent of a node
  ovnkube config example > ovn_k8s.conf     a file to begin with
  ovnkube config check ovn_k8s.conf         every mistake in it, at once
  ovnkube config show                       each setting, and where its value comes from
  ovnkube health                            whether the role on this host is ready
  ovnkube log-level debug                   more logs from it, without a restart
  ovnkube ovsdb dump unix:/run/ovn/ovnnb_db.sock     what is in a database
  ovnkube plan -f manifests/                what manifests would make of the network
  ovnkube release --dry-run                 what it takes to leave the database to OVN-Kubernetes (Go)

Exit status: 0 success; 1 failure, or not healthy; 2 wrong usage, settings that cannot
work, or the role cannot be asked; plan also has 3: something would change;
release has 3: the other controller has not everything in place yet.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Verb,

    /// Configuration file [default: /etc/openvswitch/ovn_k8s.conf, if it is there] [env: OVNKUBE_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,

    #[command(flatten)]
    flags: SettingFlags,
}

impl Cli {
    /// What the command line says about the configuration.
    pub(crate) fn given(&self) -> Given {
        Given { file: self.config.clone(), no_file: false, flags: self.flags.0.clone() }
    }
}

/// What to do. A role is one more variant here, with its arm in `commands::run`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Turn Kubernetes objects into the logical network
    #[command(alias = "master", after_help = controller::EXAMPLES)]
    Controller(Controller),

    /// Wire the pods of this node and look after its way to the outside
    #[command(after_help = node::EXAMPLES)]
    Node(Node),

    /// Check, show or begin a configuration
    #[command(subcommand)]
    Config(ConfigVerb),

    /// Ask a running role whether it is ready or alive
    #[command(after_help = "\
Examples:
  ovnkube health                                  readiness of the role at [metrics] bind-address
  ovnkube health livez --address 127.0.0.1:9102   for an exec probe; reads no file
  ovnkube health -o json

Exit status: 0 healthy; 1 not healthy; 2 the role cannot be asked.")]
    Health {
        /// Which question: may work be sent to it, or must it be restarted
        #[arg(value_enum, default_value = "readyz")]
        probe: Probe,
        #[command(flatten)]
        target: Target,
        /// How to print the answer
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },

    /// Show or change what a running role logs
    #[command(after_help = "\
Examples:
  ovnkube log-level                      what is logged now
  ovnkube log-level debug                everything down to debug
  ovnkube log-level info,ovsdb=trace     one part in detail

The change lasts until the role restarts. It is allowed from the role's own host only.

Exit status: 0 done; 1 the role refused; 2 the role cannot be asked.")]
    LogLevel {
        /// off, error, warn, info, debug, trace, or directives; shows the level if absent
        level: Option<String>,
        #[command(flatten)]
        target: Target,
    },

    /// Look into any OVSDB server, follow it, change it
    #[command(subcommand, after_help = ovsdb::EXAMPLES)]
    Ovsdb(OvsdbVerb),

    /// Show what manifests would make of the network, and who could talk to whom
    #[command(after_help = plan::EXAMPLES)]
    Plan(Plan),

    /// Leave the northbound database to OVN-Kubernetes (Go), with nothing of ours in force
    #[command(after_help = release::EXAMPLES)]
    Release(Release),

    /// Print the version and the commit it was built from
    Version {
        /// Print it as JSON
        #[arg(short, long, value_parser = ["json"])]
        output: Option<String>,
    },

    /// Print a script that completes commands in a shell
    #[command(after_help = "\
Examples:
  source <(ovnkube completions bash)
  ovnkube completions fish > ~/.config/fish/completions/ovnkube.fish")]
    Completions {
        /// The shell to complete in
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Tell every mistake in the file, the environment and the flags, and in what they say together
    Check {
        /// The file to check, instead of the one that would be read
        file: Option<PathBuf>,
    },
    /// Show each setting's value, and where it comes from
    Show {
        /// How to print it
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Print a commented file with every setting
    Example,
}

/// Which role to ask.
#[derive(Debug, Args)]
pub(crate) struct Target {
    // Not a doc comment: the section's brackets would be a link in the crate's documentation.
    #[arg(
        long,
        value_name = "ADDRESS",
        help = "Where the role listens [default: [metrics] bind-address of the configuration]"
    )]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Probe {
    /// May work be sent to it?
    Readyz,
    /// Does its work go on, or must it be restarted?
    Livez,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

/// One flag for each entry of the settings table; their values by flag.
#[derive(Debug)]
struct SettingFlags(BTreeMap<&'static str, String>);

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
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
                    // `-h` shows what every command has; `--help` shows all.
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
        let values = SETTINGS.into_iter().filter_map(|setting| Some((setting.flag, value(setting.flag)?)));
        Ok(Self(values.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads the command line; what ends the process already here (help, a mistake) gives its exit status.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nothing can be done about a stdout that is closed.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            eprintln!("{}", in_one_line(&error.render().to_string()));
            ExitCode::from(2)
        }
    })
}

/// A message of the parser, which comes in paragraphs, as one line that ends with a hint.
fn in_one_line(message: &str) -> String {
    let mut line = String::new();
    for part in message.lines().map(str::trim) {
        if part.is_empty() || part.starts_with("Usage:") || part.starts_with("For more information") {
            continue;
        }
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(&part.replacen("tip: ", "hint: ", 1));
    }
    if !line.contains("hint: ") {
        line.push_str("; hint: see ovnkube --help");
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn setting_flags_are_read_before_and_after_the_command() {
        for line in [
            ["ovnkube", "--log-level", "debug", "config", "show"],
            ["ovnkube", "config", "show", "--log-level", "debug"],
        ] {
            let given = Cli::try_parse_from(line).unwrap().given();
            assert_eq!(given.flags.get("log-level").map(String::as_str), Some("debug"));
            assert_eq!(given.flags.len(), 1);
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
            let message = in_one_line(&Cli::try_parse_from(&line).unwrap_err().to_string());
            assert!(message.starts_with("error: "), "{message}");
            assert!(message.contains("hint: "), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
