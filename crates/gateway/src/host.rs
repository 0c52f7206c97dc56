//! What the host itself shall have: addresses, neighbours, routes and settings.

use std::net::IpAddr;

use netmodel::{InterfaceAddress, Mac, Prefix};

use crate::facts::{Facts, Masquerade, Mode};

/// A device of the host that is ours to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// The external bridge.
    Bridge,
    /// The management port.
    Management,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where it leads.
    pub destination: Prefix,
    /// By whom; nobody if it is on the link.
    pub via: Option<IpAddr>,
    /// Through what.
    pub device: Device,
    /// The address that the host uses there.
    pub source: Option<IpAddr>,
    /// How large packets are there.
    pub mtu: Option<u32>,
}

/// A neighbour that nobody has to ask for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Its device.
    pub device: Device,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC.
    pub mac: Mac,
}

/// A setting of the kernel for one device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    /// The device.
    pub device: Device,
    /// IPv6.
    pub v6: bool,
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: &'static str,
}

/// What the host shall have because of us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPlan {
    /// Addresses, beside those that the host has of its own.
    pub addresses: Vec<(Device, InterfaceAddress)>,
    /// Neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Settings.
    pub sysctls: Vec<Sysctl>,
    /// The MAC of the management port.
    pub management_mac: Option<Mac>,
}

/// What the host shall have.
pub fn host(facts: &Facts) -> HostPlan {
    let mut plan = HostPlan::default();
    let mut management = Vec::new();
    for v6 in facts.families() {
        if let Some(masquerade) = facts.masquerade(v6) {
            services(&mut plan, facts, v6, masquerade);
        }
        let Some(subnet) = facts.subnet(v6) else { continue };
        if let Some(own) = subnet.nth_interface(2) {
            management.push(own.address());
            plan.addresses.push((Device::Management, own));
        }
        for network in facts.network.cluster.iter().copied().filter(|network| network.is_ipv6() == v6) {
            plan.routes.push(Route {
                destination: network,
                via: subnet.nth(1),
                device: Device::Management,
                source: None,
                mtu: None,
            });
        }
        settings(&mut plan, facts, v6);
    }
    // Any pod of the node can send advertisements there, whatever the cluster's families and policies.
    plan.sysctls.push(Sysctl { device: Device::Management, v6: true, name: "accept_ra", value: "0" });
    plan.management_mac = Mac::for_addresses(&management);
    plan
}

fn services(plan: &mut HostPlan, facts: &Facts, v6: bool, masquerade: Masquerade) {
    let Masquerade { router, host, next_hop, network } = masquerade;
    let device = Device::Bridge;
    plan.addresses.extend(InterfaceAddress::new(host, network.length()).map(|own| (device, own)));
    for address in [router, next_hop] {
        plan.neighbours.push(Neighbour { device, address, mac: Mac::for_address(address) });
    }
    for destination in facts.network.services.iter().copied().filter(|network| network.is_ipv6() == v6) {
        let mtu = Some(facts.network.mtu);
        plan.routes.push(Route { destination, via: Some(next_hop), device, source: Some(host), mtu });
    }
    // Who answers the router does so under the address that it was asked by.
    if let (Ok(destination), Some(own)) = (Prefix::new(router, if v6 { 128 } else { 32 }), facts.addresses(v6).next()) {
        plan.routes.push(Route { destination, via: None, device, source: Some(own), mtu: None });
    }
}

/// Forwarding only where pods leave through the host, and the paths there and back may differ.
fn settings(plan: &mut HostPlan, facts: &Facts, v6: bool) {
    for device in [Device::Bridge, Device::Management] {
        if facts.mode == Mode::Local {
            plan.sysctls.push(Sysctl { device, v6, name: "forwarding", value: "1" });
        }
        if !v6 {
            plan.sysctls.push(Sysctl { device, v6, name: "rp_filter", value: "2" });
        }
    }
    if !v6 {
        // Packets from 127.0.0.1 reach pods, and their answers come back (the packet filter keeps all others out).
        let value = if facts.routes_loopback() { "1" } else { "0" };
        plan.sysctls.push(Sysctl { device: Device::Management, v6, name: "route_localnet", value });
    }
}
