//! The kernel's network configuration over netlink, without starting processes.

pub(crate) mod address;
mod attributes;
pub(crate) mod changes;
pub(crate) mod device;
mod error;
pub(crate) mod filter_changes;
pub mod namespace;
pub(crate) mod neighbour;
mod netlink_socket;
mod offload;
pub(crate) mod pod_filter;
pub mod pod_link;
pub(crate) mod route;

pub(crate) use error::KernelError;

use std::io;

use tokio::task::JoinHandle;

/// An rtnetlink connection to the host's network namespace.
#[derive(Debug)]
pub(crate) struct Netlink {
    handle: rtnetlink::Handle,
    connection: JoinHandle<()>,
}

impl Netlink {
    /// Connects to the network namespace of this process.
    pub(crate) fn host() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    fn handle(&self) -> &rtnetlink::Handle {
        &self.handle
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
