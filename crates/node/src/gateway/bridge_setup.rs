//! Creates the external bridge from a device: the device becomes its uplink, and the host's addresses and routes move to the
//! bridge.
//!
//! One transaction writes the bridge with a copy of everything that moves. When the kernel has the bridge, the addresses are
//! moved; if that fails, they are moved back and the bridge is removed. Both steps compare with the current state, so the next
//! reconciliation finishes an interrupted one. After a reboot the addresses are restored from the copy.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netmodel::{InterfaceAddress, Prefix};
use ovsdb::client::Client;
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use super::bridge::BridgeError;
use super::error::GatewayError;
use super::host::HostView;
use super::reconciler::commit;
use super::view::BridgeView;
use crate::kernel::device::Device;
use crate::kernel::route::{HostRoute, ROUTE_PROTOCOL};
use crate::kernel::{KernelError, Netlink};

/// Key of the bridge's `external_ids`: the device that it was created from.
pub(super) const MADE_OF: &str = "ovnkube-made-of";
/// Keys of the bridge's `external_ids`: the addresses and routes that were moved.
pub(super) const ADDRESSES: &str = "ovnkube-addresses";
pub(super) const ROUTES: &str = "ovnkube-routes";
/// Routes that follow from addresses (RTPROT_KERNEL) or from router advertisements (RTPROT_RA): they are not moved.
const DERIVED_PROTOCOLS: [u8; 2] = [2, 9];
/// Limit of the kernel (`IFNAMSIZ` without the terminating zero).
const MAX_DEVICE_NAME: usize = 15;

/// Addresses and routes of a device, which move together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct IpConfig {
    addresses: Vec<InterfaceAddress>,
    routes: Vec<SavedRoute>,
}

/// A route without its device, as it is saved in `external_ids`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SavedRoute {
    destination: Prefix,
    via: Option<IpAddr>,
    source: Option<IpAddr>,
    metric: u32,
    protocol: u8,
    /// The next hop is on the link although no address covers it.
    on_link: bool,
}

impl fmt::Display for SavedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |address: Option<IpAddr>| address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        let link = if self.on_link { "onlink" } else { "-" };
        let Self { destination, via, source, metric, protocol, .. } = self;
        write!(f, "{destination} {} {} {metric} {protocol} {link}", word(*via), word(*source))
    }
}

impl FromStr for SavedRoute {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split(' ').collect();
        let [destination, via, source, metric, protocol, link] = words.as_slice() else { return Err(()) };
        let address = |word: &str| if word == "-" { Ok(None) } else { word.parse().map(Some).map_err(drop) };
        Ok(Self {
            destination: destination.parse().map_err(drop)?,
            via: address(via)?,
            source: address(source)?,
            metric: metric.parse().map_err(drop)?,
            protocol: protocol.parse().map_err(drop)?,
            on_link: *link == "onlink",
        })
    }
}

impl SavedRoute {
    fn through(&self, device: &Device) -> HostRoute {
        HostRoute {
            destination: self.destination,
            via: self.via,
            index: device.index,
            source: self.source,
            mtu: None,
            metric: self.metric,
            protocol: self.protocol,
            on_link: self.on_link,
        }
    }
}

impl IpConfig {
    fn read(host: &HostView, device: &Device, own_networks: &[Prefix]) -> Self {
        let moves = |route: &&HostRoute| {
            route.index == device.index
                && route.protocol != ROUTE_PROTOCOL
                && !DERIVED_PROTOCOLS.contains(&route.protocol)
                && !is_link_scope(route.destination)
        };
        let route = |route: &HostRoute| SavedRoute {
            destination: route.destination,
            via: route.via,
            source: route.source,
            metric: route.metric,
            protocol: route.protocol,
            on_link: route.on_link,
        };
        let mut routes: Vec<SavedRoute> = host.routes.iter().filter(moves).map(route).collect();
        // On-link routes first: next hops of others may depend on them.
        routes.sort_by_key(|route| (route.via.is_some(), route.destination));
        Self { addresses: host.own_addresses(device, own_networks), routes }
    }

    fn saved(bridge: &BridgeView) -> Self {
        let note = |key: &str| bridge.external_ids.get(key).map(String::as_str).unwrap_or_default();
        Self {
            addresses: note(ADDRESSES).split(',').filter_map(|text| text.parse().ok()).collect(),
            routes: note(ROUTES).split(',').filter_map(|text| text.parse().ok()).collect(),
        }
    }

