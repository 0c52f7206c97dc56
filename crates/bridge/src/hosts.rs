//! From a file to checked hosts: an install-config with `networking.hostConfig`, or an NMState document.

use std::collections::HashMap;
use std::rc::Rc;

use netmodel::Prefix;

use crate::rules;
use crate::violation::{Code, Severity, Violation};
use crate::yaml::{Document, Node, Position, parse};
use crate::{EVERY_HOST, spelling};

/// Two are usual: one of each family.
const MOST_MACHINE_NETWORKS: usize = 100;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An install-config: hosts with names.
    InstallConfig,
    /// NMState of one host.
    NmState,
}

/// A host of an install-config.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name, as it is written.
    pub name: String,
    /// The first label of its name, in lower case: the name of its file.
    pub short: String,
    /// Its NMState document.
    pub config: Rc<Node>,
}

/// A file after all rules.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What it is; none if it cannot be read.
    pub form: Option<Form>,
    /// The hosts of an install-config that have a usable name and a configuration.
    pub hosts: Vec<Host>,
    /// In the order of hosts, then of lines.
    pub violations: Vec<Violation>,
}

impl Checked {
    /// Whether the configurations may be used: warnings do not refuse them.
    pub fn is_valid(&self) -> bool {
        self.violations.iter().all(|violation| violation.code.severity() != Severity::Error)
    }
}

/// Applies all rules to a file. `machine_networks` are those that node IPs are in; an install-config's own come first.
pub fn check(text: &str, machine_networks: &[Prefix]) -> Checked {
    let document = match parse(text) {
        Ok(document) => document,
        Err(error) => {
            let violation = Violation { code: Code::BR001, at: error.at, host: None, reason: error.message };
            return Checked { form: None, hosts: Vec::new(), violations: vec![violation] };
        }
    };
    let root = &document.root;
    let is_install_config =
        ["networking", "baseDomain", "controlPlane", "pullSecret"].iter().any(|key| root.get(key).is_some());
    if is_install_config { install_config(root, machine_networks) } else { nmstate(&document, machine_networks) }
}

fn nmstate(document: &Document, machine_networks: &[Prefix]) -> Checked {
    let mut violations = rules::check(&document.root, machine_networks);
    if let Some(at) = document.merge_key {
        let reason = "a merge key in a file for NMState".to_owned();
        violations.push(Violation { code: Code::BR008, at, host: None, reason });
    }
    violations.sort_by_key(|violation| (violation.at, violation.code));
    Checked { form: Some(Form::NmState), hosts: Vec::new(), violations }
}

