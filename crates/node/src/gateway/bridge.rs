//! The external bridge: which one it is, what leads outside, and what of it others have to know.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netmodel::{InterfaceAddress, Mac, Prefix};
use serde_json::json;

use super::host::HostView;
use super::making::{MADE_OF, name_for};
use super::view::{BridgeView, InterfaceView};
use crate::options::{EXTERNAL_BRIDGE, INTEGRATION_BRIDGE, Options};
use crate::report::Annotations;

/// Who made a bridge may say which of its ports leads outside.
const UPLINK: &str = "bridge-uplink";

/// Which bridge is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// One that there is.
    Bridge(String),
    /// One that is to be made of this device.
    Device(String),
}

/// Which bridge is meant.
pub(super) fn choose(
    options: &Options,
    bridges: &BTreeMap<String, BridgeView>,
    host: &HostView,
) -> Result<Choice, String> {
    let of_port = |name: &str| {
        let mut others = bridges.values().filter(|bridge| bridge.name != INTEGRATION_BRIDGE);
        others.find(|bridge| bridge.interfaces.iter().any(|interface| interface.name == name && interface.is_device()))
    };
    let named = |name: &str| -> Option<Choice> {
        if bridges.contains_key(name) && name != INTEGRATION_BRIDGE {
            return Some(Choice::Bridge(name.to_owned()));
        }
        if let Some(bridge) = of_port(name) {
            return Some(Choice::Bridge(bridge.name.clone()));
        }
        host.device(name).map(|_| Choice::Device(name.to_owned()))
    };
    if let Some(name) = &options.gateway.interface {
        // One that was made of it may be there while the device itself is not.
        let made = name_for(name);
        return named(name).or_else(|| bridges.contains_key(&made).then_some(Choice::Bridge(made))).ok_or_else(|| {
            format!(
                "{name} is neither a bridge of Open vSwitch nor a device of this host: correct gateway-interface, or \
                 connect the device"
            )
        });
    }
    if bridges.contains_key(EXTERNAL_BRIDGE) {
        return Ok(Choice::Bridge(EXTERNAL_BRIDGE.to_owned()));
    }
    // The default route may be gone with the addresses, as after a restart of the host.
    if let Some(made) = bridges.values().find(|bridge| bridge.external_ids.contains_key(MADE_OF)) {
        return Ok(Choice::Bridge(made.name.clone()));
    }
    let defaults: Vec<_> = [false, true].iter().flat_map(|v6| host.defaults(*v6, None)).collect();
    let mut names: Vec<&str> = defaults
        .iter()
        .filter_map(|route| host.devices.iter().find(|device| device.index == route.index))
        .map(|device| device.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => Err(format!(
            "there is no bridge {EXTERNAL_BRIDGE} and no default route: make the bridge, or name a device (gateway-interface)"
        )),
        [name] => named(name).ok_or_else(|| format!("the device {name} of the default route is gone")),
        many => Err(format!(
            "default routes of the same metric lead through {}: name the one to use (gateway-interface), or give it a \
             smaller metric",
            many.join(" and ")
        )),
    }
}

/// What is known of the external bridge, whether or not a gateway can be made of it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct External {
    pub(super) name: String,
    pub(super) userspace: bool,
    pub(super) mac: Mac,
    pub(super) mtu: u32,
    pub(super) uplink: u32,
    pub(super) patch: Option<u32>,
    /// The device whose frames the host's kernel must not see: ovs-vswitchd only gets copies of them.
    pub(super) shielded: Option<String>,
    pub(super) addresses: Vec<InterfaceAddress>,
    pub(super) next_hops: Vec<IpAddr>,
    pub(super) host_cidrs: Vec<InterfaceAddress>,
}

/// The port that leads outside.
pub(super) fn uplink(bridge: &BridgeView) -> Result<&InterfaceView, String> {
    let name = &bridge.name;
    let devices: Vec<&InterfaceView> = bridge.interfaces.iter().filter(|interface| interface.is_device()).collect();
    let said = bridge.external_ids.get(UPLINK);
    let found = match (said, devices.as_slice()) {
        (Some(said), devices) => devices.iter().copied().find(|device| device.name == *said).ok_or_else(|| {
            format!(
                "bridge {name} has no port {said}, which its external_ids:{UPLINK} names: add it, or correct the name"
            )
        })?,
        (None, []) => {
            return Err(format!(
                "bridge {name} has no port that leads outside: add the host's device, as in ovs-vsctl add-port {name} eth0"
            ));
        }
        (None, [device]) => *device,
        (None, many) => {
            let names: Vec<&str> = many.iter().map(|device| device.name.as_str()).collect();
            return Err(format!(
                "bridge {name} has several ports that may lead outside ({}): name one, as in ovs-vsctl br-set-external-id \
                 {name} {UPLINK} {}",
                names.join(", "),
                names[0]
            ));
        }
    };
    if let Some(error) = &found.error {
        return Err(format!("the port {} of bridge {name} does not work: {error}; is the device there?", found.name));
    }
    Ok(found)
}

/// The localnet port of a node, by which ovn-controller finds the bridge.
pub(super) fn interface_id(bridge: &str, node: &str) -> String {
    format!("{bridge}_{node}")
}

