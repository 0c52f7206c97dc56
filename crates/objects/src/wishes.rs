//! What few pods ask for, beside what all of them get: addresses of their own choice, limits, ports of their node. It stands
//! apart, so that the many others cost nothing for it.

use std::net::IpAddr;

use netmodel::Mac;

use super::annotation::shortened;
use super::{Annotated, HostPort, quantity};

/// How much a pod may get.
pub(super) const INGRESS_BANDWIDTH: &str = "kubernetes.io/ingress-bandwidth";
/// How much a pod may send.
pub(super) const EGRESS_BANDWIDTH: &str = "kubernetes.io/egress-bandwidth";

/// The limits that Kubernetes takes for a bandwidth, in bits per second: 1k and 1P.
const BITS: std::ops::RangeInclusive<u128> = 1000..=1_000_000_000_000_000;

/// What few pods ask for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    /// The addresses that it asks for.
    pub request: Annotated<StaticRequest>,
    /// How much it may get at most.
    pub ingress: Annotated<Rate>,
    /// How much it may send at most.
    pub egress: Annotated<Rate>,
    /// Ports of its node that lead to it, in order.
    pub host_ports: Box<[HostPort]>,
}

/// Addresses that a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StaticRequest {
    /// Addresses; empty leaves the choice to us.
    pub addresses: Box<[IpAddr]>,
    /// A MAC, if it wants one.
    pub mac: Option<Mac>,
}

/// A bandwidth in kilobits per second, as the database has room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u32);

impl Wishes {
    /// Nothing at all is kept as nothing.
    pub(super) fn kept(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl Rate {
    /// Reads a bandwidth in bits per second.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let bits = quantity::parse(text).filter(|bits| BITS.contains(bits));
        let bits = bits.ok_or_else(|| {
            format!("{} is no bandwidth in bits per second from 1k to 1P, such as 10M or 1G", shortened(text))
        })?;
        // What is more than the database has room for, four terabits, is more than there is.
        Ok(Self(u32::try_from(bits / 1000).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_kilobits() {
        for (text, rate) in [("10M", 10_000), ("1k", 1), ("1.5G", 1_500_000), ("1P", u32::MAX)] {
            assert_eq!(Rate::read(text), Ok(Rate(rate)), "{text}");
        }
        for text in ["0", "999", "2P", "-1M", "fast", ""] {
            let why = Rate::read(text).unwrap_err();
            assert!(why.contains("from 1k to 1P"), "{why}");
        }
    }
}
