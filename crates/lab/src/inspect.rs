//! Access to a lab through its record: for the owner and for any other process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::central::{Database, MEMBERS};
use crate::error::{Error, Result};
use crate::machine::{Machine, base_environment};
use crate::record::Record;
use crate::spec::Databases;
use crate::underlay::database_name;

/// The directory of a machine on the host. Its `run` is the machine's `/run`.
pub fn machine_dir(lab: &Path, machine: &str) -> PathBuf {
    lab.join("machines").join(machine)
}

/// A handle with an environment in which `ovn-nbctl`, `ovn-sbctl` and `kubectl` find the lab's servers.
pub(crate) fn machine(record: &Record, name: &str) -> Result<Machine> {
    let found = record.machine(name)?;
    let mut environment = base_environment(record.kubernetes.as_deref());
    let mut set = |key: &str, value: Option<String>| environment.extend(value.map(|value| (key.to_owned(), value)));
    set("OVN_NB_DB", record.endpoints.northbound.clone());
    set("OVN_SB_DB", record.endpoints.southbound.clone());
    set("KUBECONFIG", record.endpoints.machine_kubeconfig.as_ref().map(|path| path.display().to_string()));
    Ok(Machine::new(found, environment))
}

/// The component that is the raft leader of a database, according to its members.
pub(crate) fn raft_leader(record: &Record, database: Database) -> Result<String> {
    let databases = record.spec.ovn.as_ref().map(|ovn| ovn.databases);
    if databases.is_some_and(Databases::in_pods) {
        return Err(Error::Invalid(
            "this lab's databases run in pods: `lab kubectl -n ovn-kubernetes exec ds/ovnkube-db -- ovnkube db status` shows their \
             leaders"
                .into(),
        ));
    }
    if databases != Some(Databases::Raft) {
        return Err(Error::Invalid("this lab's databases are not clustered".into()));
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    // During an election there is none.
    for member in (1..=MEMBERS).cycle().take_while(|_| Instant::now() < deadline) {
        let machine = machine(record, &database_name(member))?;
        // A paused member never replies.
        let args = ["ovn-appctl", "--timeout=5", "-t", &database.control_socket(), "cluster/status", database.schema()];
        let status = machine.output(&args)?;
        if status.status.success() && String::from_utf8_lossy(&status.stdout).contains("Role: leader") {
            return Ok(database.component(member));
        }
    }
    Err(Error::Invalid(format!("{} has had no leader for 30 s", database.schema())))
}

pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The error lists the existing components.
pub(crate) fn log(record: &Record, component: &str) -> Result<PathBuf> {
    let path = record.component(component)?.log.clone();
    if path.exists() { Ok(path) } else { Err(Error::Invalid(format!("the log {} is gone", path.display()))) }
}
