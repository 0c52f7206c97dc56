//! Addresses of the host's devices.

use futures_util::TryStreamExt;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope, CacheInfo,
};
use netmodel::InterfaceAddress;

use super::device::Device;
use super::error::unless_absent;
use super::{KernelError, Netlink};

/// An address that a device has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddress {
    /// The device's number.
    pub index: u32,
    /// The address.
    pub address: InterfaceAddress,
    /// Whether it is only for the link, or for the host itself.
    pub narrow: bool,
    /// Whether the kernel counts it behind another one of its network.
    pub secondary: bool,
    /// Whether its network is not to have a route of its own.
    pub no_route: bool,
}

fn read(message: &AddressMessage) -> Option<HostAddress> {
    let (mut address, mut local, mut flags) = (None, None, AddressFlags::empty());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => address = Some(*found),
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Flags(found) => flags = *found,
            _ => {}
        }
    }
    let address = InterfaceAddress::new(local.or(address)?, message.header.prefix_len).ok()?;
    let narrow = message.header.scope != AddressScope::Universe;
    let secondary = message.header.flags.contains(AddressHeaderFlags::Secondary);
    let no_route = flags.contains(AddressFlags::Noprefixroute);
    Some(HostAddress { index: message.header.index, address, narrow, secondary, no_route })
}

impl Netlink {
    /// All addresses, in the kernel's order.
    pub async fn addresses(&self) -> Result<Vec<HostAddress>, KernelError> {
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

    /// Gives a device an address, usable at once. It may have it already. One that is `aside` is used where a route names it,
    /// and never chosen by the kernel itself.
    pub async fn add_address(
        &self,
        device: &Device,
        address: InterfaceAddress,
        aside: bool,
    ) -> Result<(), KernelError> {
        let mut request = self.handle().address().add(device.index, address.address(), address.length()).replace();
        if address.address().is_ipv6() {
            let attributes = &mut request.message_mut().attributes;
            // It is ours alone, or was in use already: nobody has to be asked for it.
            attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            if aside {
                // IPv4 has the route's network to go by; IPv6 passes over those that are no longer preferred.
                let mut lifetime = CacheInfo::default();
                (lifetime.ifa_preferred, lifetime.ifa_valid) = (0, u32::MAX);
                attributes.push(AddressAttribute::CacheInfo(lifetime));
            }
        }
        let doing = format!("give {} the address {address}", device.name);
        request.execute().await.map_err(|error| KernelError::of(doing, &error))
    }

    /// Takes an address from a device; it may be gone already.
    pub async fn remove_address(&self, device: &Device, address: InterfaceAddress) -> Result<(), KernelError> {
        let mut message = AddressMessage::default();
        message.header.index = device.index;
        message.header.prefix_len = address.length();
        message.header.family = super::route::family(address.address().is_ipv6());
        message.attributes.push(AddressAttribute::Local(address.address()));
        let doing = format!("take {address} from {}", device.name);
        let asked = self.handle().address().del(message).execute().await;
        unless_absent(asked.map_err(|error| KernelError::of(doing, &error)))
    }
}
