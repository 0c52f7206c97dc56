//! Types, spelling and doubles: what NMState would refuse, or not see.

use std::collections::HashMap;
use std::net::IpAddr;

use netmodel::Family;

use super::Found;
use crate::nmstate::{self, OVS_BRIDGE, items, ports_of};
use crate::spelling;
use crate::violation::Code;
use crate::yaml::Node;

const TOP: &[&str] =
    &["interfaces", "routes", "route-rules", "dns-resolver", "hostname", "ovs-db", "ovn", "description", "dispatch"];
const INTERFACE: &[&str] = &[
    "name",
    "profile-name",
    "description",
    "type",
    "state",
    "identifier",
    "mac-address",
    "permanent-mac-address",
    "pci-address",
    "driver",
    "mtu",
    "min-mtu",
    "max-mtu",
    "wait-ip",
    "ipv4",
    "ipv6",
    "mptcp",
    "controller",
    "accept-all-mac-addresses",
    "copy-mac-from",
    "ovs-db",
    "802.1x",
    "lldp",
    "ethtool",
    "dispatch",
    "alt-names",
    "ethernet",
    "bridge",
    "link-aggregation",
    "vlan",
    "vxlan",
    "vrf",
    "mac-vlan",
    "mac-vtap",
    "ipvlan",
    "infiniband",
    "loopback",
    "macsec",
    "hsr",
    "libreswan",
    "xfrm",
    "ip-tunnel",
    "geneve",
    "veth",
    "patch",
    "dpdk",
];
const IP: &[&str] = &[
    "enabled",
    "dhcp",
    "autoconf",
    "address",
    "auto-dns",
    "auto-gateway",
    "auto-routes",
    "auto-table-id",
    "auto-route-metric",
    "allow-extra-address",
    "addr-gen-mode",
    "dhcp-client-id",
    "dhcp-duid",
    "dhcp-custom-hostname",
    "dhcp-send-hostname",
    "forwarding",
    "token",
    "allow-extra-addresses",
    "dhcp-timeout",
];
const ADDRESS: &[&str] = &["ip", "prefix-length", "peer", "valid-life-time", "preferred-life-time", "mptcp-flags"];
const BRIDGE: &[&str] = &["port", "ports", "options", "allow-extra-patch-ports"];
const PORT: &[&str] = &["name", "vlan", "link-aggregation"];
const BOND: &[&str] =
    &["mode", "options", "port", "ports", "slaves", "ports-config", "bond-downdelay", "bond-updelay", "ovs-db"];
const VLAN: &[&str] = &[
    "base-iface",
    "id",
    "protocol",
    "registration-protocol",
    "reorder-headers",
    "loose-binding",
    "bridge-binding",
    "ingress-qos-map",
    "egress-qos-map",
];
const ROUTES: &[&str] = &["config", "running"];
const ROUTE: &[&str] = &[
    "state",
    "destination",
    "next-hop-interface",
    "next-hop-address",
    "metric",
    "table-id",
    "weight",
    "route-type",
    "cwnd",
    "source",
    "initcwnd",
    "initrwnd",
    "mtu",
    "quickack",
    "advmss",
    "vrf-name",
];
const DNS: &[&str] = &["config", "running"];
const DNS_CONFIG: &[&str] = &["server", "search", "options"];

pub(super) fn check(root: &Node, found: &mut Found) {
    spelling(root, TOP, "", found);
    match root.get("interfaces") {
        Some(list) if list.items().is_none() => found.report(Code::BR002, list.at, "interfaces must be a list"),
        _ => {}
    }
    for interface in items(root.get("interfaces")) {
        if interface.get("name").and_then(|name| name.text()).is_none_or(str::is_empty) {
            found.report(Code::BR002, interface.at, "an interface without a name");
            continue;
        }
        check_interface(interface, found);
    }
    doubles(root, found);
    for (key, known, inner) in [("routes", ROUTES, ROUTE), ("dns-resolver", DNS, DNS_CONFIG)] {
        let Some(section) = root.get(key) else { continue };
        if !section.is_map() {
            found.report(Code::BR002, section.at, format!("{key} must be a map"));
            continue;
        }
        spelling(section, known, key, found);
        let Some(config) = section.get("config") else { continue };
        match config.items() {
            Some(routes) if key == "routes" => routes.iter().for_each(|route| spelling(route, inner, "route", found)),
            None if key == "routes" => found.report(Code::BR002, config.at, "routes.config must be a list"),
            _ => spelling(config, inner, "dns-resolver.config", found),
        }
    }
}

