//! Which interfaces have addresses.

use netmodel::Family;

use super::{Document, Found};
use crate::nmstate::Interface;
use crate::violation::Code;

pub(super) fn check(document: &Document<'_>, found: &mut Found) {
    for port in &document.outside {
        let names = port.bonded.clone().unwrap_or_else(|| vec![port.name]);
        for interface in names.into_iter().filter_map(|name| document.kernel(name)) {
            none_on(interface, Code::BR020, "the uplink", found);
            for bonded in interface.bonded().into_iter().filter_map(|name| document.kernel(name)) {
                none_on(bonded, Code::BR020, "a port of the uplink's bond", found);
            }
        }
    }
    if let Some(bridge) = &document.bridge {
        none_on(bridge, Code::BR021, "the bridge", found);
    }
    if let Some(internal) = &document.internal
        && ![Family::V4, Family::V6].into_iter().any(|family| internal.ip(family).gives_an_address())
    {
        let reason = format!("{} has neither an IPv4 nor an IPv6 address", internal.name);
        found.report(Code::BR022, internal.at(), reason);
    }
}

fn none_on(interface: &Interface<'_>, code: Code, role: &str, found: &mut Found) {
    for family in [Family::V4, Family::V6] {
        let ip = interface.ip(family);
        if ip.enabled {
            found.report(code, ip.at, format!("{family} is enabled on {}, {role}", interface.name));
        }
    }
}
