//! Changes of the host's devices, addresses and routes, as they happen.

use std::io;

use futures_util::StreamExt;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use rtnetlink::MulticastGroup;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Tells that something of the host's network changed; what it is, one looks at oneself.
#[derive(Debug)]
pub struct HostChanges {
    changed: watch::Receiver<u64>,
    tasks: [JoinHandle<()>; 2],
}

impl HostChanges {
    /// Begins to listen. What happens to devices with names of the left-out kind concerns nobody: pods come and go.
    pub fn listen(left_out: fn(&str) -> bool) -> io::Result<Self> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
        let (tell, changed) = watch::channel(0u64);
        let reader = tokio::spawn(async move {
            while let Some((message, _)) = messages.next().await {
                if !device_of(&message.payload).is_some_and(left_out) {
                    tell.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
        });
        Ok(Self { changed, tasks: [tokio::spawn(connection), reader] })
    }

    /// Returns when something changed since the last time.
    pub async fn next(&mut self) {
        if self.changed.changed().await.is_err() {
            // The kernel does not talk to us any more: then there is nothing to hear.
            std::future::pending::<()>().await;
        }
    }
}

/// The device that a message is about, if it is about the device itself.
fn device_of(message: &NetlinkPayload<RouteNetlinkMessage>) -> Option<&str> {
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)) = message
    else {
        return None;
    };
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

impl Drop for HostChanges {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkMessage;

    use super::*;

    #[test]
    fn only_what_is_about_a_device_itself_names_it() {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName("eth0".to_owned()));
        let message = NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link));
        assert_eq!(device_of(&message), Some("eth0"));
        let route = netlink_packet_route::route::RouteMessage::default();
        assert_eq!(device_of(&NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route))), None);
    }
}
