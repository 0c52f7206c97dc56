//! `ovnkube log-level`: shows or changes the log filter of a running role.

use std::process::ExitCode;

use super::FAILED;
use super::role::Role;
use crate::cli::Target;
use crate::config::ConfigArgs;
use crate::http::Request;

pub(super) fn run(level: Option<&str>, target: &Target, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let role = Role::find(target, args)?;
    let response = role.send(Request {
        method: if level.is_some() { "PUT" } else { "GET" },
        path: "/log-level",
        accept: "text/plain",
        body: level.unwrap_or_default(),
    })?;
    if response.status == 200 {
        console::print(&response.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    // A role replies with one line; show no more of another server's page.
    let mut message: String = response.body.lines().next().unwrap_or_default().to_owned();
    message.retain(|c| !c.is_control());
    console::eprint_line(format_args!("error: {} rejected it (status {}): {message}", role.address, response.status));
    Ok(ExitCode::from(FAILED))
}
