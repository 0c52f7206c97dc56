//! State of the host's network, and applying the gateway's part of it.

use std::net::IpAddr;

use gateway::Facts;
use netmodel::{Family, InterfaceAddress, Mac, Prefix};

use super::bridge::BridgeError;
use crate::kernel::address::HostAddress;
use crate::kernel::device::Device;
use crate::kernel::route::{HostRoute, ROUTE_PROTOCOL};
use crate::kernel::{KernelError, Netlink};
use crate::options::MANAGEMENT_PORT;

/// Devices, addresses, routes and neighbours, read at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostView {
    pub(super) devices: Vec<Device>,
    pub(super) addresses: Vec<HostAddress>,
    pub(super) routes: Vec<HostRoute>,
    pub(super) neighbours: Vec<(u32, IpAddr, Mac)>,
}

impl HostView {
    pub(super) async fn read(netlink: &Netlink) -> Result<Self, KernelError> {
        Ok(Self {
            devices: netlink.devices().await?,
            addresses: netlink.addresses().await?,
            routes: netlink.routes().await?,
            neighbours: netlink.neighbours().await?,
        })
    }

    pub(super) fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Addresses of a device, without those that ovnkube added.
    pub(super) fn own_addresses(&self, device: &Device, own_networks: &[Prefix]) -> Vec<InterfaceAddress> {
        let mut own: Vec<InterfaceAddress> = Vec::new();
        for found in self.addresses.iter().filter(|found| found.index == device.index && !found.link_scope) {
            let address = found.address.address();
            if !own_networks.iter().any(|network| network.contains(address)) && !own.contains(&found.address) {
                own.push(found.address);
            }
        }
        own
    }

    /// All addresses at which others may reach this host.
    pub(super) fn host_cidrs(&self, own_networks: &[Prefix]) -> Vec<InterfaceAddress> {
        let reachable = |device: &&Device| device.name != MANAGEMENT_PORT && device.name != "lo";
        let mut all: Vec<InterfaceAddress> =
            self.devices.iter().filter(reachable).flat_map(|device| self.own_addresses(device, own_networks)).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Default routes of a family with the smallest metric, optionally through one device.
    pub(super) fn default_routes(&self, family: Family, through: Option<&Device>) -> Vec<&HostRoute> {
        let all = || {
            self.routes.iter().filter(|route| {
                route.destination.length() == 0
                    && route.destination.family() == family
                    && route.protocol != ROUTE_PROTOCOL
                    && through.is_none_or(|device| device.index == route.index)
            })
        };
        let best = all().map(|route| route.metric).min();
        all().filter(|route| Some(route.metric) == best).collect()
    }

    /// Next hop of the default route through a device, if there is one.
    pub(super) fn next_hop(&self, family: Family, device: &Device) -> Result<Option<IpAddr>, BridgeError> {
        let mut hops: Vec<IpAddr> =
            self.default_routes(family, Some(device)).iter().filter_map(|route| route.via).collect();
        hops.sort();
        hops.dedup();
        match hops.as_slice() {
            [] => Ok(None),
            [hop] => Ok(Some(*hop)),
            many => {
                let hops = many.iter().map(ToString::to_string).collect();
                Err(BridgeError::AmbiguousNextHop { device: device.name.clone(), hops })
            }
        }
    }
}

/// Writes what differs from the desired state; returns whether anything did.
pub(super) async fn apply(netlink: &Netlink, view: &HostView, facts: &Facts) -> Result<bool, KernelError> {
    let plan = gateway::host(facts);
    let device = |which: gateway::Device| match which {
        gateway::Device::Bridge => view.device(&facts.bridge.name),
        gateway::Device::Management => view.device(&facts.network.management),
    };
    let mut changed = false;
    if let Some(management) = device(gateway::Device::Management) {
        changed |= !management.up || management.mtu != facts.network.mtu;
        netlink.bring_up(management, Some(facts.network.mtu)).await?;
        // Left over from former subnets.
        let wanted = |address: &InterfaceAddress| plan.addresses.contains(&(gateway::Device::Management, *address));
        for found in view.addresses.iter().filter(|found| found.index == management.index && !found.link_scope) {
            if !wanted(&found.address) {
                changed = true;
                netlink.remove_address(management, found.address).await?;
            }
        }
    }
    for (which, address) in &plan.addresses {
        let Some(device) = device(*which) else { continue };
        let has = |found: &HostAddress| found.index == device.index && found.address == *address;
        if !view.addresses.iter().any(has) {
            changed = true;
            netlink.add_address(device, *address, *which == gateway::Device::Bridge).await?;
        }
    }
    for neighbour in &plan.neighbours {
        let Some(device) = device(neighbour.device) else { continue };
        if !view.neighbours.contains(&(device.index, neighbour.address, neighbour.mac)) {
            changed = true;
            netlink.set_neighbour(device, neighbour.address, neighbour.mac).await?;
        }
    }
    let wanted: Vec<HostRoute> =
        plan.routes.iter().filter_map(|route| Some(route_of(route, device(route.device)?))).collect();
    for route in &wanted {
        if !view.routes.iter().any(|found| is_same(found, route)) {
            changed = true;
            netlink.set_route(route).await?;
        }
    }
    for stale in view.routes.iter().filter(|found| found.protocol == ROUTE_PROTOCOL) {
        if !wanted.iter().any(|route| route.destination == stale.destination) {
            changed = true;
            netlink.remove_route(stale).await?;
        }
    }
    Ok(changed)
}

fn route_of(route: &gateway::Route, device: &Device) -> HostRoute {
    HostRoute {
        destination: route.destination,
        via: route.via,
        index: device.index,
        source: route.source,
        mtu: route.mtu,
        // Preferred over any other route to the same destination.
        metric: 0,
        protocol: ROUTE_PROTOCOL,
        on_link: false,
    }
}

/// Compares without the metric: the kernel sets its own for IPv6 routes.
fn is_same(found: &HostRoute, wanted: &HostRoute) -> bool {
    HostRoute { metric: 0, ..found.clone() } == HostRoute { metric: 0, ..wanted.clone() }
}

/// Removes the routes, neighbours and addresses that ovnkube added.
pub(super) async fn remove(
    netlink: &Netlink,
    view: &HostView,
    bridge: &str,
    masquerade: &[Prefix],
) -> Result<(), KernelError> {
    for route in view.routes.iter().filter(|route| route.protocol == ROUTE_PROTOCOL) {
        netlink.remove_route(route).await?;
    }
    let Some(device) = view.device(bridge) else { return Ok(()) };
    let inside = |address: IpAddr| masquerade.iter().any(|network| network.contains(address));
    for (_, address, _) in
        view.neighbours.iter().filter(|(index, address, _)| *index == device.index && inside(*address))
    {
        netlink.remove_neighbour(device, *address).await?;
    }
    for found in view.addresses.iter().filter(|found| found.index == device.index && inside(found.address.address())) {
        netlink.remove_address(device, found.address).await?;
    }
    Ok(())
}