fn install_config(root: &Rc<Node>, machine_networks: &[Prefix]) -> Checked {
    let mut checked = Checked { form: Some(Form::InstallConfig), hosts: Vec::new(), violations: Vec::new() };
    let report = |checked: &mut Checked, code, at, host: Option<&str>, reason: String| {
        checked.violations.push(Violation { code, at, host: host.map(str::to_owned), reason });
    };
    let networking = root.get("networking");
    let at = networking.map_or(root.at, |networking| networking.at);
    for (key, _) in networking.iter().flat_map(|networking| networking.entries()) {
        if let Some(meant) = spelling::meant(&key.text, &["hostConfig", "machineNetwork"]) {
            report(&mut checked, Code::BR006, key.at, None, format!("networking.{}: {meant} is meant", key.text));
        }
    }
    let entries = networking.and_then(|networking| networking.get("hostConfig"));
    let entries = match entries.map(|entries| (entries, entries.items())) {
        Some((_, Some(entries))) if !entries.is_empty() => entries,
        Some((entries, None)) => {
            report(&mut checked, Code::BR002, entries.at, None, "networking.hostConfig must be a list".to_owned());
            return checked;
        }
        _ => {
            report(&mut checked, Code::BR003, at, None, "there is no networking.hostConfig".to_owned());
            return checked;
        }
    };
    let mut networks = own_machine_networks(networking, &mut checked);
    networks.extend(machine_networks);
    let mut names: HashMap<String, Position> = HashMap::new();
    for entry in entries {
        for (key, _) in entry.entries() {
            if let Some(meant) = spelling::meant(&key.text, &["name", "networkConfig"]) {
                report(&mut checked, Code::BR006, key.at, None, format!("{}: {meant} is meant", key.text));
            }
        }
        let name = entry.get("name").and_then(|name| name.text());
        let short = name.and_then(short_name);
        let at = entry.get("name").map_or(entry.at, |name| name.at);
        match (name, &short) {
            (None, _) => report(&mut checked, Code::BR004, at, None, "a host without a name".to_owned()),
            (Some(name), None) => {
                let reason = format!("{name:?} cannot be the name of a host's file");
                report(&mut checked, Code::BR004, at, Some(name), reason);
            }
            (Some(name), Some(short)) => {
                if let Some(first) = names.get(short) {
                    let reason = format!("line {} has a host of the short name {short}, too", first.line);
                    report(&mut checked, Code::BR005, at, Some(name), reason);
                } else {
                    names.insert(short.clone(), at);
                }
            }
        }
        let config = match entry.get("networkConfig") {
            Some(config) if config.is_map() => config,
            found => {
                let at = found.map_or(entry.at, |config| config.at);
                report(&mut checked, Code::BR002, at, name, "networkConfig must be a map of NMState".to_owned());
                continue;
            }
        };
        let mut found = rules::check(config, &networks);
        found.sort_by_key(|violation| (violation.at, violation.code));
        let with_host = |violation| Violation { host: name.map(str::to_owned), ..violation };
        checked.violations.extend(found.into_iter().map(with_host));
        if let (Some(name), Some(short)) = (name, short) {
            checked.hosts.push(Host { name: name.to_owned(), short, config: Rc::clone(config) });
        }
    }
    checked
}

fn own_machine_networks(networking: Option<&Rc<Node>>, checked: &mut Checked) -> Vec<Prefix> {
    let list = networking.and_then(|networking| networking.get("machineNetwork"));
    let mut networks = Vec::new();
    if let Some(list) = list.filter(|list| list.size() > MOST_MACHINE_NETWORKS * 2 + 1) {
        let reason = format!("machineNetwork has more than {MOST_MACHINE_NETWORKS} networks");
        checked.violations.push(Violation { code: Code::BR002, at: list.at, host: None, reason });
        return networks;
    }
    for network in list.and_then(|list| list.items()).unwrap_or_default() {
        match network.get("cidr").and_then(|cidr| cidr.text()).and_then(|cidr| cidr.parse().ok()) {
            Some(network) => networks.push(network),
            None => checked.violations.push(Violation {
                code: Code::BR002,
                at: network.at,
                host: None,
                reason: "machineNetwork: an entry must be `cidr:` with a network such as 192.0.2.0/24".to_owned(),
            }),
        }
    }
    networks
}

/// The first label of a host's name, in lower case, if it can be the name of a file that only this host takes.
pub(crate) fn short_name(name: &str) -> Option<String> {
    let label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inner && !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-')
    };
    let name = name.to_ascii_lowercase();
    let short = name.split('.').next().unwrap_or_default();
    let valid = name.len() <= 253 && name.split('.').all(label) && ![EVERY_HOST, "localhost"].contains(&short);
    valid.then(|| short.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_has_its_short_name() {
        for (name, short) in [
            ("master-0", Some("master-0")),
            ("Master-0.Example.COM", Some("master-0")),
            ("0", Some("0")),
            ("", None),
            ("..", None),
            ("../etc/passwd", None),
            ("a/b", None),
            ("-a", None),
            ("a.", None),
            ("a b", None),
            ("cluster", None),
            ("localhost.localdomain", None),
            ("ä", None),
        ] {
            assert_eq!(short_name(name).as_deref(), short, "{name}");
        }
        assert_eq!(short_name(&"a".repeat(64)), None);
    }
}
