//! Changes of the host's devices, addresses and routes, as they happen.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressScope;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage};
use rtnetlink::MulticastGroup;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Tells that something of the host's network changed; what it is, one looks at oneself.
#[derive(Debug)]
pub struct HostChanges {
    changed: watch::Receiver<u64>,
    /// Devices that count; all of them while there are none.
    devices: Arc<Mutex<Vec<String>>>,
    tasks: [JoinHandle<()>; 2],
}

impl HostChanges {
    /// Begins to listen.
    pub fn listen() -> io::Result<Self> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
        let (tell, changed) = watch::channel(0u64);
        let devices: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = devices.clone();
        let reader = tokio::spawn(async move {
            while let Some((message, _)) = messages.next().await {
                let counts = match &message.payload {
                    NetlinkPayload::InnerMessage(message) => {
                        counts(message, &known.lock().unwrap_or_else(PoisonError::into_inner))
                    }
                    // Such as that some were lost.
                    _ => true,
                };
                if counts {
                    tell.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
        });
        Ok(Self { changed, devices, tasks: [tokio::spawn(connection), reader] })
    }

    /// From now on only these devices count: those of pods come and go by the hundred.
    pub fn only_devices(&self, names: Vec<String>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Returns when something changed since the last time.
    pub async fn next(&mut self) {
        if self.changed.changed().await.is_err() {
            // The kernel does not talk to us any more: then there is nothing to hear.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether a message tells of something that counts: every device has addresses and routes of its link.
fn counts(message: &RouteNetlinkMessage, devices: &[String]) -> bool {
    match message {
        RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => {
            devices.is_empty() || name(link).is_none_or(|name| devices.iter().any(|device| device == name))
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            address.header.scope == AddressScope::Universe
        }
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            route.header.table == RouteHeader::RT_TABLE_MAIN && !is_of_link(route)
        }
        _ => true,
    }
}

fn name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn is_of_link(route: &RouteMessage) -> bool {
    route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet6(v6)) => v6.is_unicast_link_local() || v6.is_multicast(),
        _ => false,
    })
}

impl Drop for HostChanges {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
