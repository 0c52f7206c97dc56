//! Addresses of the host's devices.

use futures_util::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope, CacheInfo};
use netmodel::{Family, InterfaceAddress};

use super::device::Device;
use super::error::unless_absent;
use super::{KernelError, Netlink};

/// An address with the device that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostAddress {
    /// Interface index of the device.
    pub(crate) index: u32,
    pub(crate) address: InterfaceAddress,
    /// Scope link or host: not reachable from other links.
    pub(crate) link_scope: bool,
}

fn read(message: &AddressMessage) -> Option<HostAddress> {
    let (mut address, mut local) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => address = Some(*found),
            AddressAttribute::Local(found) => local = Some(*found),
            _ => {}
        }
    }
    let address = InterfaceAddress::new(local.or(address)?, message.header.prefix_len).ok()?;
    let link_scope = message.header.scope != AddressScope::Universe;
    Some(HostAddress { index: message.header.index, address, link_scope })
}

impl Netlink {
    /// Addresses of all devices, in the kernel's order.
    pub(crate) async fn addresses(&self) -> Result<Vec<HostAddress>, KernelError> {
        let messages: Vec<AddressMessage> = self
            .handle()
            .address()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(|error| KernelError::of("list addresses", &error))?;
        Ok(messages.iter().filter_map(read).collect())
    }

    /// Adds or replaces an address, without duplicate address detection. A `deprecated` address is used only as the source that a
    /// route names: the kernel does not choose it itself.
    pub(crate) async fn add_address(
        &self,
        device: &Device,
        address: InterfaceAddress,
        deprecated: bool,
    ) -> Result<(), KernelError> {
        let mut request = self.handle().address().add(device.index, address.address(), address.length()).replace();
        if address.address().is_ipv6() {
            let attributes = &mut request.message_mut().attributes;
            // Unique, or in use before: no duplicate address detection.
            attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            if deprecated {
                // Preferred lifetime 0. IPv4 chooses the source by the route's network anyway.
                let mut lifetime = CacheInfo::default();
                (lifetime.ifa_preferred, lifetime.ifa_valid) = (0, u32::MAX);
                attributes.push(AddressAttribute::CacheInfo(lifetime));
            }
        }
        let action = format!("add address {address} to {}", device.name);
        request.execute().await.map_err(|error| KernelError::of(action, &error))
    }

    /// Removes an address, whether or not it exists.
    pub(crate) async fn remove_address(&self, device: &Device, address: InterfaceAddress) -> Result<(), KernelError> {
        let mut message = AddressMessage::default();
        message.header.index = device.index;
        message.header.prefix_len = address.length();
        message.header.family = super::route::address_family(Family::of(address.address()));
        message.attributes.push(AddressAttribute::Local(address.address()));
        let action = format!("remove address {address} from {}", device.name);
        let removed = self.handle().address().del(message).execute().await;
        unless_absent(removed.map_err(|error| KernelError::of(action, &error)))
    }
}
