//! `ovnkube bridge render`.

use std::process::ExitCode;

use anyhow::Context as _;
use bridge::{Form, HostFile};

use crate::cli::{BridgeRender, RenderFormat};
use crate::commands::FAILED;
use crate::config::Problems;

pub(super) fn run(render: &BridgeRender) -> anyhow::Result<ExitCode> {
    if render.all_hosts && render.format != RenderFormat::Ignition {
        return Err(Problems(vec!["--all-hosts is for --format ignition".to_owned()]).into());
    }
    if !render.roles.is_empty() && render.format != RenderFormat::MachineConfig {
        return Err(Problems(vec!["--role is for --format machine-config".to_owned()]).into());
    }
    let file = &render.install_config;
    let checked = bridge::check(&super::read(file)?, &[]);
    if checked.form == Some(Form::NmState) {
        anyhow::bail!(
            "{file} is not an install-config: it has no networking.hostConfig; hint: an NMState file needs no rendering, \
             check it with ovnkube bridge check {file}"
        );
    }
    super::print_violations(Some(file), &checked.violations);
    if !checked.is_valid() {
        console::eprint_line(format_args!("error: nothing was written: {file} does not follow the rules for br-ex"));
        return Ok(ExitCode::from(FAILED));
    }
    let rendered = contents(render, &bridge::nmstate_files(&checked.hosts))?;
    let directory = &render.output;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create directory {}", directory.display()))?;
    let mut written = String::new();
    for (name, content) in rendered {
        let path = directory.join(name);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        written.push_str(&format!("{}\n", path.display()));
    }
    console::print(&written)?;
    Ok(ExitCode::SUCCESS)
}

/// Names and contents of all files.
fn contents(render: &BridgeRender, hosts: &[HostFile]) -> anyhow::Result<Vec<(String, String)>> {
    match render.format {
        RenderFormat::Nmstate => Ok(hosts.iter().map(|file| (file.name(), file.content.clone())).collect()),
        RenderFormat::Ignition if render.all_hosts => Ok(vec![("all-hosts.ign".to_owned(), bridge::ignition(hosts)?)]),
        RenderFormat::Ignition => hosts
            .iter()
            .map(|file| Ok((format!("{}.ign", file.host), bridge::ignition(std::slice::from_ref(file))?)))
            .collect(),
        RenderFormat::MachineConfig => {
            let usual = ["master".to_owned(), "worker".to_owned()];
            let roles = if render.roles.is_empty() { &usual[..] } else { &render.roles };
            let file = |role: &String| (format!("10-br-ex-{role}.yml"), bridge::machine_config(hosts, role));
            Ok(roles.iter().map(file).collect())
        }
    }
}
