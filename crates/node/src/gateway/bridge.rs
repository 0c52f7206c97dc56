//! The external bridge: choosing it, finding its uplink, and the annotations that describe it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netmodel::{Family, InterfaceAddress, Mac, Prefix};
use serde_json::json;

use super::bridge_setup::{MADE_OF, name_for};
use super::host::HostView;
use super::progress::{Progress, Waiting};
use super::view::{BridgeView, InterfaceView};
use crate::node_status::Annotations;
use crate::options::{EXTERNAL_BRIDGE, INTEGRATION_BRIDGE, Options};

/// Key of a bridge's `external_ids` that names its uplink port; set by the creator of the bridge.
const UPLINK: &str = "bridge-uplink";

/// Why there is no usable external bridge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BridgeError {
    /// The setting names nothing that exists.
    #[error(
        "{0} is neither a bridge of Open vSwitch nor a device of this host: correct gateway-interface, or connect the device"
    )]
    NotFound(String),
    /// Neither a bridge nor a device follows from the host.
    #[error(
        "found neither a bridge {EXTERNAL_BRIDGE} nor a default route: create the bridge, or name a device (gateway-interface)"
    )]
    NoDefaultRoute,
    /// Several devices are equally good.
    #[error(
        "default routes of the same metric lead through {}: name the device to use (gateway-interface), or give it a smaller metric",
        .0.join(" and ")
    )]
    AmbiguousDevice(Vec<String>),
    /// It was there when the bridge was chosen.
    #[error("bridge {0} is gone: create it again, or restart the agent to choose another one")]
    BridgeGone(String),
    /// It was there before.
    #[error("device {0} is gone: connect it again")]
    DeviceGone(String),
    /// Its uplink, or the device that it was created from, is gone.
    #[error("device {device} of bridge {bridge} is gone: connect it again, or remove the bridge by hand")]
    UplinkGone { bridge: String, device: String },
    /// The bridge has no such port.
    #[error("bridge {bridge} has no port {port}, which its external_ids:{UPLINK} names: add it, or correct the name")]
    UplinkNotFound { bridge: String, port: String },
    /// No port leads to the physical network.
    #[error("bridge {0} has no uplink: add the host's device, as in ovs-vsctl add-port {0} eth0")]
    NoUplink(String),
    /// Several ports may lead to the physical network.
    #[error(
        "bridge {bridge} has several ports that may be the uplink ({}): name one, as in ovs-vsctl br-set-external-id {bridge} \
         {UPLINK} {}",
        ports.join(", "), ports.first().map(String::as_str).unwrap_or_default()
    )]
    AmbiguousUplink { bridge: String, ports: Vec<String> },
    /// ovs-vswitchd reports an error.
    #[error(
        "port {port} of bridge {bridge} does not work: {error}; connect the device again, or remove the port: ovs-vsctl del-port {bridge} {port}"
    )]
    UplinkFailed { bridge: String, port: String, error: String },
    /// Not an Ethernet device.
    #[error("device {0} has no MAC, so it is not an Ethernet device: name another one (gateway-interface)")]
    NoMac(String),
    /// The device for a new bridge has no address that could move.
    #[error(
        "device {0} has no address, and a gateway needs one: give it one, or name another device (gateway-interface)"
    )]
    DeviceWithoutAddress(String),
    /// A family of the pods is missing.
    #[error("bridge {bridge} has no {family} address, but pods have: give it one")]
    NoAddress { bridge: String, family: Family },
    /// No default route, and no setting.
    #[error("no default route leads through bridge {0}: add one, or name the next hop (gateway-nexthop)")]
    NoNextHop(String),
    /// Several default routes are equally good.
    #[error(
        "{} default routes of the same metric lead through {device}, by {}: give one of them a smaller metric, or name the next \
         hop (gateway-nexthop)",
        hops.len(), hops.join(" and ")
    )]
    AmbiguousNextHop { device: String, hops: Vec<String> },
    /// A next hop must be a neighbour.
    #[error(
        "next hop {hop} is in no network of bridge {bridge} ({}): correct gateway-nexthop, or leave it out", addresses.join(", ")
    )]
    NextHopUnreachable { hop: IpAddr, bridge: String, addresses: Vec<String> },
}

/// Where the external bridge comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BridgeChoice {
    /// An existing bridge of this name.
    Bridge(String),
    /// It must be created from this device.
    Device(String),
}

