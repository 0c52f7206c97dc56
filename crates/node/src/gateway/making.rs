//! A bridge that is made of a device: the device becomes its port, and what the host had on the device moves to the
//! bridge.
//!
//! The bridge, with a note of everything that moves, is written in one transaction; what then stands on the device is moved
//! when the kernel has the bridge, and moved back with the bridge removed if that fails. Both steps look at what there is, so
//! one that was interrupted is finished by the next look, and so is a restart of the host: the database is kept, the
//! addresses come back from the note, and nobody has to be asked.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netmodel::{InterfaceAddress, Prefix};
use ovsdb::client::Client;
use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::{Condition, Mutation, Mutator};
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;

use super::carried::commit;
use super::host::HostView;
use super::view::BridgeView;
use crate::kernel::device::Device;
use crate::kernel::route::{HostRoute, OURS};
use crate::kernel::{KernelError, Netlink};

/// On the bridge: the device that it was made of.
pub(super) const MADE_OF: &str = "ovnkube-made-of";
/// On the bridge: what stood on the device.
pub(super) const ADDRESSES: &str = "ovnkube-addresses";
pub(super) const ROUTES: &str = "ovnkube-routes";
/// The kernel's own routes, which follow from addresses, and those that routers announce.
const BY_THEMSELVES: [u8; 2] = [2, 9];
/// The longest name of a device.
const LONGEST_NAME: usize = 15;

/// What stands on a device and moves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Belongings {
    addresses: Vec<InterfaceAddress>,
    routes: Vec<Way>,
}

/// A route, without its device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    destination: Prefix,
    via: Option<IpAddr>,
    source: Option<IpAddr>,
    metric: u32,
    protocol: u8,
    /// The next hop is on the link, whatever the addresses say.
    on_link: bool,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |address: Option<IpAddr>| address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        let link = if self.on_link { "onlink" } else { "-" };
        let Self { destination, via, source, metric, protocol, .. } = self;
        write!(f, "{destination} {} {} {metric} {protocol} {link}", word(*via), word(*source))
    }
}

impl FromStr for Way {
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

impl Way {
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

impl Belongings {
    fn on(host: &HostView, device: &Device, ours: &[Prefix]) -> Self {
        let moves = |route: &&HostRoute| {
            route.index == device.index
                && route.protocol != OURS
                && !BY_THEMSELVES.contains(&route.protocol)
                && !is_narrow(route.destination)
        };
        let way = |route: &HostRoute| Way {
            destination: route.destination,
            via: route.via,
            source: route.source,
            metric: route.metric,
            protocol: route.protocol,
            on_link: route.on_link,
        };
        let mut routes: Vec<Way> = host.routes.iter().filter(moves).map(way).collect();
        // Those on the link come first: others' next hops may need them.
        routes.sort_by_key(|way| (way.via.is_some(), way.destination));
        Self { addresses: host.own_addresses(device, ours), routes }
    }

    fn noted(bridge: &BridgeView) -> Self {
        let note = |key: &str| bridge.external_ids.get(key).map(String::as_str).unwrap_or_default();
        Self {
            addresses: note(ADDRESSES).split(',').filter_map(|text| text.parse().ok()).collect(),
            routes: note(ROUTES).split(',').filter_map(|text| text.parse().ok()).collect(),
        }
    }

