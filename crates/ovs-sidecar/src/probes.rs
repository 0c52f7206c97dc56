//! Whether Open vSwitch works: the database and the switch answer, and the switch has its datapaths.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use hostovs::processes::intruders;
use hostovs::units::Daemon;
use ovsdb::client::{Client, Config, Remote, TableMonitor};
use ovsdb::replica::Snapshot;
use telemetry::{Condition, Health};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{control, processes};

const PERIOD: Duration = Duration::from_secs(2);
/// Limit of a reply of the database.
const LIMIT: Duration = Duration::from_secs(3);
/// Failures before a condition changes: a daemon that systemd restarts is away for a moment.
const TOLERATED: u32 = 1;

/// A condition that fails only if it failed before.
struct Probe {
    condition: Condition,
    failures: u32,
    /// Logged last.
    reported: Option<String>,
}

impl Probe {
    fn new(health: &Health, name: &str) -> Self {
        Self { condition: health.condition(name), failures: 0, reported: None }
    }

    fn set(&mut self, name: &'static str, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.failures = 0;
                self.condition.ready();
                if self.reported.take().is_some() {
                    tracing::info!(check = name, "check of Open vSwitch passes again");
                }
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures <= TOLERATED {
                    return;
                }
                if self.reported.as_ref() != Some(&error) {
                    tracing::warn!(check = name, error, "check of Open vSwitch fails");
                }
                self.condition.not_ready(error.clone());
                self.reported = Some(error);
            }
        }
    }
}

/// Checks for ever.
pub(crate) async fn run(directory: PathBuf, health: Health, process: watch::Receiver<Option<u32>>) {
    let (mut database, mut switch) = (Probe::new(&health, "ovsdb-server"), Probe::new(&health, "ovs-vswitchd"));
    let (mut datapath, mut only) = (Probe::new(&health, "datapath"), Probe::new(&health, "one-vswitchd"));
    let remote = Remote::Unix(directory.join("db.sock"));
    let config = Config::new(vec![remote.clone()], "Open_vSwitch");
    let client = Client::start(config.monitor(TableMonitor::new("Bridge").columns(&["name"])));
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = timeout(LIMIT, client.databases()).await;
        let answer = match answer {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("ovsdb-server does not answer at {remote} ({error})")),
            Err(_) => Err(format!("ovsdb-server does not answer at {remote} within {LIMIT:?}")),
        };
        database.set("ovsdb-server", answer);
        match control::command(&directory, Daemon::Vswitchd, "dpif/show", &[]).await {
            Ok(shown) => {
                switch.set("ovs-vswitchd", Ok(()));
                datapath.set("datapath", check_datapaths(&bridges(&client.snapshot()), &shown));
            }
            Err(error) => {
                switch.set("ovs-vswitchd", Err(error.to_string()));
                datapath.set("datapath", Err("unknown: ovs-vswitchd does not answer".to_owned()));
            }
        }
        if let Some(main) = *process.borrow() {
            let unit = format!("{}.service", Daemon::Vswitchd);
            let found = processes::vswitchds().map(|processes| intruders(&processes, &unit, main));
            let result = match found {
                Ok(found) if found.is_empty() => Ok(()),
                Ok(found) => Err(found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
                Err(error) => Err(format!("cannot read /proc ({error})")),
            };
            only.set("one-vswitchd", result);
        }
    }
}

fn bridges(snapshot: &Snapshot) -> BTreeSet<String> {
    let rows = snapshot
        .table("Bridge")
        .into_iter()
        .flat_map(|table| table.iter().filter_map(|row| row.text("name")).collect::<Vec<_>>());
    rows.collect()
}

/// `dpif/show` lists each datapath with its bridges, which are indented by two characters.
fn check_datapaths(bridges: &BTreeSet<String>, shown: &str) -> Result<(), String> {
    let served: BTreeSet<&str> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?.strip_suffix(':'))
        .collect();
    let missing: Vec<&str> = bridges.iter().map(String::as_str).filter(|bridge| !served.contains(bridge)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "ovs-vswitchd has no datapath for the bridges {}; check its log for \"could not open datapath\", and that the host's \
         kernel has the module openvswitch",
        missing.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_without_a_datapath_are_named() {
        let shown = "netdev@ovs-netdev: hit:0 missed:0\n  br-int:\n    br-int 65534/1: (tap)\n  br-ex:\n    eth0 1/2: (system)\n";
        let bridges = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(check_datapaths(&bridges(&["br-int", "br-ex"]), shown), Ok(()));
        assert_eq!(check_datapaths(&bridges(&[]), ""), Ok(()));
        let error = check_datapaths(&bridges(&["br-int", "br-x"]), shown).unwrap_err();
        assert!(error.starts_with("ovs-vswitchd has no datapath for the bridges br-x;"), "{error}");
    }
}
