//! The bridge of a simple host: one NIC, and the addresses that it has now.

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use netmodel::{Family, InterfaceAddress, Mac};

use crate::BRIDGE;
use crate::nmstate::{OVS_BRIDGE, OVS_INTERFACE};
use crate::yaml::{Node, emit};

/// Families whose addresses come from the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dhcp {
    /// DHCP.
    pub v4: bool,
    /// Router advertisements and DHCPv6.
    pub v6: bool,
}

/// What the NMState is made from.
#[derive(Debug, Clone, Default)]
pub struct DefaultBridge {
    /// The NIC.
    pub uplink: String,
    /// Dynamic addresses.
    pub dhcp: Dhcp,
    /// Static addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hops of the default routes, one per family.
    pub gateways: Vec<IpAddr>,
    /// DNS servers.
    pub dns: Vec<IpAddr>,
    /// MTU of NIC and bridge; as it is, if none.
    pub mtu: Option<u32>,
    /// MAC of the bridge; the NIC's, if none.
    pub mac: Option<Mac>,
}

impl fmt::Display for DefaultBridge {
    /// The NMState document. It follows the rules if the values fit together; [`crate::check`] tells.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut top = vec![("interfaces", Node::list(vec![self.nic(), self.bridge(), self.internal()]))];
        if !self.gateways.is_empty() {
            let routes = self.gateways.iter().map(|gateway| {
                Node::map(vec![
                    ("destination", Node::plain(Family::of(*gateway).everything())),
                    ("next-hop-interface", Node::text_of(BRIDGE)),
                    ("next-hop-address", Node::plain(gateway)),
                ])
            });
            top.push(("routes", Node::map(vec![("config", Node::list(routes.collect()))])));
        }
        if !self.dns.is_empty() {
            let servers = Node::list(self.dns.iter().map(Node::plain).collect());
            top.push(("dns-resolver", Node::map(vec![("config", Node::map(vec![("server", servers)]))])));
        }
        f.write_str(&emit(&Node::map(top)))
    }
}

impl DefaultBridge {
    fn nic(&self) -> Rc<Node> {
        let mut nic = interface(&self.uplink, "ethernet");
        self.push_mtu(&mut nic);
        nic.extend([("ipv4", disabled()), ("ipv6", disabled())]);
        Node::map(nic)
    }

    fn bridge(&self) -> Rc<Node> {
        let port = |name: &str| Node::map(vec![("name", Node::text_of(name))]);
        let mut bridge = interface(BRIDGE, OVS_BRIDGE);
        let ports = Node::list(vec![port(&self.uplink), port(BRIDGE)]);
        bridge.push(("bridge", Node::map(vec![("port", ports)])));
        Node::map(bridge)
    }

    fn internal(&self) -> Rc<Node> {
        let mut internal = interface(BRIDGE, OVS_INTERFACE);
        match self.mac {
            Some(mac) => internal.push(("mac-address", Node::text_of(&mac.to_string()))),
            None => internal.push(("copy-mac-from", Node::text_of(&self.uplink))),
        }
        self.push_mtu(&mut internal);
        internal.extend([("ipv4", self.ip(Family::V4)), ("ipv6", self.ip(Family::V6))]);
        Node::map(internal)
    }

    fn push_mtu(&self, interface: &mut Vec<(&str, Rc<Node>)>) {
        if let Some(mtu) = self.mtu {
            interface.push(("mtu", Node::plain(mtu)));
        }
    }

    fn ip(&self, family: Family) -> Rc<Node> {
        let dynamic = if family.is_ipv6() { self.dhcp.v6 } else { self.dhcp.v4 };
        let of_family = self.addresses.iter().filter(|address| family.matches(address.address()));
        let addresses: Vec<_> = of_family
            .map(|address| {
                let length = Node::plain(address.length());
                Node::map(vec![("ip", Node::plain(address.address())), ("prefix-length", length)])
            })
            .collect();
        if !dynamic && addresses.is_empty() {
            return disabled();
        }
        let mut ip = vec![("enabled", Node::plain(true)), ("dhcp", Node::plain(dynamic))];
        if family.is_ipv6() {
            ip.push(("autoconf", Node::plain(dynamic)));
        }
        if !addresses.is_empty() {
            ip.push(("address", Node::list(addresses)));
        }
        Node::map(ip)
    }
}

fn interface<'a>(name: &str, kind: &str) -> Vec<(&'a str, Rc<Node>)> {
    vec![("name", Node::text_of(name)), ("type", Node::text_of(kind)), ("state", Node::text_of("up"))]
}

fn disabled() -> Rc<Node> {
    Node::map(vec![("enabled", Node::plain(false))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple() -> DefaultBridge {
        DefaultBridge { uplink: "enp2s0".to_owned(), ..DefaultBridge::default() }
    }

    fn addresses(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn the_default_bridge_follows_the_rules() {
        let dynamic = DefaultBridge { dhcp: Dhcp { v4: true, v6: true }, ..simple() };
        let fixed = DefaultBridge {
            addresses: ["192.0.2.5/24", "2001:db8::5/64"].map(|address| address.parse().unwrap()).to_vec(),
            gateways: addresses(&["192.0.2.1", "fe80::1"]),
            dns: addresses(&["192.0.2.53"]),
            mtu: Some(9000),
            mac: "02:00:00:00:00:01".parse().ok(),
            ..simple()
        };
        let odd_name = DefaultBridge { uplink: "1e3".to_owned(), dhcp: Dhcp { v4: true, v6: false }, ..simple() };
        for bridge in [dynamic, fixed, odd_name] {
            let checked = crate::check(&bridge.to_string(), &[]);
            assert_eq!(checked.violations, [], "{bridge}");
        }
    }

    #[test]
    fn values_that_do_not_fit_together_break_rules() {
        let codes = |bridge: DefaultBridge| -> Vec<&str> {
            let checked = crate::check(&bridge.to_string(), &[]);
            checked.violations.iter().map(|violation| violation.code.as_str()).collect()
        };
        assert_eq!(codes(simple()), ["BR022"]);
        let far = DefaultBridge {
            addresses: vec!["192.0.2.5/24".parse().unwrap()],
            gateways: addresses(&["198.51.100.1"]),
            ..simple()
        };
        assert_eq!(codes(far), ["BR043", "BR042"]);
    }
}
