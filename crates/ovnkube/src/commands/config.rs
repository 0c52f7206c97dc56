//! `ovnkube config`: check, show, example.

use std::process::ExitCode;

use serde::Serialize;

use super::checked_settings::{self, exposed_databases};
use crate::cli::{ConfigVerb, Output};
use crate::config::{Config, ConfigArgs, DEFAULT_FILE, Effective, Source};
use crate::settings;
use console::table::{self, Cell};

pub(super) fn run(verb: &ConfigVerb, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match verb {
        ConfigVerb::Check { file } => {
            let mut args = args.clone();
            if file.is_some() {
                args.file.clone_from(file);
            }
            let config = Config::load(&args)?;
            checked_settings::check(&config)?;
            for warning in config
                .warnings
                .iter()
                .cloned()
                .chain(exposed_databases(&config, &[&settings::NB_ADDRESS, &settings::SB_ADDRESS]))
            {
                eprintln!("warning: {warning}");
            }
            print_summary(&config)?;
        }
        ConfigVerb::Show { output } => show(&Config::load(args)?, *output)?,
        ConfigVerb::Example => console::print(&settings::example_file())?,
    }
    Ok(ExitCode::SUCCESS)
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
