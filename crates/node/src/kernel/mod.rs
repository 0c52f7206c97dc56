//! The kernel's network, by netlink: no process is started for it.

pub mod address;
mod attributes;
pub mod changes;
mod conversation;
pub mod device;
mod error;
pub mod filter_changes;
pub mod namespace;
pub mod neighbour;
mod offload;
pub mod pod_filter;
pub mod pod_link;
pub mod route;

pub use error::KernelError;

use std::io;
use std::path::Path;

use tokio::task::JoinHandle;

/// A netlink connection to the host's network, or to that of a namespace.
#[derive(Debug)]
pub struct Netlink {
    handle: rtnetlink::Handle,
    connection: JoinHandle<()>,
}

impl Netlink {
    /// To the network that this process is in.
    pub fn host() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// To the network of a namespace: a socket belongs to the one that it was made in.
    pub fn inside(path: &Path) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let (connection, handle, _) = namespace::within(path, || {
            let _context = runtime.enter();
            rtnetlink::new_connection()
        })??;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// For requests.
    pub fn handle(&self) -> &rtnetlink::Handle {
        &self.handle
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
