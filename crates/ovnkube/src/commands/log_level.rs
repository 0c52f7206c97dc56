//! `ovnkube log-level`: what a running role logs.

use std::process::ExitCode;

use super::FAILED;
use super::role::Role;
use crate::cli::Target;
use crate::config::Given;
use crate::http::Request;

pub(super) fn run(level: Option<&str>, target: &Target, given: &Given) -> anyhow::Result<ExitCode> {
    let role = Role::find(target, given)?;
    let answer = role.ask(Request {
        method: if level.is_some() { "PUT" } else { "GET" },
        path: "/log-level",
        accept: "text/plain",
        body: level.unwrap_or_default(),
    })?;
    if answer.status == 200 {
        console::print(&answer.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The role's refusal is one line that has its hint; a stranger's page is not for a terminal.
    let mut said: String = answer.body.lines().next().unwrap_or_default().to_owned();
    said.retain(|c| !c.is_control());
    eprintln!("error: {} refused (status {}): {said}", role.address, answer.status);
    Ok(ExitCode::from(FAILED))
}