    fn to_external_ids(&self) -> [(&'static str, String); 2] {
        let joined = |words: Vec<String>| words.join(",");
        [
            (ADDRESSES, joined(self.addresses.iter().map(ToString::to_string).collect())),
            (ROUTES, joined(self.routes.iter().map(ToString::to_string).collect())),
        ]
    }

    /// Adds everything to a device, which may have some of it.
    async fn add_to(&self, netlink: &Netlink, device: &Device) -> Result<(), KernelError> {
        netlink.bring_up(device, None).await?;
        for address in &self.addresses {
            netlink.add_address(device, *address, false).await?;
        }
        for route in &self.routes {
            netlink.set_route(&route.through(device)).await?;
        }
        Ok(())
    }

    /// Removes routes and addresses from a device.
    async fn remove_from(&self, netlink: &Netlink, device: &Device) -> Result<(), KernelError> {
        for route in &self.routes {
            netlink.remove_route(&route.through(device)).await?;
        }
        for address in &self.addresses {
            netlink.remove_address(device, *address).await?;
        }
        Ok(())
    }

    /// Adds the addresses to the new device before it removes them from the old one; then adds the routes.
    async fn move_to(&self, netlink: &Netlink, from: &Device, to: &Device) -> Result<(), KernelError> {
        netlink.bring_up(to, None).await?;
        for address in &self.addresses {
            netlink.add_address(to, *address, false).await?;
        }
        self.remove_from(netlink, from).await?;
        self.add_to(netlink, to).await
    }
}

fn is_link_scope(destination: Prefix) -> bool {
    match destination.network() {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

/// Name of the bridge that is created from a device.
pub(super) fn name_for(device: &str) -> String {
    let name = format!("br{device}");
    name.chars().take(MAX_DEVICE_NAME).collect()
}

/// Everything that the setup reads and writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BridgeSetup<'a> {
    pub(super) client: &'a Client,
    pub(super) netlink: &'a Netlink,
    pub(super) host: &'a HostView,
    /// The `Open_vSwitch` row.
    pub(super) root: Uuid,
    /// Networks of addresses that ovnkube added: they do not move.
    pub(super) own_networks: &'a [Prefix],
}

impl BridgeSetup<'_> {
    /// Writes the bridge to the database; the host's addresses stay on the device. Returns the bridge's name.
    pub(super) async fn create(&self, device: &Device, userspace: bool) -> Result<String, GatewayError> {
        let name = name_for(&device.name);
        let ip_config = IpConfig::read(self.host, device, self.own_networks);
        if ip_config.addresses.is_empty() {
            return Err(BridgeError::DeviceWithoutAddress(device.name.clone()).into());
        }
        let mac = device.mac.ok_or_else(|| BridgeError::NoMac(device.name.clone()))?;
        let [(addresses, address_list), (routes, route_list)] = ip_config.to_external_ids();
        let mut transaction = Transaction::new();
        let mut ports = Vec::new();
        for (index, port) in [name.as_str(), &device.name].into_iter().enumerate() {
            let (interface_id, port_id) = (format!("interface{index}"), format!("port{index}"));
            let mut interface = Row::new().text("name", port);
            if index == 0 {
                interface = interface.text("type", "internal").set("mtu_request", Atom::Integer(i64::from(device.mtu)));
            }
            transaction.insert_named("Interface", &interface_id, interface);
            let interfaces = Datum::One(Atom::Named(interface_id.as_str().into()));
            transaction.insert_named("Port", &port_id, Row::new().text("name", port).set("interfaces", interfaces));
            ports.push(Atom::Named(port_id.as_str().into()));
        }
        let bridge = Row::new()
            .text("name", &name)
            .text("datapath_type", if userspace { "netdev" } else { "" })
            .text("fail_mode", "standalone")
            .set("ports", Datum::set(ports))
            .map("other_config", [("hwaddr", mac.to_string().as_str())])
            .map(
                "external_ids",
                [
                    ("bridge-id", name.as_str()),
                    ("bridge-uplink", &device.name),
                    (MADE_OF, &device.name),
                    (addresses, &address_list),
                    (routes, &route_list),
                ],
            );
        transaction.insert_named("Bridge", "bridge", bridge);
        let bridges = Datum::One(Atom::Named("bridge".into()));
        transaction.mutate(
            "Open_vSwitch",
            vec![Condition::uuid(self.root)],
            vec![
                Mutation::new("bridges", Mutator::Insert, bridges),
                Mutation::new("next_cfg", Mutator::Add, Atom::Integer(1)),
            ],
        );
        commit(self.client, &transaction).await?;
        Ok(name)
    }

    /// Moves the device's addresses and routes to the bridge that was created from it; returns whether there were any.
    pub(super) async fn move_addresses(&self, bridge: &BridgeView) -> Result<bool, GatewayError> {
        let Self { client, netlink, host, .. } = *self;
        let Some(made_of) = bridge.external_ids.get(MADE_OF) else { return Ok(false) };
        let Some(own) = host.device(&bridge.name) else { return Ok(false) };
        let device = host.device(made_of);
        let left = device.map(|device| IpConfig::read(self.host, device, self.own_networks)).unwrap_or_default();
        if let Some(device) = device
            && !left.addresses.is_empty()
        {
            if let Err(error) = left.move_to(netlink, device, own).await {
                // Roll back: the host must not lose its network.
                let _ = left.remove_from(netlink, own).await;
                let rollback = left.add_to(netlink, device).await.err().map(Box::new);
                let _ = self.remove(bridge).await;
                let (device, bridge) = (made_of.clone(), bridge.name.clone());
                return Err(GatewayError::Move { device, bridge, error: Box::new(error), rollback });
            }
            save(client, bridge, &left).await?;
            return Ok(true);
        }
        let saved = IpConfig::saved(bridge);
        let present = IpConfig::read(host, own, self.own_networks);
        if present.addresses.is_empty() && !saved.addresses.is_empty() {
            // After a reboot nothing else knows them.
            saved.add_to(netlink, own).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn remove(&self, bridge: &BridgeView) -> Result<(), GatewayError> {
        let mut transaction = Transaction::new();
        let gone = Datum::One(Atom::Uuid(bridge.uuid));
        let mutations = vec![
            Mutation::new("bridges", Mutator::Delete, gone),
            Mutation::new("next_cfg", Mutator::Add, Atom::Integer(1)),
        ];
        transaction.mutate("Open_vSwitch", vec![Condition::uuid(self.root)], mutations);
        commit(self.client, &transaction).await
    }

    /// Moves addresses and routes back to the device, and removes the bridge that was created from it.
    pub(super) async fn revert(&self, bridge: &BridgeView) -> Result<(), GatewayError> {
        let Self { netlink, host, .. } = *self;
        let Some(made_of) = bridge.external_ids.get(MADE_OF) else { return Ok(()) };
        let Some(device) = host.device(made_of) else {
            return Err(BridgeError::UplinkGone { bridge: bridge.name.clone(), device: made_of.clone() }.into());
        };
        let mut ip_config = IpConfig::saved(bridge);
        if let Some(own) = host.device(&bridge.name) {
            let present = IpConfig::read(host, own, self.own_networks);
            if !present.addresses.is_empty() {
                ip_config = present;
                ip_config.remove_from(netlink, own).await?;
            }
        }
        self.remove(bridge).await?;
        ip_config.add_to(netlink, device).await.map_err(GatewayError::from)
    }
}

/// Updates the copy: the device's addresses may have changed since the bridge was created.
async fn save(client: &Client, bridge: &BridgeView, ip_config: &IpConfig) -> Result<(), GatewayError> {
    let mut transaction = Transaction::new();
    for (key, value) in ip_config.to_external_ids() {
        if bridge.external_ids.get(key) != Some(&value) {
            transaction.set_key("Bridge", bridge.uuid, "external_ids", key, &value);
        }
    }
    if transaction.is_empty() { Ok(()) } else { commit(client, &transaction).await }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_routes_survive_saving_and_reading() {
        let ip_config = IpConfig {
            addresses: vec!["10.99.0.11/24".parse().unwrap(), "fd99::b/64".parse().unwrap()],
            routes: vec![
                SavedRoute {
                    destination: "0.0.0.0/0".parse().unwrap(),
                    via: Some("10.99.0.254".parse().unwrap()),
                    source: None,
                    metric: 100,
                    protocol: 16,
                    on_link: true,
                },
                SavedRoute {
                    destination: "198.51.100.0/24".parse().unwrap(),
                    via: None,
                    source: Some("10.99.0.11".parse().unwrap()),
                    metric: 0,
                    protocol: 4,
                    on_link: false,
                },
            ],
        };
        let external_ids =
            ip_config.to_external_ids().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let bridge = BridgeView {
            uuid: Uuid::default(),
            name: "breth0".into(),
            userspace: false,
            external_ids,
            interfaces: Vec::new(),
        };
        assert_eq!(IpConfig::saved(&bridge), ip_config);
        assert_eq!("nonsense".parse::<SavedRoute>(), Err(()));
        assert_eq!(name_for("enp129s0f0np0d1"), "brenp129s0f0np0");
    }
}