    fn notes(&self) -> [(&'static str, String); 2] {
        let joined = |words: Vec<String>| words.join(",");
        [
            (ADDRESSES, joined(self.addresses.iter().map(ToString::to_string).collect())),
            (ROUTES, joined(self.routes.iter().map(ToString::to_string).collect())),
        ]
    }

    /// Puts everything on a device; what is there already stays.
    async fn put_on(&self, netlink: &Netlink, device: &Device) -> Result<(), KernelError> {
        netlink.bring_up(device, None).await?;
        for address in &self.addresses {
            netlink.add_address(device, *address, false).await?;
        }
        for way in &self.routes {
            netlink.set_route(&way.through(device)).await?;
        }
        Ok(())
    }

    /// Takes the addresses off a device, and with them the routes that they carry.
    async fn take_off(&self, netlink: &Netlink, device: &Device) -> Result<(), KernelError> {
        for way in &self.routes {
            netlink.remove_route(&way.through(device)).await?;
        }
        for address in &self.addresses {
            netlink.remove_address(device, *address).await?;
        }
        Ok(())
    }

    /// From one device to another: there first, then away, then the ways that went with them.
    async fn move_over(&self, netlink: &Netlink, from: &Device, to: &Device) -> Result<(), KernelError> {
        netlink.bring_up(to, None).await?;
        for address in &self.addresses {
            netlink.add_address(to, *address, false).await?;
        }
        self.take_off(netlink, from).await?;
        self.put_on(netlink, to).await
    }
}

fn is_narrow(destination: Prefix) -> bool {
    match destination.network() {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

/// The bridge that is made of a device.
pub(super) fn name_for(device: &str) -> String {
    let name = format!("br{device}");
    name.chars().take(LONGEST_NAME).collect()
}

/// Where a bridge is made, and with what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workplace<'a> {
    pub(super) client: &'a Client,
    pub(super) netlink: &'a Netlink,
    pub(super) host: &'a HostView,
    /// The row that has all bridges.
    pub(super) root: Uuid,
    /// The networks whose addresses are ours rather than the host's.
    pub(super) ours: &'a [Prefix],
}

impl Workplace<'_> {
    /// Writes the bridge: the host keeps what it has until the bridge is there.
    pub(super) async fn make(&self, device: &Device, userspace: bool) -> Result<String, String> {
        let name = name_for(&device.name);
        let belongings = Belongings::on(self.host, device, self.ours);
        if belongings.addresses.is_empty() {
            return Err(format!(
                "device {} has no address: a gateway needs one; give it one, or name another",
                device.name
            ));
        }
        let mac = device.mac.ok_or_else(|| format!("device {} has no MAC", device.name))?;
        let [(addresses, address_note), (routes, route_note)] = belongings.notes();
        let mut transaction = Transaction::new();
        let mut ports = Vec::new();
        for (place, port) in [name.as_str(), &device.name].into_iter().enumerate() {
            let (interface_id, port_id) = (format!("interface{place}"), format!("port{place}"));
            let mut interface = Row::new().text("name", port);
            if place == 0 {
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
                    (addresses, &address_note),
                    (routes, &route_note),
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

    /// Sees to it that what the device had stands on the bridge that was made of it; returns whether something was moved.
    pub(super) async fn settle(&self, bridge: &BridgeView) -> Result<bool, String> {
        let Self { client, netlink, host, .. } = *self;
        let Some(made_of) = bridge.external_ids.get(MADE_OF) else { return Ok(false) };
        let Some(own) = host.device(&bridge.name) else { return Ok(false) };
        let device = host.device(made_of);
        let left = device.map(|device| Belongings::on(self.host, device, self.ours)).unwrap_or_default();
        if let Some(device) = device
            && !left.addresses.is_empty()
        {
            if let Err(error) = left.move_over(netlink, device, own).await {
                // Back: the host must not be left without its network.
                let _ = left.take_off(netlink, own).await;
                let back = left.put_on(netlink, device).await;
                let _ = self.remove(bridge).await;
                let also = back.err().map(|error| format!("; and back: {error}")).unwrap_or_default();
                return Err(format!("the addresses of {made_of} could not be moved to {}: {error}{also}", bridge.name));
            }
            remember(client, bridge, &left).await?;
            return Ok(true);
        }
        let noted = Belongings::noted(bridge);
        let present = Belongings::on(host, own, self.ours);
        if present.addresses.is_empty() && !noted.addresses.is_empty() {
            // The host was started anew, and nothing else knows them.
            noted.put_on(netlink, own).await.map_err(|error| error.to_string())?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn remove(&self, bridge: &BridgeView) -> Result<(), String> {
        let mut transaction = Transaction::new();
        let gone = Datum::One(Atom::Uuid(bridge.uuid));
        let mutations = vec![
            Mutation::new("bridges", Mutator::Delete, gone),
            Mutation::new("next_cfg", Mutator::Add, Atom::Integer(1)),
        ];
        transaction.mutate("Open_vSwitch", vec![Condition::uuid(self.root)], mutations);
        commit(self.client, &transaction).await
    }

    /// Gives the device back what it had, and removes the bridge that was made of it.
    pub(super) async fn undo(&self, bridge: &BridgeView) -> Result<(), String> {
        let Self { netlink, host, .. } = *self;
        let Some(made_of) = bridge.external_ids.get(MADE_OF) else { return Ok(()) };
        let failed = |error: KernelError| error.to_string();
        let Some(device) = host.device(made_of) else {
            return Err(format!(
                "device {made_of}, of which bridge {} was made, is gone: connect it again, or remove the bridge by hand",
                bridge.name
            ));
        };
        let mut belongings = Belongings::noted(bridge);
        if let Some(own) = host.device(&bridge.name) {
            let present = Belongings::on(host, own, self.ours);
            if !present.addresses.is_empty() {
                belongings = present;
                belongings.take_off(netlink, own).await.map_err(failed)?;
            }
        }
        self.remove(bridge).await?;
        belongings.put_on(netlink, device).await.map_err(failed)
    }
}

/// What stands there may have changed since the bridge was made.
async fn remember(client: &Client, bridge: &BridgeView, belongings: &Belongings) -> Result<(), String> {
    let mut transaction = Transaction::new();
    for (key, value) in belongings.notes() {
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
    fn what_moves_is_noted_and_read_again() {
        let belongings = Belongings {
            addresses: vec!["10.99.0.11/24".parse().unwrap(), "fd99::b/64".parse().unwrap()],
            routes: vec![
                Way {
                    destination: "0.0.0.0/0".parse().unwrap(),
                    via: Some("10.99.0.254".parse().unwrap()),
                    source: None,
                    metric: 100,
                    protocol: 16,
                    on_link: true,
                },
                Way {
                    destination: "198.51.100.0/24".parse().unwrap(),
                    via: None,
                    source: Some("10.99.0.11".parse().unwrap()),
                    metric: 0,
                    protocol: 4,
                    on_link: false,
                },
            ],
        };
        let external_ids = belongings.notes().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let bridge = BridgeView {
            uuid: Uuid::default(),
            name: "breth0".into(),
            userspace: false,
            external_ids,
            interfaces: Vec::new(),
        };
        assert_eq!(Belongings::noted(&bridge), belongings);
        assert_eq!("nonsense".parse::<Way>(), Err(()));
        assert_eq!(name_for("enp129s0f0np0d1"), "brenp129s0f0np0");
    }
}