/// Chooses by the setting, then br-ex, then a bridge that ovnkube created, then the default route.
pub(super) fn choose(
    options: &Options,
    bridges: &BTreeMap<String, BridgeView>,
    host: &HostView,
) -> Result<BridgeChoice, BridgeError> {
    let with_port = |name: &str| {
        let mut others = bridges.values().filter(|bridge| bridge.name != INTEGRATION_BRIDGE);
        others.find(|bridge| bridge.interfaces.iter().any(|interface| interface.name == name && interface.is_device()))
    };
    let named = |name: &str| -> Option<BridgeChoice> {
        if bridges.contains_key(name) && name != INTEGRATION_BRIDGE {
            return Some(BridgeChoice::Bridge(name.to_owned()));
        }
        if let Some(bridge) = with_port(name) {
            return Some(BridgeChoice::Bridge(bridge.name.clone()));
        }
        host.device(name).map(|_| BridgeChoice::Device(name.to_owned()))
    };
    if let Some(name) = &options.gateway.interface {
        // The bridge that was created from the device may exist while the device is gone.
        let created = name_for(name);
        let existing = || bridges.contains_key(&created).then(|| BridgeChoice::Bridge(created.clone()));
        return named(name).or_else(existing).ok_or_else(|| BridgeError::NotFound(name.clone()));
    }
    if bridges.contains_key(EXTERNAL_BRIDGE) {
        return Ok(BridgeChoice::Bridge(EXTERNAL_BRIDGE.to_owned()));
    }
    // After a reboot the addresses, and with them the default route, are missing.
    if let Some(created) = bridges.values().find(|bridge| bridge.external_ids.contains_key(MADE_OF)) {
        return Ok(BridgeChoice::Bridge(created.name.clone()));
    }
    let defaults: Vec<_> = Family::BOTH.into_iter().flat_map(|family| host.default_routes(family, None)).collect();
    let mut names: Vec<&str> = defaults
        .iter()
        .filter_map(|route| host.devices.iter().find(|device| device.index == route.index))
        .map(|device| device.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => Err(BridgeError::NoDefaultRoute),
        [name] => named(name).ok_or_else(|| BridgeError::DeviceGone((*name).to_owned())),
        many => Err(BridgeError::AmbiguousDevice(many.iter().map(ToString::to_string).collect())),
    }
}

/// The external bridge as Open vSwitch and the kernel report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExternalBridge {
    pub(super) name: String,
    pub(super) userspace: bool,
    pub(super) mac: Mac,
    pub(super) mtu: u32,
    /// OpenFlow number of the uplink.
    pub(super) uplink: u32,
    /// OpenFlow number of the patch port; None until ovn-controller has created it.
    pub(super) patch: Option<u32>,
    /// Uplink device whose frames the kernel must drop: the userspace datapath only gets copies of them.
    pub(super) isolated_uplink: Option<String>,
    pub(super) addresses: Vec<InterfaceAddress>,
    /// At most one of each family.
    pub(super) next_hops: Vec<IpAddr>,
    pub(super) host_cidrs: Vec<InterfaceAddress>,
}

/// The port to the physical network.
pub(super) fn uplink(bridge: &BridgeView) -> Result<&InterfaceView, BridgeError> {
    let name = &bridge.name;
    let devices: Vec<&InterfaceView> = bridge.interfaces.iter().filter(|interface| interface.is_device()).collect();
    let named = bridge.external_ids.get(UPLINK);
    let found = match (named, devices.as_slice()) {
        (Some(port), devices) => devices
            .iter()
            .copied()
            .find(|device| device.name == *port)
            .ok_or_else(|| BridgeError::UplinkNotFound { bridge: name.clone(), port: port.clone() })?,
        (None, []) => return Err(BridgeError::NoUplink(name.clone())),
        (None, [device]) => *device,
        (None, many) => {
            let ports = many.iter().map(|device| device.name.clone()).collect();
            return Err(BridgeError::AmbiguousUplink { bridge: name.clone(), ports });
        }
    };
    if let Some(error) = &found.error {
        let (bridge, port) = (name.clone(), found.name.clone());
        return Err(BridgeError::UplinkFailed { bridge, port, error: error.clone() });
    }
    Ok(found)
}

/// Name of the node's localnet port, which ovn-controller connects to the bridge.
pub(super) fn interface_id(bridge: &str, node: &str) -> String {
    format!("{bridge}_{node}")
}

/// Name of the patch port to br-int, which ovn-controller creates.
pub(super) fn patch_port(bridge: &str, node: &str) -> String {
    format!("patch-{}-to-{INTEGRATION_BRIDGE}", interface_id(bridge, node))
}

