//! Routes of the host.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netmodel::{Family, Prefix};

use super::error::unless_absent;
use super::{KernelError, Netlink};

/// Routing protocol number of ovnkube's routes, by which they are recognized.
pub(crate) const ROUTE_PROTOCOL: u8 = 79;

/// A route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostRoute {
    /// `0.0.0.0/0` and `::/0` are default routes.
    pub(crate) destination: Prefix,
    /// Next hop.
    pub(crate) via: Option<IpAddr>,
    /// Interface index of the output device.
    pub(crate) index: u32,
    /// Preferred source address.
    pub(crate) source: Option<IpAddr>,
    pub(crate) mtu: Option<u32>,
    /// The smallest wins.
    pub(crate) metric: u32,
    /// Who added it (RTPROT_*).
    pub(crate) protocol: u8,
    /// The next hop is on the link although no address covers it.
    pub(crate) on_link: bool,
}

/// The kernel's name of a family.
pub(super) fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn to_route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(v4) => RouteAddress::Inet(v4),
        IpAddr::V6(v6) => RouteAddress::Inet6(v6),
    }
}

impl HostRoute {
    /// Unicast routes of the main table; one with several next hops becomes several.
    fn read(message: &RouteMessage) -> Vec<Self> {
        let header = &message.header;
        let family = if header.address_family == AddressFamily::Inet6 { Family::V6 } else { Family::V4 };
        let (mut table, mut destination) = (u32::from(header.table), family.unspecified());
        let mut route = Self {
            destination: family.everything(),
            via: None,
            index: 0,
            source: None,
            mtu: None,
            metric: 0,
            protocol: u8::from(header.protocol),
            on_link: header.flags.contains(netlink_packet_route::route::RouteFlags::Onlink),
        };
        let mut hops = Vec::new();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(found) => table = *found,
                RouteAttribute::Destination(found) => destination = address(found).unwrap_or(family.unspecified()),
                RouteAttribute::Gateway(found) => route.via = address(found),
                RouteAttribute::Oif(found) => route.index = *found,
                RouteAttribute::PrefSource(found) => route.source = address(found),
                RouteAttribute::Priority(found) => route.metric = *found,
                RouteAttribute::Metrics(found) => {
                    route.mtu = found.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(mtu) => Some(*mtu),
                        _ => None,
                    });
                }
                RouteAttribute::MultiPath(paths) => {
                    for hop in paths {
                        let via = hop.attributes.iter().find_map(|attribute| match attribute {
                            RouteAttribute::Gateway(found) => address(found),
                            _ => None,
                        });
                        hops.push((hop.interface_index, via));
                    }
                }
                _ => {}
            }
        }
        if table != u32::from(RouteHeader::RT_TABLE_MAIN) || header.kind != RouteType::Unicast {
            return Vec::new();
        }
        let Ok(destination) = Prefix::new(destination, header.destination_prefix_length) else { return Vec::new() };
        route.destination = destination;
        if hops.is_empty() {
            return vec![route];
        }
        hops.into_iter().map(|(index, via)| Self { index, via, ..route.clone() }).collect()
    }

    fn write(&self) -> RouteMessage {
        let family = self.destination.family();
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = address_family(family);
        header.table = RouteHeader::RT_TABLE_MAIN;
        header.protocol = RouteProtocol::from(self.protocol);
        header.scope = if self.via.is_none() && family.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
        header.kind = RouteType::Unicast;
        header.destination_prefix_length = self.destination.length();
        if self.on_link {
            header.flags.insert(netlink_packet_route::route::RouteFlags::Onlink);
        }
        let attributes = &mut message.attributes;
        if self.destination.length() > 0 {
            attributes.push(RouteAttribute::Destination(to_route_address(self.destination.network())));
        }
        attributes.push(RouteAttribute::Oif(self.index));
        attributes.extend(self.via.map(|via| RouteAttribute::Gateway(to_route_address(via))));
        attributes.extend(self.source.map(|source| RouteAttribute::PrefSource(to_route_address(source))));
        attributes.extend(self.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
        if self.metric > 0 {
            attributes.push(RouteAttribute::Priority(self.metric));
        }
        message
    }

    fn description(&self) -> String {
        let via = self.via.map(|via| format!(" via {via}")).unwrap_or_default();
        format!("route to {}{via}", self.destination)
    }
}

impl Netlink {
    /// Unicast routes of the main table, of both families.
    pub(crate) async fn routes(&self) -> Result<Vec<HostRoute>, KernelError> {
        let mut routes = Vec::new();
        for family in Family::BOTH {
            let mut filter = RouteMessage::default();
            filter.header.address_family = address_family(family);
            let messages: Vec<RouteMessage> = self
                .handle()
                .route()
                .get(filter)
                .execute()
                .try_collect()
                .await
                .map_err(|error| KernelError::of("list routes", &error))?;
            routes.extend(messages.iter().flat_map(HostRoute::read));
        }
        Ok(routes)
    }

    /// Adds a route, or replaces one of the same destination and metric.
    pub(crate) async fn set_route(&self, route: &HostRoute) -> Result<(), KernelError> {
        let done = self.handle().route().add(route.write()).replace().execute().await;
        done.map_err(|error| KernelError::of(format!("add {}", route.description()), &error))
    }

    /// Removes a route, whether or not it exists.
    pub(crate) async fn remove_route(&self, route: &HostRoute) -> Result<(), KernelError> {
        let done = self.handle().route().del(route.write()).execute().await;
        unless_absent(done.map_err(|error| KernelError::of(format!("remove {}", route.description()), &error)))
    }
}
