//! The bridge, its internal interface and its uplink.

use super::{Document, Found};
use crate::BRIDGE;
use crate::nmstate::{Interface, PHYSICAL};
use crate::violation::Code;

pub(super) fn check(document: &Document<'_>, found: &mut Found) {
    let at = document.root.get("interfaces").map_or(document.root.at, |list| list.at);
    if document.internal.is_none() {
        found.report(Code::BR011, at, format!("no interface {BRIDGE} of type ovs-interface"));
    }
    let Some(bridge) = document.bridge else {
        found.report(Code::BR010, at, format!("no interface {BRIDGE} of type ovs-bridge"));
        return;
    };
    let ports = bridge.bridge_ports();
    if !ports.iter().any(|port| port.name == BRIDGE && port.bonded.is_none()) {
        found.report(Code::BR012, bridge.at(), format!("bridge.port lacks {BRIDGE}"));
    }
    match document.outside.as_slice() {
        [] => found.report(Code::BR013, bridge.at(), format!("bridge {BRIDGE} has no uplink")),
        [uplink] => check_uplink(document, uplink, found),
        [_, more @ ..] => {
            let names: Vec<&str> = document.outside.iter().map(|port| port.name).collect();
            let at = more.first().map_or(bridge.at(), |port| port.at);
            found.report(Code::BR014, at, format!("bridge {BRIDGE} has {}: {}", names.len(), names.join(", ")));
        }
    }
    for interface in document.bridge.iter().chain(&document.internal) {
        check_state(interface, found);
    }
    check_owners(document, found);
}

fn check_uplink(document: &Document<'_>, uplink: &crate::nmstate::Port<'_>, found: &mut Found) {
    if uplink.bonded.is_some() {
        found.report(Code::BR016, uplink.at, format!("port {} is a bond of Open vSwitch", uplink.name));
        return;
    }
    // One that is not described exists already.
    let Some(interface) = document.kernel(uplink.name) else { return };
    if !PHYSICAL.contains(&interface.kind) {
        found.report(Code::BR015, uplink.at, format!("{} is of type {}", uplink.name, interface.kind));
    }
    check_state(interface, found);
    match interface.kind {
        "bond" if interface.bonded().is_empty() => {
            found.report(Code::BR019, interface.at(), format!("bond {} has no link-aggregation.port", interface.name));
        }
        "vlan" => match interface.vlan() {
            (Some(_), Some(1..=4094)) => {}
            (None, _) => {
                found.report(Code::BR019, interface.at(), format!("VLAN {} has no vlan.base-iface", interface.name));
            }
            (_, id) => {
                let id = id.map_or_else(|| "no vlan.id".to_owned(), |id| format!("vlan.id {id}"));
                found.report(Code::BR019, interface.at(), format!("VLAN {} has {id}; 1 to 4094", interface.name));
            }
        },
        _ => {}
    }
}

fn check_state(interface: &Interface<'_>, found: &mut Found) {
    if let Some((state, at)) = interface.text("state").filter(|(state, _)| *state != "up") {
        found.report(Code::BR017, at, format!("{} {} is {state}", interface.kind, interface.name));
    }
}

fn check_owners(document: &Document<'_>, found: &mut Found) {
    // What the bridge owns, and what its uplink consists of.
    let mut owned: Vec<(&str, &str)> =
        document.outside.iter().map(|port| (port.name, BRIDGE)).chain([(BRIDGE, BRIDGE)]).collect();
    for port in &document.outside {
        owned.extend(port.bonded.iter().flatten().map(|name| (*name, BRIDGE)));
        let bonded = document.kernel(port.name).map(Interface::bonded).unwrap_or_default();
        owned.extend(bonded.into_iter().map(|name| (name, port.name)));
    }
    for (index, (name, owner)) in owned.iter().enumerate() {
        if let Some((_, first)) = owned[..index].iter().find(|(earlier, _)| earlier == name) {
            let at = document.bridge.map_or(document.root.at, |bridge| bridge.at());
            found.report(Code::BR018, at, format!("{name} is a port of {first} and of {owner}"));
        }
    }
    for (name, owner) in owned {
        for interface in &document.interfaces {
            let is_owner = interface.name == owner
                && (owner != BRIDGE || Some(interface.at()) == document.bridge.map(|it| it.at()));
            if !is_owner && interface.controlled().contains(&name) {
                let reason = format!("{name} is a port of {owner} and of {} {}", interface.kind, interface.name);
                found.report(Code::BR018, interface.at(), reason);
            }
        }
        let interface = document.kernel(name);
        let controller = interface.and_then(|interface| interface.text("controller"));
        if let Some((controller, at)) = controller.filter(|(controller, _)| *controller != owner) {
            let controller = if controller.is_empty() { "none" } else { controller };
            found.report(Code::BR018, at, format!("{name} is a port of {owner}, and its controller is {controller}"));
        }
    }
}
