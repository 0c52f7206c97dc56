//! The rules for br-ex ([`crate::Code`]), each a function of the document.

mod addresses;
mod bridge;
mod link;
mod routing;
mod shape;

use netmodel::Prefix;

use crate::BRIDGE;
use crate::nmstate::{self, Interface, OVS_BRIDGE, OVS_INTERFACE, Port};
use crate::violation::{Code, Violation};
use crate::yaml::{Node, Position};

/// What several rules look at.
struct Document<'a> {
    root: &'a Node,
    interfaces: Vec<Interface<'a>>,
    bridge: Option<Interface<'a>>,
    internal: Option<Interface<'a>>,
    /// Ports of the bridge other than its internal interface.
    outside: Vec<Port<'a>>,
    /// Networks of the node IPs, if they are known.
    machine_networks: &'a [Prefix],
}

impl<'a> Document<'a> {
    fn new(root: &'a Node, machine_networks: &'a [Prefix]) -> Self {
        let interfaces = nmstate::interfaces(root);
        let find = |kind: &str| {
            interfaces.iter().copied().find(|interface| interface.name == BRIDGE && interface.kind == kind)
        };
        let (bridge, internal) = (find(OVS_BRIDGE), find(OVS_INTERFACE));
        // Other internal interfaces and patch ports lead to no network of their own.
        let is_virtual =
            |name: &str| interfaces.iter().any(|interface| interface.name == name && interface.kind == OVS_INTERFACE);
        let ports = bridge.map(|bridge| bridge.bridge_ports()).unwrap_or_default();
        let outside = ports.into_iter().filter(|port| port.name != BRIDGE && !is_virtual(port.name)).collect();
        Self { root, interfaces, bridge, internal, outside, machine_networks }
    }

    /// The one uplink.
    fn uplink(&self) -> Option<&Port<'a>> {
        match self.outside.as_slice() {
            [port] => Some(port),
            _ => None,
        }
    }

    /// A kernel's interface of this name, if the document describes it.
    fn kernel(&self, name: &str) -> Option<&Interface<'a>> {
        self.interfaces.iter().find(|interface| interface.name == name && interface.kind != OVS_BRIDGE)
    }
}

/// Values of a host's document. Some rules compare all interfaces with all ports.
const MOST_VALUES: usize = 5000;

#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn report(&mut self, code: Code, at: Position, reason: impl Into<String>) {
        self.0.push(Violation { code, at, host: None, reason: reason.into() });
    }
}

/// Applies the rules to the NMState document of one host.
pub(crate) fn check(root: &Node, machine_networks: &[Prefix]) -> Vec<Violation> {
    let mut found = Found::default();
    if !root.is_map() {
        found.report(Code::BR002, root.at, "the document must be a map with `interfaces`");
        return found.0;
    }
    if root.size() > MOST_VALUES {
        let reason = format!("the document of a host has {} values; {MOST_VALUES} at most", root.size());
        found.report(Code::BR002, root.at, reason);
        return found.0;
    }
    shape::check(root, &mut found);
    let document = Document::new(root, machine_networks);
    bridge::check(&document, &mut found);
    addresses::check(&document, &mut found);
    link::check(&document, &mut found);
    routing::check(&document, &mut found);
    found.0
}
