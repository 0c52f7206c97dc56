//! Changes of the host's devices, addresses and routes, as they happen.

use std::io;

use futures_util::StreamExt;
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
        let reader = tokio::spawn(async move {
            while messages.next().await.is_some() {
                tell.send_modify(|count| *count = count.wrapping_add(1));
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

impl Drop for HostChanges {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
