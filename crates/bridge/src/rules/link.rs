//! MAC and MTU.

use netmodel::{Family, Mac};

use super::{Document, Found};
use crate::BRIDGE;
use crate::nmstate::Interface;
use crate::violation::Code;

/// What an interface has without a setting.
const USUAL_MTU: u64 = 1500;

pub(super) fn check(document: &Document<'_>, found: &mut Found) {
    check_mac(document, found);
    check_mtu(document, found);
}

fn check_mac(document: &Document<'_>, found: &mut Found) {
    let ends: Vec<&Interface<'_>> = document.internal.iter().chain(&document.bridge).collect();
    let (Some(first), Some(_)) = (ends.first(), &document.internal) else { return };
    let copies: Vec<_> = ends.iter().filter_map(|end| end.text("copy-mac-from")).collect();
    let explicit: Vec<_> = ends.iter().filter_map(|end| end.text("mac-address")).collect();
    match (copies.first(), explicit.first()) {
        (None, None) => {
            found.report(Code::BR030, first.at(), format!("{BRIDGE} has neither copy-mac-from nor mac-address"));
        }
        (Some(_), Some((_, at))) => {
            found.report(Code::BR032, *at, format!("{BRIDGE} has copy-mac-from and mac-address"));
        }
        _ => {}
    }
    if let Some(uplink) = document.uplink() {
        for (source, at) in copies.iter().filter(|(source, _)| *source != uplink.name) {
            found.report(Code::BR031, *at, format!("copy-mac-from is {source}, the uplink is {}", uplink.name));
        }
    }
    for (mac, at) in &explicit {
        if !mac.parse::<Mac>().is_ok_and(Mac::is_usable) {
            found.report(Code::BR032, *at, format!("{mac:?} is not the MAC of an interface"));
        }
    }
    let differ = explicit.windows(2).any(|pair| !pair[0].0.eq_ignore_ascii_case(pair[1].0));
    if let Some((_, at)) = explicit.last().filter(|_| differ) {
        found.report(Code::BR032, *at, "the bridge and its internal interface have different MACs");
    }
    let on_bridge = document.bridge.and_then(|bridge| bridge.text("copy-mac-from"));
    let on_internal = document.internal.is_some_and(|internal| internal.text("copy-mac-from").is_some());
    if let Some((source, at)) = on_bridge.filter(|_| !on_internal) {
        found.report(Code::BR033, at, format!("copy-mac-from: {source} is on the ovs-bridge only"));
    }
}

fn check_mtu(document: &Document<'_>, found: &mut Found) {
    let Some(uplink) = document.uplink().and_then(|port| document.kernel(port.name).copied()) else {
        return check_without_uplink(document, found);
    };
    possible(&uplink, Family::V4, found);
    for end in document.internal.iter().chain(&document.bridge) {
        fits(end, &uplink, found);
    }
    if let Some(internal) = &document.internal {
        possible(internal, lowest_family(internal), found);
    }
    let (internal, bridge) = (document.internal.and_then(|it| it.mtu()), document.bridge.and_then(|it| it.mtu()));
    if let (Some((internal, _)), Some((bridge, at))) = (internal, bridge)
        && internal != bridge
    {
        let reason = format!("the bridge has MTU {bridge}, its internal interface {internal}");
        found.report(Code::BR034, at, reason);
    }
    // What the uplink consists of.
    let base = if uplink.kind == "vlan" { uplink.vlan().0 } else { None };
    for name in uplink.bonded().into_iter().chain(base) {
        if let Some(below) = document.kernel(name) {
            fits(&uplink, below, found);
        }
    }
}

/// The uplink exists already, and so does its MTU: only a usual one is known to fit.
fn check_without_uplink(document: &Document<'_>, found: &mut Found) {
    let Some(internal) = &document.internal else { return };
    possible(internal, lowest_family(internal), found);
    if let (Some((mtu, at)), Some(uplink)) = (internal.mtu(), document.uplink())
        && mtu > USUAL_MTU
    {
        let reason = format!("{BRIDGE} has MTU {mtu}, uplink {} is not described", uplink.name);
        found.report(Code::BR034, at, reason);
    }
}

/// Packets of `upper` must fit through `lower`.
fn fits(upper: &Interface<'_>, lower: &Interface<'_>, found: &mut Found) {
    let Some((mtu, at)) = upper.mtu() else { return };
    let (below, shown) = match lower.mtu() {
        Some((below, _)) => (below, below.to_string()),
        None => (USUAL_MTU, "none, so 1500".to_owned()),
    };
    if mtu > below {
        let (upper, name) = (upper.name, lower.name);
        found.report(Code::BR034, at, format!("{upper} has MTU {mtu}, {name} below it has {shown}"));
    }
}

fn lowest_family(interface: &Interface<'_>) -> Family {
    if interface.ip(Family::V6).enabled { Family::V6 } else { Family::V4 }
}

fn possible(interface: &Interface<'_>, family: Family, found: &mut Found) {
    let least = if family.is_ipv6() { 1280 } else { 576 };
    if let Some((mtu, at)) = interface.mtu().filter(|(mtu, _)| !(least..=65535).contains(mtu)) {
        found.report(Code::BR035, at, format!("{} has MTU {mtu}; {family} needs {least} to 65535", interface.name));
    }
}
