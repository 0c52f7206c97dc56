//! `ovnkube config`: check, show, example.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::CommandFactory as _;
use serde::Serialize;

use super::checked_settings::{self, exposed_databases, metrics_files};
use crate::cli::{Cli, ConfigVerb, Output};
use crate::config::{Config, ConfigArgs, DEFAULT_FILE, Effective, FILE_VARIABLE, Problems, Source};
use crate::settings::{self, DEPRECATED, SETTINGS, metrics, parse_bind_address};
use crate::suggest;
use console::table::{self, Cell};

pub(super) fn run(verb: &ConfigVerb, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match verb {
        ConfigVerb::Check { file } => {
            let mut args = args.clone();
            if file.is_some() {
                args.file.clone_from(file);
            }
            let config = Config::load(&args)?;
            let checked = checked_settings::check(&config);
            let mut problems = checked.err().map(|Problems(problems)| problems).unwrap_or_default();
            problems.extend(listener_problems(&config)?);
            if !problems.is_empty() {
                return Err(Problems(problems).into());
            }
            let variables = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            for warning in config
                .warnings
                .iter()
                .cloned()
                .chain(unknown_variables(variables, &known_variables()))
                .chain(exposed_databases(&config, &[&settings::NB_ADDRESS, &settings::SB_ADDRESS]))
            {
                console::eprint_line(format_args!("warning: {warning}"));
            }
            print_summary(&config)?;
        }
        ConfigVerb::Show { output } => show(&Config::load(args)?, *output)?,
        ConfigVerb::Example => console::print(&settings::example_file())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Start of the names of all environment variables of ovnkube.
const VARIABLES: &str = "OVNKUBE_";
/// Variables of ovnkube's scripts and of its build.
const OTHER_VARIABLES: [&str; 2] = ["OVNKUBE_COMMIT", "OVNKUBE_NAMESPACE"];

/// What prevents metrics from being served. Roles start all the same and log it: manifests set the address always, and the
/// certificate only in a cluster that has one.
fn listener_problems(config: &Config) -> anyhow::Result<Vec<String>> {
    let address = |setting| parse_bind_address(config.value(setting)?).map_err(|why| anyhow!(why));
    let (local, scrapers) = (address(&settings::METRICS_ADDRESS)?, address(&metrics::TLS_ADDRESS)?);
    let mut problems = Vec::new();
    // One without the other is reported for roles as well.
    if scrapers.is_some() && matches!(metrics_files(config), Ok(None)) {
        problems.push(
            "[metrics] tls-bind-address is set, but tls-cert and tls-key are not: give both, or set tls-bind-address to \
             off"
            .to_owned(),
        );
    }
    if let (Some(local), Some(scrapers)) = (local, scrapers)
        && overlap(local, scrapers)
    {
        problems.push(format!(
            "[metrics] bind-address {local} and tls-bind-address {scrapers} cannot both be used: give one of them another port"
        ));
    }
    Ok(problems)
}

/// Whether two listeners exclude each other.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_address = a.ip() == b.ip() || a.ip().is_unspecified() && b.ip().is_unspecified();
    // Port 0 is any free port.
    a.port() == b.port() && a.port() != 0 && same_address
}

/// Names of all variables that settings, arguments and scripts use.
fn known_variables() -> BTreeSet<String> {
    fn add_arguments(command: &clap::Command, known: &mut BTreeSet<String>) {
        known.extend(command.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned())));
        command.get_subcommands().for_each(|command| add_arguments(command, known));
    }
    let settings = SETTINGS.into_iter().map(settings::Setting::variable);
    let former = DEPRECATED.iter().map(settings::Deprecated::variable);
    let others = OTHER_VARIABLES.into_iter().chain([FILE_VARIABLE]).map(str::to_owned);
    let mut known: BTreeSet<String> = settings.chain(former).chain(others).collect();
    add_arguments(&Cli::command(), &mut known);
    known
}

/// A warning per variable that nothing reads: a misspelt setting has no effect.
fn unknown_variables(names: impl Iterator<Item = String>, known: &BTreeSet<String>) -> Vec<String> {
    let endings: Vec<String> =
        known.iter().filter_map(|name| Some(name.strip_prefix(VARIABLES)?.to_lowercase())).collect();
    let mut unknown: Vec<String> = names
        .filter(|name| !known.contains(name) && !is_of_a_service(name) && !name.starts_with("OVNKUBE_LAB_"))
        .filter_map(|name| {
            let nearest = suggest::nearest(name.strip_prefix(VARIABLES)?, endings.iter().map(String::as_str));
            let hint = nearest.map(|ending| format!("; did you mean {VARIABLES}{}?", ending.to_uppercase()));
            Some(format!("unknown environment variable {name:?} is ignored{}", hint.unwrap_or_default()))
        })
        .collect();
    unknown.sort();
    unknown
}

