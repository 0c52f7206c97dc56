//! `lab light-chassis`: simulates hundreds of chassis, for a running lab or any southbound database.

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::{load_running, print};
use crate::directories::Directories;
use crate::error::{Error, Result};
use crate::light_chassis::{ChassisSpec, LightChassis};

#[derive(Debug, Args)]
#[command(after_help = "They register, claim the ports that are requested for them (options:requested-chassis) and \
    echo nb_cfg, as ovn-controllers do; they carry no packets.\n\n\
    Examples:\n  \
    lab up --no-kubernetes --nodes 0 && lab light-chassis --count 500\n  \
    lab light-chassis --remote tcp:10.0.0.1:6642,tcp:10.0.0.2:6642,tcp:10.0.0.3:6642 --prefix sim-")]
pub(super) struct Options {
    /// The southbound database (unix: or tcp:), all members if it is a raft cluster [default: the running lab's]
    #[arg(long)]
    remote: Option<String>,
    /// Number of chassis
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Prefix of names and host names; a number from 1 follows
    #[arg(long, default_value = "node-")]
    prefix: String,
    /// Tunnel address (IPv4) of the first chassis; the others get the following ones. No two chassis may share one
    #[arg(long, default_value = "10.128.0.1")]
    first_address: std::net::Ipv4Addr,
}

impl Options {
    fn specs(&self) -> Vec<ChassisSpec> {
        ChassisSpec::numbered_from(&self.prefix, self.count, self.first_address)
    }
}

/// Runs until SIGTERM or SIGINT, then deletes the rows.
pub(super) fn run(directories: &Directories, name: &str, options: &Options) -> Result<()> {
    let remote = match &options.remote {
        Some(remote) => remote.clone(),
        None => load_running(directories, name)?
            .endpoints
            .southbound
            .ok_or_else(|| Error::Invalid(format!("lab {name:?} has no OVN; name a database with --remote")))?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("cannot start a runtime"))?;
    runtime.block_on(async {
        let cannot = || Error::io("cannot wait for signals");
        // Before anything is registered: an early Ctrl-C leaves no rows either.
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot())?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot())?;
        let chassis = LightChassis::start(&remote, &options.specs())?;
        let (prefix, count) = (&options.prefix, options.count);
        print(&format!(
            "{count} chassis, {prefix}1 to {prefix}{count}, are registered at {remote}; Ctrl-C removes them\n"
        ))?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let claimed = chassis.claimed();
        chassis.stop()?;
        print(&format!("removed {count} chassis; {claimed} ports were bound to them\n"))
    })
}
