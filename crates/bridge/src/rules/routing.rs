//! Default route and DNS, where the node IP is on br-ex.
//!
//! The node IP is on br-ex if br-ex has a static address in a machine network, or is the only interface with addresses of
//! the family. It is elsewhere if another interface has a static address in a machine network. In between, it is where
//! the default route is, and there is nothing to demand.

use std::net::IpAddr;

use netmodel::{Family, Prefix};

use super::{Document, Found};
use crate::BRIDGE;
use crate::nmstate::{self, Interface};
use crate::violation::Code;

pub(super) fn check(document: &Document<'_>, found: &mut Found) {
    let Some(internal) = &document.internal else { return };
    let others: Vec<&Interface<'_>> = document.interfaces.iter().filter(|other| is_other(document, other)).collect();
    let here: Vec<Family> = [Family::V4, Family::V6]
        .into_iter()
        .filter(|family| node_ip_is_here(*family, internal, &others, document.machine_networks))
        .collect();
    let routes = nmstate::default_routes(document.root);
    let networks: Vec<Prefix> = internal.addresses().into_iter().map(netmodel::InterfaceAddress::network).collect();
    for route in &routes {
        let (family, here) = (route.family, here.contains(&route.family));
        match route.interface {
            Some(BRIDGE) => {
                let dynamic = internal.ip(family).dynamic;
                let reached = |gateway: IpAddr| {
                    is_link_local(gateway) || networks.iter().any(|network| network.contains(gateway))
                };
                match route.gateway {
                    Some(gateway) if !family.matches(gateway) => {
                        found.report(Code::BR042, route.at, format!("gateway {gateway} is not {family}"));
                    }
                    Some(gateway) if !dynamic && !reached(gateway) => {
                        let reason = format!("gateway {gateway} is in no network of {BRIDGE}");
                        found.report(Code::BR042, route.at, reason);
                    }
                    Some(_) => {}
                    None => found.report(Code::BR042, route.at, "the default route has no valid next-hop-address"),
                }
            }
            other if here => {
                let other = other.unwrap_or("no interface");
                let reason = format!("the {family} default route leads through {other}, the node IP is on {BRIDGE}");
                found.report(Code::BR040, route.at, reason);
            }
            _ => {}
        }
    }
    for family in &here {
        let ip = internal.ip(*family);
        let by_itself = ip.dynamic && ip.auto_route;
        if !by_itself && !routes.iter().any(|route| route.family == *family) {
            found.report(
                Code::BR041,
                ip.at,
                format!("{BRIDGE} has the node IP, and there is no {family} default route"),
            );
        }
    }
    if !here.is_empty() {
        check_dns(document, internal, &others, &here, found);
    }
}

fn check_dns(
    document: &Document<'_>,
    internal: &Interface<'_>,
    others: &[&Interface<'_>],
    here: &[Family],
    found: &mut Found,
) {
    let servers = nmstate::dns_servers(document.root);
    let by_itself = here.iter().map(|family| internal.ip(*family)).any(|ip| ip.dynamic && ip.auto_dns);
    if servers.is_empty() && !by_itself {
        let at = document.root.get("dns-resolver").map_or(internal.at(), |dns| dns.at);
        found.report(Code::BR043, at, format!("{BRIDGE} has the node IP, and there is no DNS server"));
    }
    for (server, at) in servers {
        let (address, zone) = server.split_once('%').map_or((server, None), |(address, zone)| (address, Some(zone)));
        let Ok(address) = address.parse::<IpAddr>() else {
            found.report(Code::BR023, at, format!("DNS server {server:?} is not an IP address"));
            continue;
        };
        let owns = |other: &&&Interface<'_>| {
            other.addresses().iter().any(|own| !is_link_local(own.address()) && own.network().contains(address))
        };
        let through = match zone {
            Some(zone) => Some(zone).filter(|zone| *zone != BRIDGE),
            // Every network of br-ex itself is fine.
            None if internal.addresses().iter().any(|own| own.network().contains(address)) => None,
            None => others.iter().find(owns).map(|other| other.name),
        };
        if let Some(through) = through {
            found.report(Code::BR044, at, format!("DNS server {server} is reached through {through}"));
        }
    }
}

/// Whether an interface can have the node IP although it is not br-ex.
fn is_other(document: &Document<'_>, interface: &Interface<'_>) -> bool {
    let is_up = interface.text("state").is_none_or(|(state, _)| state == "up");
    let is_port = document.outside.iter().any(|port| {
        port.name == interface.name
            || port.bonded.iter().flatten().any(|bonded| *bonded == interface.name)
            || document.kernel(port.name).is_some_and(|uplink| uplink.bonded().contains(&interface.name))
    });
    interface.name != BRIDGE && interface.kind != "loopback" && is_up && !is_port
}

fn node_ip_is_here(family: Family, internal: &Interface<'_>, others: &[&Interface<'_>], machine: &[Prefix]) -> bool {
    let own = internal.ip(family);
    if !own.gives_an_address() {
        return false;
    }
    let machine: Vec<&Prefix> = machine.iter().filter(|network| network.family() == family).collect();
    let in_machine_network = |interface: &Interface<'_>| {
        interface.addresses().iter().any(|own| machine.iter().any(|network| network.contains(own.address())))
    };
    if in_machine_network(internal) {
        return true;
    }
    if others.iter().any(|other| in_machine_network(other)) {
        return false;
    }
    !others.iter().any(|other| other.ip(family).gives_an_address())
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
