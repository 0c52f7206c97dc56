//! The files that bring host configurations to nodes. The same hosts always give the same bytes.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::yaml::{Node, emit};
use crate::{DIRECTORY, Host};

/// The version of Ignition's configuration: the oldest of OpenShift releases in support; later Ignition reads it, too.
const IGNITION: &str = "3.2.0";
/// NMState can contain passwords (802.1X).
const MODE: u32 = 0o600;

/// A host's NMState file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFile {
    /// The host's short name.
    pub host: String,
    /// Its content: the host's configuration without anchors, aliases and merge keys, otherwise as it was written.
    pub content: String,
}

impl HostFile {
    /// Its name: `<short host name>.yml`.
    pub fn name(&self) -> String {
        format!("{}.yml", self.host)
    }

    fn path(&self) -> String {
        format!("{DIRECTORY}/{}", self.name())
    }

    fn source(&self) -> String {
        format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(&self.content))
    }
}

/// One NMState file per host.
pub fn nmstate_files(hosts: &[Host]) -> Vec<HostFile> {
    hosts.iter().map(|host| HostFile { host: host.short.clone(), content: emit(&host.config) }).collect()
}

#[derive(Serialize)]
struct Ignition {
    ignition: Version,
    storage: Storage,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
}

#[derive(Serialize)]
struct Storage {
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    path: String,
    overwrite: bool,
    mode: u32,
    contents: Contents,
}

#[derive(Serialize)]
struct Contents {
    source: String,
}

/// An Ignition configuration with these files, as JSON.
pub fn ignition(files: &[HostFile]) -> Result<String, serde_json::Error> {
    let file = |file: &HostFile| File {
        path: file.path(),
        overwrite: true,
        mode: MODE,
        contents: Contents { source: file.source() },
    };
    let storage = Storage { files: files.iter().map(file).collect() };
    let mut json = serde_json::to_string_pretty(&Ignition { ignition: Version { version: IGNITION }, storage })?;
    json.push('\n');
    Ok(json)
}

/// A MachineConfig for a pool of nodes (its role) with all files: each node takes its own ([`crate::select()`]).
pub fn machine_config(files: &[HostFile], role: &str) -> String {
    let file = |file: &HostFile| {
        Node::map(vec![
            ("path", Node::plain(file.path())),
            ("overwrite", Node::plain(true)),
            ("mode", Node::plain(MODE)),
            ("contents", Node::map(vec![("source", Node::plain(file.source()))])),
        ])
    };
    let files: Vec<Rc<Node>> = files.iter().map(file).collect();
    emit(&Node::map(vec![
        ("apiVersion", Node::plain("machineconfiguration.openshift.io/v1")),
        ("kind", Node::plain("MachineConfig")),
        (
            "metadata",
            Node::map(vec![
                ("name", Node::text_of(&format!("10-br-ex-{role}"))),
                ("labels", Node::map(vec![("machineconfiguration.openshift.io/role", Node::text_of(role))])),
            ]),
        ),
        (
            "spec",
            Node::map(vec![(
                "config",
                Node::map(vec![
                    ("ignition", Node::map(vec![("version", Node::plain(IGNITION))])),
                    ("storage", Node::map(vec![("files", Node::list(files))])),
                ]),
            )]),
        ),
    ]))
}
