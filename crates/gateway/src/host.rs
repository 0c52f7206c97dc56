//! Desired addresses, neighbours, routes and sysctls of the host.

use std::net::IpAddr;

use netmodel::{Family, GatewayMode, InterfaceAddress, Mac, Prefix};

use crate::facts::{Facts, MasqueradeAddresses};

/// A device of the host that ovnkube configures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// The bridge with the uplink, usually br-ex.
    Bridge,
    /// The host's own port on br-int, ovn-k8s-mp0.
    Management,
}

/// A route in the host's main table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// `0.0.0.0/0` or `::/0` for a default route.
    pub destination: Prefix,
    /// Next hop; None if the destination is on the link.
    pub via: Option<IpAddr>,
    /// Output device.
    pub device: Device,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Path MTU, in bytes.
    pub mtu: Option<u32>,
}

/// A permanent neighbour entry: no ARP or neighbour discovery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Device on whose link it is.
    pub device: Device,
    /// Address that needs no ARP or neighbour discovery.
    pub address: IpAddr,
    /// Link-layer address.
    pub mac: Mac,
}

/// A kernel setting of one device (`net.ipv4.conf.DEVICE.NAME`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    /// Device in the path of the setting.
    pub device: Device,
    /// Under `net.ipv4` or `net.ipv6`.
    pub family: Family,
    /// Last part of the path.
    pub name: &'static str,
    /// As it is written to the file, such as `0`.
    pub value: &'static str,
}

/// What ovnkube adds to the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPlan {
    /// In addition to the host's own addresses.
    pub addresses: Vec<(Device, InterfaceAddress)>,
    /// Permanent ones, for addresses that no host answers for.
    pub neighbours: Vec<Neighbour>,
    /// In the main table.
    pub routes: Vec<Route>,
    /// Kernel settings.
    pub sysctls: Vec<Sysctl>,
    /// MAC of the management port; None without an address.
    pub management_mac: Option<Mac>,
}

/// Desired state of the host.
pub fn host(facts: &Facts) -> HostPlan {
    let mut plan = HostPlan::default();
    let mut management = Vec::new();
    for family in facts.families() {
        if let Some(masquerade) = facts.masquerade(family) {
            services(&mut plan, facts, family, masquerade);
        }
        let Some(subnet) = facts.subnet(family) else { continue };
        if let Some(own) = subnet.nth_interface(2) {
            management.push(own.address());
            plan.addresses.push((Device::Management, own));
        }
        for network in facts.network.cluster.iter().copied().filter(|network| network.family() == family) {
            plan.routes.push(Route {
                destination: network,
                via: subnet.nth(1),
                device: Device::Management,
                source: None,
                mtu: None,
            });
        }
        settings(&mut plan, facts, family);
    }
    // Any pod of the node can send router advertisements to it, whatever the cluster's families and policies.
    plan.sysctls.push(Sysctl { device: Device::Management, family: Family::V6, name: "accept_ra", value: "0" });
    plan.management_mac = Mac::for_addresses(&management);
    plan
}

fn services(plan: &mut HostPlan, facts: &Facts, family: Family, masquerade: MasqueradeAddresses) {
    let MasqueradeAddresses { router, host, next_hop, network } = masquerade;
    let device = Device::Bridge;
    plan.addresses.extend(InterfaceAddress::new(host, network.length()).map(|own| (device, own)));
    for address in [router, next_hop] {
        plan.neighbours.push(Neighbour { device, address, mac: Mac::for_address(address) });
    }
    for destination in facts.network.services.iter().copied().filter(|network| network.family() == family) {
        let mtu = Some(facts.network.mtu);
        plan.routes.push(Route { destination, via: Some(next_hop), device, source: Some(host), mtu });
    }
    // Replies to the router have the address that the router used.
    if let (Ok(destination), Some(own)) = (Prefix::new(router, family.bits()), facts.addresses(family).next()) {
        plan.routes.push(Route { destination, via: None, device, source: Some(own), mtu: None });
    }
}

/// Forwarding only in local gateway mode; loose reverse-path filtering, because paths may be asymmetric.
fn settings(plan: &mut HostPlan, facts: &Facts, family: Family) {
    for device in [Device::Bridge, Device::Management] {
        if facts.mode == GatewayMode::Local {
            plan.sysctls.push(Sysctl { device, family, name: "forwarding", value: "1" });
        }
        if family.is_ipv4() {
            plan.sysctls.push(Sysctl { device, family, name: "rp_filter", value: "2" });
        }
    }
    if family.is_ipv4() {
        // Lets packets from 127.0.0.1 reach pods and replies return; the packet filter drops all others.
        let value = if facts.routes_loopback() { "1" } else { "0" };
        plan.sysctls.push(Sysctl { device: Device::Management, family, name: "route_localnet", value });
    }
}
