//! The record of a lab, `lab.json`: written as machines and components are created, so that any process can show, enter
//! or remove the lab.
//!
//! Only the owner (a test, or the keeper of `lab up`) writes it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::directories::Directories;
use crate::error::{Error, Result, create_dir, read_file, write_file};
use crate::ownership::Ownership;
use crate::process::ProcessId;
use crate::spec::LabSpec;

/// How far the start or removal of a lab has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Components are being started.
    Starting,
    /// Every component is ready.
    Ready,
    /// The lab is being removed.
    Stopping,
}

/// A machine as it is recorded in `lab.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineRecord {
    /// `control`, `db-1`, `n1`, `outside`, `fabric`.
    pub name: String,
    /// Its first process; every process on the machine exits with it.
    pub init: ProcessId,
    /// On the underlay, with prefix length.
    pub addresses: Vec<String>,
}

/// A component as it is recorded in `lab.json`; one that has exited stays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComponentRecord {
    /// `etcd`, `nb-1`, `n1-ovs-vswitchd`.
    pub name: String,
    /// Machine that it runs on, such as `control`.
    pub machine: String,
    /// The process of its latest start.
    pub process: ProcessId,
    /// File of its standard output and error, of all its starts.
    pub log: PathBuf,
    /// The exit status, once it has exited.
    pub ended: Option<String>,
}

/// Addresses and kubeconfigs of a lab's servers; none for a server that the lab does not have.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Endpoints {
    /// Northbound database from anywhere on this host (unix sockets).
    pub northbound: Option<String>,
    /// Southbound database from anywhere on this host (unix sockets).
    pub southbound: Option<String>,
    /// Northbound database from the nodes (tcp or ssl).
    pub northbound_remote: Option<String>,
    /// Southbound database from the nodes (tcp or ssl).
    pub southbound_remote: Option<String>,
    /// URL of the API server on the host's loopback.
    pub api: Option<String>,
    /// Kubeconfig for programs on the host.
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig for programs on the lab's machines.
    pub machine_kubeconfig: Option<PathBuf>,
    /// URL of Prometheus on the host's loopback.
    #[serde(default)]
    pub prometheus: Option<String>,
    /// URL of the keeper's `/livez`, `/readyz` and `/metrics`.
    pub telemetry: Option<String>,
}

/// Contents of `lab.json`: enough to use, inspect and remove the lab from another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Unique on this host.
    pub name: String,
    /// Written at each change; a lab that crashed keeps its last phase.
    pub phase: Phase,
    /// The process whose exit ends the lab.
    pub owner: ProcessId,
    /// As requested, with defaults filled in.
    pub spec: LabSpec,
    /// Root directory of the node image.
    pub image: PathBuf,
    /// Directory of the Kubernetes programs; only with Kubernetes.
    pub kubernetes: Option<PathBuf>,
    /// In the order of creation.
    pub machines: Vec<MachineRecord>,
    /// In the order of their (latest) start.
    pub components: Vec<ComponentRecord>,
    /// Cgroup directories, to be removed with the lab.
    pub cgroups: Vec<PathBuf>,
    /// Filled while the lab starts; complete in [`Phase::Ready`].
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

    /// Reads the record of a lab, running or crashed.
    pub fn load(directories: &Directories, name: &str) -> Result<Self> {
        let path = directories.lab(name).join("lab.json");
        if !path.exists() {
            return Err(Error::NotRunning { name: name.to_owned() });
        }
        serde_json::from_str(&read_file(&path)?).map_err(|error| {
            Error::Invalid(format!(
                "{} is damaged ({error}); `lab down --name {name}` removes the lab's directory",
                path.display()
            ))
        })
    }

    /// Looks a machine up; the error lists the existing ones.
    pub fn machine(&self, name: &str) -> Result<&MachineRecord> {
        self.machines.iter().find(|machine| machine.name == name).ok_or_else(|| Error::Unknown {
            kind: "machine",
            name: name.to_owned(),
            lab: self.name.clone(),
            known: self.machines.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Looks a component up; the error lists the existing ones.
    pub fn component(&self, name: &str) -> Result<&ComponentRecord> {
        self.components.iter().find(|component| component.name == name).ok_or_else(|| Error::Unknown {
            kind: "component",
            name: name.to_owned(),
            lab: self.name.clone(),
            known: self.components.iter().map(|component| component.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// All labs that have a directory, running or crashed.
pub(crate) fn lab_names(directories: &Directories) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directories.labs()) else {
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

/// The record as its owner writes it: every change is on disk before the next step.
#[derive(Debug)]
pub(crate) struct RecordFile {
    dir: PathBuf,
    record: Mutex<Record>,
    ownership: Ownership,
}

impl RecordFile {
    /// Starts a record; it holds the lock of the lab's name.
    pub(crate) fn create(directories: &Directories, record: Record, ownership: Ownership) -> Result<Self> {
        let dir = directories.lab(&record.name);
        create_dir(&dir)?;
        let record_file = Self { dir, record: Mutex::new(record), ownership };
        record_file.change(|_| ())?;
        Ok(record_file)
    }

    pub(crate) fn delete_lock_file(&self) {
        self.ownership.delete_lock_file();
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn read(&self) -> MutexGuard<'_, Record> {
        // A panic cannot leave the record half-changed: each change is one assignment or push.
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Changes the record and replaces the file atomically.
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
