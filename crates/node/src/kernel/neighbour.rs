//! Permanent neighbour entries.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netmodel::{Family, Mac};

use super::device::Device;
use super::error::unless_absent;
use super::{KernelError, Netlink};

fn read(message: &NeighbourMessage) -> Option<(u32, IpAddr, Mac)> {
    if message.header.state != NeighbourState::Permanent {
        return None;
    }
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac::new),
            _ => {}
        }
    }
    Some((message.header.ifindex, address?, mac?))
}

impl Netlink {
    /// Permanent neighbours, with the index of their device.
    pub(crate) async fn neighbours(&self) -> Result<Vec<(u32, IpAddr, Mac)>, KernelError> {
        let messages: Vec<NeighbourMessage> = self
            .handle()
            .neighbours()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(|error| KernelError::of("list neighbours", &error))?;
        Ok(messages.iter().filter_map(read).collect())
    }

    /// Adds or replaces a permanent neighbour.
    pub(crate) async fn set_neighbour(&self, device: &Device, address: IpAddr, mac: Mac) -> Result<(), KernelError> {
        let request = self.handle().neighbours().add(device.index, address).link_layer_address(&mac.bytes()).replace();
        let action = format!("set neighbour {address} of {}", device.name);
        request.execute().await.map_err(|error| KernelError::of(action, &error))
    }

    /// Removes a neighbour, whether or not it exists.
    pub(crate) async fn remove_neighbour(&self, device: &Device, address: IpAddr) -> Result<(), KernelError> {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = device.index;
        message.header.family = super::route::address_family(Family::of(address));
        message.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        }));
        let removed = self.handle().neighbours().del(message).execute().await;
        let action = format!("remove neighbour {address} of {}", device.name);
        unless_absent(removed.map_err(|error| KernelError::of(action, &error)))
    }
}
