//! Notifications of changes of the host's devices, addresses and routes.

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

/// Notifies that the host's network changed, without saying what.
#[derive(Debug)]
pub(crate) struct HostChanges {
    changed: watch::Receiver<u64>,
    /// Relevant devices; empty means all.
    devices: Arc<Mutex<Vec<String>>>,
    tasks: [JoinHandle<()>; 2],
}

impl HostChanges {
    /// Joins the multicast groups of links, addresses and routes.
    pub(crate) fn subscribe() -> io::Result<Self> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
        let (notify, changed) = watch::channel(0u64);
        let devices: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = devices.clone();
        let reader = tokio::spawn(async move {
            while let Some((message, _)) = messages.next().await {
                let is_relevant = match &message.payload {
                    NetlinkPayload::InnerMessage(message) => {
                        is_relevant(message, &known.lock().unwrap_or_else(PoisonError::into_inner))
                    }
                    // Such as an overrun: messages were lost.
                    _ => true,
                };
                if is_relevant {
                    notify.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
        });
        Ok(Self { changed, devices, tasks: [tokio::spawn(connection), reader] })
    }

    /// Ignores changes of other devices: those of pods change constantly.
    pub(crate) fn only_devices(&self, names: Vec<String>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Returns when something changed since the last call.
    pub(crate) async fn next(&mut self) {
        if self.changed.changed().await.is_err() {
            // The connection ended: no more notifications.
            std::future::pending::<()>().await;
        }
    }
}

/// Ignores link-local addresses and routes, which every device has.
fn is_relevant(message: &RouteNetlinkMessage, devices: &[String]) -> bool {
    match message {
        RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link) => {
            devices.is_empty() || name(link).is_none_or(|name| devices.iter().any(|device| device == name))
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            address.header.scope == AddressScope::Universe
        }
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            route.header.table == RouteHeader::RT_TABLE_MAIN && !is_link_local(route)
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

fn is_link_local(route: &RouteMessage) -> bool {
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
