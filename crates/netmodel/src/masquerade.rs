//! Addresses of the masquerade network, which has no host: each stands for one end of a path inside a node.

use std::net::IpAddr;

use crate::Prefix;

/// The role of an address of the masquerade network. Controller, node agent and OVN-Kubernetes (Go) use the same
/// offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    /// The gateway router, as the host sees it.
    Router,
    /// The host, as its own gateway router sees it.
    Host,
    /// The host as a client of endpoints on its own node.
    HostLocal,
    /// The next hop of Service routes; answered by a static neighbour entry, never by ARP.
    NextHop,
    /// A pod that reaches itself through a Service.
    Hairpin,
    /// Dropped by every bridge: the backend of a Service on a node without local endpoints.
    Blackhole,
}

impl Masquerade {
    /// Addresses that the network must have at least; the last one in use has offset 6.
    pub const NETWORK_SIZE: u128 = 8;

    /// The address with this role; none if the network is too small.
    pub fn address(self, network: Prefix) -> Option<IpAddr> {
        let offset = match self {
            Self::Router => 1,
            Self::Host => 2,
            Self::HostLocal => 3,
            Self::NextHop => 4,
            Self::Hairpin => 5,
            Self::Blackhole => 6,
        };
        network.nth(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows and rules of running clusters have these addresses.
    #[test]
    fn offsets_do_not_change() {
        let network: Prefix = "169.254.169.0/29".parse().unwrap();
        assert_eq!(network.size(), Masquerade::NETWORK_SIZE);
        let roles = [
            Masquerade::Router,
            Masquerade::Host,
            Masquerade::HostLocal,
            Masquerade::NextHop,
            Masquerade::Hairpin,
            Masquerade::Blackhole,
        ];
        for (role, last) in roles.into_iter().zip(1..) {
            assert_eq!(role.address(network), Some(IpAddr::from([169, 254, 169, last])), "{role:?}");
        }
    }
}