impl ExternalBridge {
    /// Reads the state of a bridge. `own_networks`: networks of addresses that ovnkube added.
    pub(super) fn inspect(
        bridge: &BridgeView,
        host: &HostView,
        options: &Options,
        own_networks: &[Prefix],
    ) -> Result<Progress<Self>, BridgeError> {
        let name = &bridge.name;
        let port = uplink(bridge)?;
        let Some(uplink) = port.number else {
            return Ok(Progress::Waiting(Waiting::PortNumber { bridge: name.clone(), port: port.name.clone() }));
        };
        if host.device(&port.name).is_none() && port.is_kernel_device() {
            return Err(BridgeError::UplinkGone { bridge: name.clone(), device: port.name.clone() });
        }
        let Some(device) = host.device(name) else {
            return Ok(Progress::Waiting(Waiting::BridgeDevice { bridge: name.clone() }));
        };
        let mac = device.mac.ok_or_else(|| BridgeError::NoMac(name.clone()))?;
        let cluster = &options.cluster;
        let mut addresses = host.own_addresses(device, own_networks);
        addresses.retain(|address| cluster.has_family(Family::of(address.address())));
        for family in cluster.families() {
            if !addresses.iter().any(|address| family.matches(address.address())) {
                return Err(BridgeError::NoAddress { bridge: name.clone(), family });
            }
        }
        let mut next_hops = Vec::new();
        for family in cluster.families() {
            let configured = options.gateway.next_hops.iter().copied().find(|hop| family.matches(*hop));
            next_hops.extend(match configured {
                Some(hop) => Some(check_next_hop(hop, name, &addresses)?),
                None => host.next_hop(family, device)?,
            });
        }
        if next_hops.is_empty() {
            return Err(BridgeError::NoNextHop(name.clone()));
        }
        let patch = patch_port(name, &options.node);
        let patch = bridge.interfaces.iter().find(|interface| interface.name == patch).and_then(|found| found.number);
        Ok(Progress::Done(Self {
            name: name.clone(),
            userspace: bridge.userspace,
            mac,
            mtu: device.mtu,
            uplink,
            patch,
            isolated_uplink: (bridge.userspace && port.is_kernel_device()).then(|| port.name.clone()),
            addresses,
            next_hops,
            host_cidrs: host.host_cidrs(own_networks),
        }))
    }

    /// This node's tunnel address: the setting, else the first address.
    pub(super) fn encapsulation(&self, options: &Options) -> Option<IpAddr> {
        options.encapsulation.address.or_else(|| self.addresses.first().map(|address| address.address()))
    }

    /// Checks that tunnelled packets of pods fit the bridge.
    pub(super) fn check_mtu(&self, options: &Options, pods: u32) -> Result<(), gateway::MtuError> {
        let outer = self.encapsulation(options).map_or(Family::V4, Family::of);
        let families: Vec<Family> = options.cluster.families().collect();
        gateway::check_mtu(pods, &families, &self.name, self.mtu, outer)
    }

    /// Annotations of the Node from which the controller configures the gateway router.
    pub(super) fn annotations(&self, options: &Options) -> Annotations {
        let texts = |addresses: &[InterfaceAddress]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        // The gateway router has one address of each family.
        let firsts: Vec<InterfaceAddress> = options
            .cluster
            .families()
            .filter_map(|family| self.addresses.iter().copied().find(|address| family.matches(address.address())))
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
        let first =
            |family: Family| firsts.iter().find(|address| family.matches(address.address())).map(ToString::to_string);
        let mut primary = serde_json::Map::new();
        for (key, family) in [("ipv4", Family::V4), ("ipv6", Family::V6)] {
            primary.extend(first(family).map(|address| (key.to_owned(), json!(address))));
        }
        [
            ("k8s.ovn.org/l3-gateway-config", gateway.to_string()),
            ("k8s.ovn.org/host-cidrs", json!(texts(&self.host_cidrs)).to_string()),
            ("k8s.ovn.org/node-primary-ifaddr", json!(primary).to_string()),
        ]
        .into()
    }
}

/// A configured next hop must be on the link, or no packet ever leaves.
fn check_next_hop(hop: IpAddr, bridge: &str, addresses: &[InterfaceAddress]) -> Result<IpAddr, BridgeError> {
    let link_local = matches!(hop, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if link_local || addresses.iter().any(|own| own.network().contains(hop)) {
        return Ok(hop);
    }
    let addresses = addresses.iter().map(ToString::to_string).collect();
    Err(BridgeError::NextHopUnreachable { hop, bridge: bridge.to_owned(), addresses })
}
