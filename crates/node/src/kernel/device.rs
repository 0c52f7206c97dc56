//! Network devices of the host.

use futures_util::TryStreamExt;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netmodel::Mac;
use rtnetlink::LinkUnspec;

use super::{KernelError, Netlink};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// Changes when a device is deleted and created again.
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: u32,
    /// Set up by an administrator or program (`IFF_UP`), with or without a carrier.
    pub(crate) up: bool,
}

impl Device {
    fn read(message: &LinkMessage) -> Option<Self> {
        let (mut name, mut mac, mut mtu) = (None, None, 0);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text.clone()),
                LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac::new),
                LinkAttribute::Mtu(value) => mtu = *value,
                _ => {}
            }
        }
        let up = message.header.flags.contains(LinkFlags::Up);
        Some(Self { index: message.header.index, name: name?, mac, mtu, up })
    }
}

impl Netlink {
    pub(crate) async fn devices(&self) -> Result<Vec<Device>, KernelError> {
        let links: Vec<LinkMessage> = self
            .handle()
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(|error| KernelError::of("list devices", &error))?;
        Ok(links.iter().filter_map(Device::read).collect())
    }

    /// None if there is no device of this name.
    pub(crate) async fn device(&self, name: &str) -> Result<Option<Device>, KernelError> {
        match self.handle().link().get().match_name(name).execute().try_next().await {
            Ok(link) => Ok(link.as_ref().and_then(Device::read)),
            Err(error) => {
                let error = KernelError::of(format!("read device {name}"), &error);
                if error.is_absent() { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Sets a device up, with an MTU if one is given; does nothing if it is.
    pub(crate) async fn bring_up(&self, device: &Device, mtu: Option<u32>) -> Result<(), KernelError> {
        let mtu = mtu.filter(|mtu| *mtu != device.mtu);
        if device.up && mtu.is_none() {
            return Ok(());
        }
        let mut message = LinkUnspec::new_with_index(device.index).up();
        if let Some(mtu) = mtu {
            message = message.mtu(mtu);
        }
        let set = self.handle().link().set(message.build()).execute().await;
        set.map_err(|error| KernelError::of(format!("set device {} up", device.name), &error))
    }
}
