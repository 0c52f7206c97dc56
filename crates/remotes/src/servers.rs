//! The servers of both databases.

use std::net::IpAddr;

use kubernetes::Api;

use crate::access::{DatabaseAccess, hosts};
use crate::follow::{RemoteUpdates, follow};

/// The servers of both databases, kept up to date from the API.
#[derive(Debug, Clone)]
pub struct Servers {
    /// None until the API has named a server: then clients use the configured ones.
    pub northbound: RemoteUpdates,
    /// As for the northbound database.
    pub southbound: RemoteUpdates,
    configured: Vec<IpAddr>,
}

impl Servers {
    /// Follows both, as long as the process runs.
    pub fn follow(api: &Api, northbound: &DatabaseAccess, southbound: &DatabaseAccess) -> Self {
        let configured = [northbound, southbound].into_iter().flat_map(|access| hosts(&access.remotes)).collect();
        let [northbound, southbound] = follow(api, [northbound, southbound]);
        Self { northbound, southbound, configured }
    }

    /// Addresses of all servers, configured or named by the API: no Service may have one of them.
    pub fn addresses(&mut self) -> Vec<IpAddr> {
        let mut addresses = self.configured.clone();
        for updates in [&mut self.northbound, &mut self.southbound] {
            addresses.extend(updates.borrow_and_update().iter().flat_map(|list| hosts(list)));
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Waits until [`Servers::addresses`] may have changed. Cancel-safe.
    pub async fn changed(&mut self) {
        tokio::select! {
            Ok(()) = self.northbound.changed() => {}
            Ok(()) = self.southbound.changed() => {}
            else => std::future::pending().await,
        }
    }
}