impl External {
    /// Looks at a bridge.
    pub(super) fn look(
        bridge: &BridgeView,
        host: &HostView,
        options: &Options,
        ours: &[Prefix],
    ) -> Result<Self, String> {
        let name = &bridge.name;
        let port = uplink(bridge)?;
        let uplink = port.number.ok_or_else(|| {
            format!("the port {} of bridge {name} has no number yet: is ovs-vswitchd running?", port.name)
        })?;
        if host.device(&port.name).is_none() && port.is_of_kernel() {
            return Err(format!("the device {} of bridge {name} is gone: connect it again", port.name));
        }
        let device =
            host.device(name).ok_or_else(|| format!("the host has no device {name} yet: is ovs-vswitchd running?"))?;
        let mac = device.mac.ok_or_else(|| format!("the device {name} has no MAC"))?;
        let cluster = &options.cluster;
        let mut addresses = host.own_addresses(device, ours);
        addresses.retain(|address| cluster.has_family(address.address().is_ipv6()));
        for v6 in cluster.families() {
            if !addresses.iter().any(|address| address.address().is_ipv6() == v6) {
                let family = if v6 { "IPv6" } else { "IPv4" };
                return Err(format!("bridge {name} has no {family} address, but pods have: give it one"));
            }
        }
        let mut next_hops = Vec::new();
        for v6 in cluster.families() {
            let told = options.gateway.next_hops.iter().copied().find(|hop| hop.is_ipv6() == v6);
            next_hops.extend(match told {
                Some(hop) => Some(reachable(hop, name, &addresses)?),
                None => host.next_hop(v6, device)?,
            });
        }
        if next_hops.is_empty() {
            return Err(format!(
                "no default route leads through bridge {name}: add one, or name the next hop (gateway-nexthop)"
            ));
        }
        let patch = format!("patch-{}-to-{INTEGRATION_BRIDGE}", interface_id(name, &options.node));
        let patch = bridge.interfaces.iter().find(|interface| interface.name == patch).and_then(|found| found.number);
        Ok(Self {
            name: name.clone(),
            userspace: bridge.userspace,
            mac,
            mtu: device.mtu,
            uplink,
            patch,
            shielded: (bridge.userspace && port.is_of_kernel()).then(|| port.name.clone()),
            addresses,
            next_hops,
            host_cidrs: host.host_cidrs(ours),
        })
    }

    /// Our end of tunnels, where nobody named one: the first address.
    pub(super) fn encapsulation(&self, options: &Options) -> Option<IpAddr> {
        options.encapsulation.address.or_else(|| self.addresses.first().map(|address| address.address()))
    }

    /// Refuses an MTU of pods that does not fit.
    pub(super) fn check_mtu(&self, options: &Options, pods: u32) -> Result<(), String> {
        let outer_is_ipv6 = self.encapsulation(options).is_some_and(|address| address.is_ipv6());
        gateway::check_mtu(pods, options.cluster.has_family(true), &self.name, self.mtu, outer_is_ipv6)
            .map_err(|error| error.to_string())
    }

    /// What the node says of its gateway.
    pub(super) fn annotations(&self, options: &Options) -> Annotations {
        let texts = |addresses: &[InterfaceAddress]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        // The gateway router has one address of each family.
        let firsts: Vec<InterfaceAddress> = options
            .cluster
            .families()
            .filter_map(|v6| self.addresses.iter().copied().find(|address| address.address().is_ipv6() == v6))
            .collect();
        let (addresses, hops) = (texts(&firsts), self.next_hops.iter().map(ToString::to_string).collect::<Vec<_>>());
        let gateway = json!({"default": {
            "mode": options.gateway.mode.name(),
            "bridge-id": self.name,
            "interface-id": interface_id(&self.name, &options.node),
            "mac-address": self.mac.to_string(),
            "ip-addresses": addresses,
            "ip-address": addresses.first(),
            "next-hops": hops,
            "next-hop": hops.first(),
            "node-port-enable": "true",
            "vlan-id": "0",
        }});
        let family =
            |v6: bool| firsts.iter().find(|address| address.address().is_ipv6() == v6).map(ToString::to_string);
        let mut primary = serde_json::Map::new();
        for (key, v6) in [("ipv4", false), ("ipv6", true)] {
            primary.extend(family(v6).map(|address| (key.to_owned(), json!(address))));
        }
        [
            ("k8s.ovn.org/l3-gateway-config", gateway.to_string()),
            ("k8s.ovn.org/host-cidrs", json!(texts(&self.host_cidrs)).to_string()),
            ("k8s.ovn.org/node-primary-ifaddr", json!(primary).to_string()),
        ]
        .into()
    }
}

/// A next hop that was named must be a neighbour, or nothing ever leaves.
fn reachable(hop: IpAddr, bridge: &str, addresses: &[InterfaceAddress]) -> Result<IpAddr, String> {
    let of_link = matches!(hop, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if of_link || addresses.iter().any(|own| own.network().contains(hop)) {
        return Ok(hop);
    }
    let own: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    Err(format!(
        "the next hop {hop} is in no network of bridge {bridge} ({}): correct gateway-nexthop, or leave it out",
        own.join(", ")
    ))
}
