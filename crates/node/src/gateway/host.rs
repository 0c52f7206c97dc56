//! What the host has: the device of its external bridge, addresses, the way to the outside.

use std::net::IpAddr;

use gateway::Facts;
use netmodel::{InterfaceAddress, Mac, Prefix};

use crate::kernel::address::HostAddress;
use crate::kernel::device::Device;
use crate::kernel::route::{HostRoute, OURS};
use crate::kernel::{KernelError, Netlink};
use crate::options::MANAGEMENT_PORT;

/// What the kernel has, looked at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostView {
    pub(super) devices: Vec<Device>,
    pub(super) addresses: Vec<HostAddress>,
    pub(super) routes: Vec<HostRoute>,
    pub(super) neighbours: Vec<(u32, IpAddr, Mac)>,
}

impl HostView {
    pub(super) async fn look(netlink: &Netlink) -> Result<Self, KernelError> {
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

    /// The addresses that a device has of its own: those that we gave it are left out.
    pub(super) fn own_addresses(&self, device: &Device, ours: &[Prefix]) -> Vec<InterfaceAddress> {
        let mut own: Vec<InterfaceAddress> = Vec::new();
        for found in self.addresses.iter().filter(|found| found.index == device.index && !found.narrow) {
            let address = found.address.address();
            if !ours.iter().any(|network| network.contains(address)) && !own.contains(&found.address) {
                own.push(found.address);
            }
        }
        own
    }

    /// All addresses by which others may call this host.
    pub(super) fn host_cidrs(&self, ours: &[Prefix]) -> Vec<InterfaceAddress> {
        let reachable = |device: &&Device| device.name != MANAGEMENT_PORT && device.name != "lo";
        let mut all: Vec<InterfaceAddress> =
            self.devices.iter().filter(reachable).flat_map(|device| self.own_addresses(device, ours)).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The default routes of a family that count: those with the smallest metric.
    pub(super) fn defaults(&self, v6: bool, through: Option<&Device>) -> Vec<&HostRoute> {
        let all = || {
            self.routes.iter().filter(|route| {
                route.destination.length() == 0
                    && route.destination.is_ipv6() == v6
                    && route.protocol != OURS
                    && through.is_none_or(|device| device.index == route.index)
            })
        };
        let best = all().map(|route| route.metric).min();
        all().filter(|route| Some(route.metric) == best).collect()
    }

    /// The next hop of a family through a device, if there is one.
    pub(super) fn next_hop(&self, v6: bool, device: &Device) -> Result<Option<IpAddr>, String> {
        let mut hops: Vec<IpAddr> = self.defaults(v6, Some(device)).iter().filter_map(|route| route.via).collect();
        hops.sort();
        hops.dedup();
        match hops.as_slice() {
            [] => Ok(None),
            [hop] => Ok(Some(*hop)),
            many => {
                let words: Vec<String> = many.iter().map(ToString::to_string).collect();
                Err(format!(
                    "{} default routes of the same metric lead through {}, by {}: give one of them a smaller metric, or name \
                     the next hop (gateway-nexthop)",
                    many.len(),
                    device.name,
                    words.join(" and ")
                ))
            }
        }
    }
}

/// Makes the host as it shall be; what it is already is not touched.
pub(super) async fn carry(netlink: &Netlink, view: &HostView, facts: &Facts) -> Result<bool, String> {
    let plan = gateway::host(facts);
    let device = |which: gateway::Device| match which {
        gateway::Device::Bridge => view.device(&facts.bridge.name),
        gateway::Device::Management => view.device(&facts.network.management),
    };
    let failed = |error: KernelError| error.to_string();
    let mut changed = false;
    if let Some(management) = device(gateway::Device::Management) {
        changed |= !management.up || management.mtu != facts.network.mtu;
        netlink.bring_up(management, Some(facts.network.mtu)).await.map_err(failed)?;
        // What is left of former networks.
        let wanted = |address: &InterfaceAddress| plan.addresses.contains(&(gateway::Device::Management, *address));
        for found in view.addresses.iter().filter(|found| found.index == management.index && !found.narrow) {
            if !wanted(&found.address) {
                changed = true;
                netlink.remove_address(management, found.address).await.map_err(failed)?;
            }
        }
    }
    for (which, address) in &plan.addresses {
        let Some(device) = device(*which) else { continue };
        let has = |found: &HostAddress| found.index == device.index && found.address == *address;
        if !view.addresses.iter().any(has) {
            changed = true;
            netlink.add_address(device, *address, *which == gateway::Device::Bridge).await.map_err(failed)?;
        }
    }
    for neighbour in &plan.neighbours {
        let Some(device) = device(neighbour.device) else { continue };
        if !view.neighbours.contains(&(device.index, neighbour.address, neighbour.mac)) {
            changed = true;
            netlink.set_neighbour(device, neighbour.address, neighbour.mac).await.map_err(failed)?;
        }
    }
    let wanted: Vec<HostRoute> =
        plan.routes.iter().filter_map(|route| Some(route_of(route, device(route.device)?))).collect();
    for route in &wanted {
        if !view.routes.iter().any(|found| same(found, route)) {
            changed = true;
            netlink.set_route(route).await.map_err(failed)?;
        }
    }
    for stale in view.routes.iter().filter(|found| found.protocol == OURS) {
        if !wanted.iter().any(|route| route.destination == stale.destination) {
            changed = true;
            netlink.remove_route(stale).await.map_err(failed)?;
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
        // One of ours goes before whatever else leads there.
        metric: 0,
        protocol: OURS,
        on_link: false,
    }
}

/// The kernel gives routes of IPv6 a metric of its own.
fn same(found: &HostRoute, wanted: &HostRoute) -> bool {
    HostRoute { metric: 0, ..found.clone() } == HostRoute { metric: 0, ..wanted.clone() }
}

/// Takes off the host what we gave it.
pub(super) async fn remove(
    netlink: &Netlink,
    view: &HostView,
    bridge: &str,
    masquerade: &[Prefix],
) -> Result<(), String> {
    let failed = |error: KernelError| error.to_string();
    for route in view.routes.iter().filter(|route| route.protocol == OURS) {
        netlink.remove_route(route).await.map_err(failed)?;
    }
    let Some(device) = view.device(bridge) else { return Ok(()) };
    let inside = |address: IpAddr| masquerade.iter().any(|network| network.contains(address));
    for (_, address, _) in
        view.neighbours.iter().filter(|(index, address, _)| *index == device.index && inside(*address))
    {
        netlink.remove_neighbour(device, *address).await.map_err(failed)?;
    }
    for found in view.addresses.iter().filter(|found| found.index == device.index && inside(found.address.address())) {
        netlink.remove_address(device, found.address).await.map_err(failed)?;
    }
    Ok(())
}