/// Whether kubelet sets it for a Service whose name begins with `ovnkube-`.
fn is_of_a_service(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.contains("_PORT_")
}

fn print_summary(config: &Config) -> anyhow::Result<()> {
    let is_set = |effective: &&Effective| effective.source != Source::Default;
    let set = config.effective.iter().filter(is_set).count();
    let total = config.effective.len();
    console::print(&format!(
        "{}: no problem; settings: {set} of {total} set, the others have their defaults\n",
        file_name(config)
    ))?;
    Ok(())
}

fn file_name(config: &Config) -> String {
    match &config.file {
        Some(path) => path.display().to_string(),
        None => format!("no file ({DEFAULT_FILE} does not exist)"),
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    file: Option<String>,
    settings: Vec<ShownSetting<'a>>,
}

#[derive(Serialize)]
struct ShownSetting<'a> {
    section: &'a str,
    key: &'a str,
    value: &'a str,
    source: &'a Source,
}

fn show(config: &Config, output: Output) -> anyhow::Result<()> {
    if output == Output::Json {
        let settings = config.effective.iter().map(|effective| ShownSetting {
            section: effective.setting.section,
            key: effective.setting.key,
            value: &effective.value,
            source: &effective.source,
        });
        console::print_json(&Shown {
            file: config.file.as_ref().map(|path| path.display().to_string()),
            settings: settings.collect(),
        })?;
        return Ok(());
    }
    let rows = config.effective.iter().map(|effective| {
        let setting = effective.setting;
        [
            Cell::plain(format!("[{}] {}", setting.section, setting.key)),
            Cell::plain(&effective.value),
            Cell::plain(effective.source.to_string()),
        ]
    });
    let text = table::render(["SETTING", "VALUE", "SOURCE"], rows.collect(), table::colour());
    console::print(&text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(names: &[&str]) -> Vec<String> {
        unknown_variables(names.iter().map(ToString::to_string), &known_variables())
    }

    #[test]
    fn misspelt_variables_are_warned_of() {
        assert_eq!(
            warnings(&["OVNKUBE_LOGING_LEVEL", "OVNKUBE_ZZZZZZZZ", "PATH"]),
            [
                "unknown environment variable \"OVNKUBE_LOGING_LEVEL\" is ignored; did you mean OVNKUBE_LOGGING_LEVEL?",
                "unknown environment variable \"OVNKUBE_ZZZZZZZZ\" is ignored",
            ]
        );
    }

    #[test]
    fn variables_of_roles_scripts_and_services_are_known() {
        let known = [
            "OVNKUBE_CONFIG",
            "OVNKUBE_CNI_PATIENCE",
            "OVNKUBE_CNI_SHIM",
            "OVNKUBE_CLUSTER_DOMAIN",
            "OVNKUBE_COMMIT",
            "OVNKUBE_DB_HOST",
            "OVNKUBE_DB_PORT",
            "OVNKUBE_DB_RAFT_PORT",
            "OVNKUBE_LAB_CACHE",
            "OVNKUBE_LEADER_ELECTION_KUBECONFIG",
            "OVNKUBE_METRICS_TLS_CERT",
            "OVNKUBE_NAMESPACE",
            "OVNKUBE_PKI_NAMES",
            // Of Services named ovnkube-db and ovnkube-relay.
            "OVNKUBE_DB_SERVICE_HOST",
            "OVNKUBE_DB_SERVICE_PORT",
            "OVNKUBE_RELAY_SERVICE_PORT_METRICS",
            "OVNKUBE_RELAY_PORT",
            "OVNKUBE_RELAY_PORT_6642_TCP_ADDR",
        ];
        assert!(warnings(&known).is_empty(), "{:?}", warnings(&known));
    }

    #[test]
    fn listeners_on_the_same_address_and_port_overlap() {
        let overlap = |a: &str, b: &str| overlap(a.parse().unwrap(), b.parse().unwrap());
        assert!(overlap("127.0.0.1:9102", "127.0.0.1:9102"));
        assert!(overlap("0.0.0.0:9102", "[::]:9102"));
        assert!(!overlap("127.0.0.1:9102", "192.0.2.1:9102"));
        assert!(!overlap("127.0.0.1:9102", "127.0.0.1:9103"));
        assert!(!overlap("127.0.0.1:0", "127.0.0.1:0"));
    }
}
