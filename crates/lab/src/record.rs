//! The record of a lab: what it made, written as it makes it, so that anyone can look at it, enter it or remove it.
//!
//! Only the owner (a test, or the keeper of `lab up`) writes it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, make_dir, read_file, write_file};
use crate::ownership::Ownership;
use crate::place::Place;
use crate::process::ProcessId;
use crate::spec::LabSpec;

/// How far a lab has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Components are being started.
    Starting,
    /// Everything that was asked for answers.
    Ready,
    /// It is being removed.
    Stopping,
}

/// One machine of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Its name: `control`, `db-1`, `n1`, `outside`, `fabric`.
    pub name: String,
    /// Its first process; everything on the machine ends with it.
    pub init: ProcessId,
    /// Its addresses on the underlay.
    pub addresses: Vec<String>,
}

/// One program of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComponentRecord {
    /// Its name: `etcd`, `nb-1`, `n1-ovs-vswitchd`.
    pub name: String,
    /// The machine it runs on.
    pub machine: String,
    /// Its process.
    pub process: ProcessId,
    /// Its log file.
    pub log: PathBuf,
    /// How it ended, once it has.
    pub ended: Option<String>,
}

/// How the outside world reaches what runs in a lab.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Endpoints {
    /// Northbound database, for programs anywhere on this machine (unix sockets).
    pub northbound: Option<String>,
    /// Southbound database, likewise.
    pub southbound: Option<String>,
    /// Northbound database as nodes reach it (tcp or ssl).
    pub northbound_remote: Option<String>,
    /// Southbound database as nodes reach it (tcp or ssl).
    pub southbound_remote: Option<String>,
    /// The API server on the host's loopback.
    pub api: Option<String>,
    /// A kubeconfig for programs on the host.
    pub kubeconfig: Option<PathBuf>,
    /// A kubeconfig for programs on the lab's machines.
    pub machine_kubeconfig: Option<PathBuf>,
    /// The keeper's `/livez`, `/readyz` and `/metrics`.
    pub telemetry: Option<String>,
}

/// Everything that a lab made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The lab's name.
    pub name: String,
    /// How far it has come.
    pub phase: Phase,
    /// The process that owns it.
    pub owner: ProcessId,
    /// What was asked for.
    pub spec: LabSpec,
    /// The node image it runs on.
    pub image: PathBuf,
    /// The folder of the Kubernetes binaries, if it has Kubernetes.
    pub kubernetes: Option<PathBuf>,
    /// Machines, in the order in which they were made.
    pub machines: Vec<MachineRecord>,
    /// Programs, in the order in which they were started.
    pub components: Vec<ComponentRecord>,
    /// Cgroups (folders) that it made.
    pub cgroups: Vec<PathBuf>,
    /// How to reach it.
    pub endpoints: Endpoints,
}

impl Record {
    /// An error if pods of this lab have no network: nothing can be probed or tested there.
    pub(crate) fn require_pod_network(&self) -> Result<()> {
        if self.spec.product.is_some() && self.spec.kubernetes.is_some() {
            return Ok(());
        }
        let name = &self.name;
        Err(Error::Invalid(format!(
            "lab {name:?} has no pod network; `lab up --name {name} --network ovnkube --nodes 3` starts one that has"
        )))
    }

    /// Reads the record of a lab, whether it runs or crashed.
    pub fn load(place: &Place, name: &str) -> Result<Self> {
        let path = place.lab(name).join("lab.json");
        if !path.exists() {
            return Err(Error::NotRunning { name: name.to_owned() });
        }
        serde_json::from_str(&read_file(&path)?).map_err(|error| {
            Error::Invalid(format!(
                "{} is damaged ({error}); `lab down --name {name}` removes the lab's folder",
                path.display()
            ))
        })
    }

    /// A machine by name; the error lists those there are.
    pub fn machine(&self, name: &str) -> Result<&MachineRecord> {
        self.machines.iter().find(|machine| machine.name == name).ok_or_else(|| Error::Unknown {
            kind: "machine",
            name: name.to_owned(),
            lab: self.name.clone(),
            known: self.machines.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// A component by name; the error lists those there are.
    pub fn component(&self, name: &str) -> Result<&ComponentRecord> {
        self.components.iter().find(|component| component.name == name).ok_or_else(|| Error::Unknown {
            kind: "component",
            name: name.to_owned(),
            lab: self.name.clone(),
            known: self.components.iter().map(|component| component.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// The names of all labs that left a folder, running or not.
pub fn lab_names(place: &Place) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(place.labs()) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| crate::spec::check_name(name).is_ok())
        .collect();
    names.sort();
    names
}

/// The record in the owner's hands: every change is on disk before the next step.
#[derive(Debug)]
pub(crate) struct Ledger {
    dir: PathBuf,
    record: Mutex<Record>,
    ownership: Ownership,
}

impl Ledger {
    /// Begins a record. The ownership of the lab's name lives as long as it.
    pub(crate) fn create(place: &Place, record: Record, ownership: Ownership) -> Result<Self> {
        let dir = place.lab(&record.name);
        make_dir(&dir)?;
        let ledger = Self { dir, record: Mutex::new(record), ownership };
        ledger.change(|_| ())?;
        Ok(ledger)
    }

    /// Gives the lab's name back: its folder is gone.
    pub(crate) fn forget(&self) {
        self.ownership.forget();
    }

    /// The lab's folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A look at the record.
    pub(crate) fn read(&self) -> MutexGuard<'_, Record> {
        // A panic elsewhere cannot leave a record half-changed: each change is one assignment or push.
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Changes the record and writes it, in one step that a crash cannot halve.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T> {
        let mut record = self.read();
        let answer = change(&mut record);
        let text = serde_json::to_string_pretty(&*record)
            .map_err(|error| Error::Invalid(format!("cannot write the lab's record: {error}")))?;
        let temporary = self.dir.join("lab.json.new");
        write_file(&temporary, text)?;
        std::fs::rename(&temporary, self.dir.join("lab.json")).map_err(Error::io("cannot replace the lab's record"))?;
        Ok(answer)
    }
}