fn check_interface(interface: &Node, found: &mut Found) {
    spelling(interface, INTERFACE, "interface", found);
    for key in ["type", "state", "copy-mac-from", "mac-address", "controller"] {
        if let Some(value) = interface.get(key).filter(|value| value.text().is_none()) {
            found.report(Code::BR002, value.at, format!("{key} must be a text"));
        }
    }
    if let Some(mtu) = interface.get("mtu").filter(|mtu| mtu.number().is_none()) {
        found.report(Code::BR002, mtu.at, "mtu must be a whole number");
    }
    for (key, family) in [("ipv4", Family::V4), ("ipv6", Family::V6)] {
        if let Some(ip) = map(interface, key, found) {
            spelling(ip, IP, key, found);
            check_ip(ip, family, found);
        }
    }
    // Of a linux-bridge other fields are allowed.
    let kind = interface.get("type").and_then(|kind| kind.text());
    if let Some(bridge) = map(interface, "bridge", found).filter(|_| kind == Some(OVS_BRIDGE)) {
        spelling(bridge, BRIDGE, "bridge", found);
        for list in bridge.get("port").into_iter().chain(bridge.get("ports")) {
            if list.items().is_none() {
                found.report(Code::BR002, list.at, "bridge.port must be a list");
            }
        }
        for port in ports_of(bridge) {
            spelling(port, PORT, "port", found);
            if port.get("name").and_then(|name| name.text()).is_none() {
                found.report(Code::BR002, port.at, "a port of a bridge must be `name:` with an interface");
            }
        }
    }
    for (key, known) in [("link-aggregation", BOND), ("vlan", VLAN)] {
        if let Some(section) = map(interface, key, found) {
            spelling(section, known, key, found);
        }
    }
}

fn check_ip(ip: &Node, family: Family, found: &mut Found) {
    for key in ["enabled", "dhcp", "autoconf", "auto-dns", "auto-gateway", "auto-routes"] {
        if let Some(value) = ip.get(key).filter(|value| value.boolean().is_none()) {
            found.report(Code::BR002, value.at, format!("{key} must be true or false"));
        }
    }
    match ip.get("address") {
        Some(list) if list.items().is_none() => found.report(Code::BR002, list.at, "address must be a list"),
        _ => {}
    }
    for address in items(ip.get("address")) {
        spelling(address, ADDRESS, "address", found);
        let parsed = address.get("ip").and_then(|ip| ip.text()).and_then(|ip| ip.parse::<IpAddr>().ok());
        let length = address.get("prefix-length").and_then(|length| length.number());
        let reason = match (parsed, length) {
            (None, _) => "an address needs `ip:` with an IP address".to_owned(),
            (Some(ip), _) if !family.matches(ip) => format!("{ip} is not {family}"),
            (Some(ip), _) if ip.is_unspecified() || ip.is_multicast() => format!("{ip} is not a host's address"),
            (Some(ip), Some(length)) if length == 0 || length > u64::from(family.bits()) => {
                format!("{ip} has prefix length {length}; it must be 1 to {}", family.bits())
            }
            (Some(ip), None) => format!("{ip} needs `prefix-length:` with a number"),
            _ => continue,
        };
        found.report(Code::BR023, address.at, reason);
    }
}

/// A section that must be a map.
fn map<'a>(node: &'a Node, key: &str, found: &mut Found) -> Option<&'a Node> {
    let section = node.get(key)?;
    if section.is_map() {
        return Some(section);
    }
    found.report(Code::BR002, section.at, format!("{key} must be a map"));
    None
}

fn spelling(node: &Node, known: &[&str], section: &str, found: &mut Found) {
    for (key, _) in node.entries() {
        if let Some(meant) = spelling::meant(&key.text, known) {
            let place = if section.is_empty() { String::new() } else { format!(" of {section}") };
            found.report(Code::BR006, key.at, format!("field {:?}{place}: {meant} is meant", key.text));
        }
    }
}

/// Interfaces of the kernel share one space of names; OVS bridges have their own.
fn doubles(root: &Node, found: &mut Found) {
    let mut seen = HashMap::new();
    for interface in nmstate::interfaces(root) {
        if let Some(line) = seen.insert((interface.name, interface.kind == OVS_BRIDGE), interface.at().line) {
            let reason = format!("interface {:?} is described in line {line}, too", interface.name);
            found.report(Code::BR007, interface.at(), reason);
        }
    }
}
