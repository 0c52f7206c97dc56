//! The parts of an NMState document that the rules look at. Everything else is passed through.

use std::net::IpAddr;
use std::rc::Rc;

use netmodel::{Family, InterfaceAddress};

use crate::yaml::{Node, Position};

pub(crate) const OVS_BRIDGE: &str = "ovs-bridge";
pub(crate) const OVS_INTERFACE: &str = "ovs-interface";
/// The types of an uplink. An interface without a type is one that exists.
pub(crate) const PHYSICAL: [&str; 4] = ["ethernet", "bond", "vlan", UNKNOWN];
const UNKNOWN: &str = "unknown";

/// An interface of the document.
#[derive(Clone, Copy)]
pub(crate) struct Interface<'a> {
    pub(crate) node: &'a Node,
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
}

/// A port of an OVS bridge.
pub(crate) struct Port<'a> {
    pub(crate) name: &'a str,
    pub(crate) at: Position,
    /// Interfaces of a bond of Open vSwitch.
    pub(crate) bonded: Option<Vec<&'a str>>,
}

/// An interface's configuration of one family.
#[derive(Default)]
pub(crate) struct Ip<'a> {
    pub(crate) at: Position,
    pub(crate) enabled: bool,
    /// By DHCP or router advertisements.
    pub(crate) dynamic: bool,
    /// What a dynamic configuration brings along.
    pub(crate) auto_route: bool,
    pub(crate) auto_dns: bool,
    pub(crate) addresses: Vec<(InterfaceAddress, Position)>,
    /// Nodes of addresses that are none.
    pub(crate) invalid: Vec<&'a Node>,
}

/// A route without conditions to everything.
pub(crate) struct DefaultRoute<'a> {
    pub(crate) family: Family,
    pub(crate) at: Position,
    pub(crate) interface: Option<&'a str>,
    pub(crate) gateway: Option<IpAddr>,
}

/// The interfaces that have a name; others are reported by the rules on shapes.
pub(crate) fn interfaces(root: &Node) -> Vec<Interface<'_>> {
    items(root.get("interfaces"))
        .filter_map(|node| {
            let kind = node.get("type").and_then(|kind| kind.text()).unwrap_or(UNKNOWN);
            Some(Interface { node, name: node.get("name")?.text()?, kind })
        })
        .collect()
}

pub(crate) fn items(list: Option<&Rc<Node>>) -> impl Iterator<Item = &Node> {
    list.and_then(|list| list.items()).unwrap_or_default().iter().map(|item| &**item)
}

/// `port`, which later versions also call `ports`.
pub(crate) fn ports_of(node: &Node) -> impl Iterator<Item = &Node> {
    items(node.get("port").or_else(|| node.get("ports")))
}

fn named(node: &Node) -> Option<&str> {
    node.get("name")?.text()
}

impl<'a> Interface<'a> {
    pub(crate) fn at(&self) -> Position {
        self.node.at
    }

    pub(crate) fn text(&self, key: &str) -> Option<(&'a str, Position)> {
        let node = self.node.get(key)?;
        Some((node.text()?, node.at))
    }

    pub(crate) fn mtu(&self) -> Option<(u64, Position)> {
        let node = self.node.get("mtu")?;
        Some((node.number()?, node.at))
    }

    /// The ports of an OVS bridge.
    pub(crate) fn bridge_ports(&self) -> Vec<Port<'a>> {
        let Some(bridge) = self.node.get("bridge") else { return Vec::new() };
        ports_of(bridge)
            .filter_map(|port| {
                let bond = port.get("link-aggregation");
                let bonded = bond.map(|bond| ports_of(bond).filter_map(named).collect());
                Some(Port { name: named(port)?, at: port.at, bonded })
            })
            .collect()
    }

    /// Everything that the interface is the controller of.
    pub(crate) fn controlled(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for port in self.bridge_ports() {
            match port.bonded {
                Some(bonded) => names.extend(bonded),
                None => names.push(port.name),
            }
        }
        names.extend(self.bonded());
        names.extend(self.node.get("vrf").into_iter().flat_map(|vrf| ports_of(vrf)).filter_map(Node::text));
        names
    }

    /// The ports of a bond.
    pub(crate) fn bonded(&self) -> Vec<&'a str> {
        let bond = self.node.get("link-aggregation");
        let list = bond.and_then(|bond| bond.get("port").or_else(|| bond.get("ports")).or_else(|| bond.get("slaves")));
        items(list).filter_map(Node::text).collect()
    }

    /// A VLAN's base interface and ID.
    pub(crate) fn vlan(&self) -> (Option<&'a str>, Option<u64>) {
        let vlan = self.node.get("vlan");
        let base = vlan.and_then(|vlan| vlan.get("base-iface")?.text());
        (base, vlan.and_then(|vlan| vlan.get("id")?.number()))
    }

    pub(crate) fn ip(&self, family: Family) -> Ip<'a> {
        let Some(node) = self.node.get(if family.is_ipv6() { "ipv6" } else { "ipv4" }) else {
            return Ip::default();
        };
        let is = |key: &str, usual: bool| node.get(key).and_then(|value| value.boolean()).unwrap_or(usual);
        let mut ip = Ip {
            at: node.at,
            enabled: is("enabled", false),
            dynamic: is("dhcp", false) || (family.is_ipv6() && is("autoconf", false)),
            auto_route: is("auto-routes", true) && is("auto-gateway", true),
            auto_dns: is("auto-dns", true),
            ..Ip::default()
        };
        for entry in items(node.get("address")) {
            match address(entry, family) {
                Some(address) => ip.addresses.push((address, entry.at)),
                None => ip.invalid.push(entry),
            }
        }
        ip
    }

    /// Addresses of both families that take effect.
    pub(crate) fn addresses(&self) -> Vec<InterfaceAddress> {
        let enabled = [Family::V4, Family::V6].map(|family| self.ip(family)).into_iter().filter(|ip| ip.enabled);
        enabled.flat_map(|ip| ip.addresses).map(|(address, _)| address).collect()
    }
}

impl Ip<'_> {
    /// Whether it gives the interface an address.
    pub(crate) fn gives_an_address(&self) -> bool {
        self.enabled && (self.dynamic || !self.addresses.is_empty())
    }
}

fn address(entry: &Node, family: Family) -> Option<InterfaceAddress> {
    let ip: IpAddr = entry.get("ip")?.text()?.parse().ok()?;
    let length = u8::try_from(entry.get("prefix-length")?.number()?).ok()?;
    let usable = !ip.is_unspecified() && !ip.is_multicast() && family.matches(ip) && length > 0;
    usable.then(|| InterfaceAddress::new(ip, length).ok()).flatten()
}

/// The default routes of the main table that are not to be removed.
pub(crate) fn default_routes(root: &Node) -> Vec<DefaultRoute<'_>> {
    let routes = items(root.get("routes").and_then(|routes| routes.get("config")));
    routes
        .filter_map(|route| {
            let text = |key: &str| route.get(key).and_then(|value| value.text());
            let family = match text("destination")? {
                "0.0.0.0/0" => Family::V4,
                "::/0" => Family::V6,
                _ => return None,
            };
            let table = route.get("table-id").and_then(|table| table.number()).unwrap_or(254);
            if text("state") == Some("absent") || ![0, 254].contains(&table) {
                return None;
            }
            let gateway = text("next-hop-address").and_then(|gateway| gateway.parse().ok());
            Some(DefaultRoute { family, at: route.at, interface: text("next-hop-interface"), gateway })
        })
        .collect()
}

/// The DNS servers, as they are written.
pub(crate) fn dns_servers(root: &Node) -> Vec<(&str, Position)> {
    let config = root.get("dns-resolver").and_then(|dns| dns.get("config"));
    items(config.and_then(|config| config.get("server")))
        .filter_map(|server| Some((server.text()?, server.at)))
        .collect()
}
