//! Optional requests of pods: static addresses, bandwidth limits, host ports. Apart from [`PodFacts`](super::PodFacts), so
//! that the many pods without any need no memory for them.

use std::net::IpAddr;

use netmodel::Mac;

use super::annotation::shortened;
use super::{Annotated, HostPort, quantity};

/// Limits what the pod receives.
pub(super) const INGRESS_BANDWIDTH: &str = "kubernetes.io/ingress-bandwidth";
/// Limits what the pod sends.
pub(super) const EGRESS_BANDWIDTH: &str = "kubernetes.io/egress-bandwidth";

/// The bandwidths that Kubernetes accepts, in bits per second: 1k to 1P.
const BITS: std::ops::RangeInclusive<u128> = 1000..=1_000_000_000_000_000;

/// Optional requests of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodOptions {
    /// Static addresses and MAC.
    pub request: Annotated<StaticRequest>,
    /// Limit of what it receives.
    pub ingress: Annotated<Rate>,
    /// Limit of what it sends.
    pub egress: Annotated<Rate>,
    /// Sorted, without duplicates.
    pub host_ports: Box<[HostPort]>,
}

/// Addresses that a pod requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StaticRequest {
    /// Empty: the controller chooses.
    pub addresses: Box<[IpAddr]>,
    /// None: derived from the address.
    pub mac: Option<Mac>,
}

/// A bandwidth in kilobits per second, the unit of OVN's QoS rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u32);

impl PodOptions {
    /// None if nothing is requested.
    pub(super) fn boxed_if_any(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl Rate {
    /// Parses a quantity of bits per second.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let bits = quantity::parse(text).filter(|bits| BITS.contains(bits));
        let bits = bits.ok_or_else(|| {
            format!("{} is not a bandwidth in bits per second from 1k to 1P, such as 10M or 1G", shortened(text))
        })?;
        // The column's maximum, 4 Tbit/s, is more than any interface has.
        Ok(Self(u32::try_from(bits / 1000).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_kilobits() {
        for (text, rate) in [("10M", 10_000), ("1k", 1), ("1.5G", 1_500_000), ("1P", u32::MAX)] {
            assert_eq!(Rate::read(text), Ok(Rate(rate)), "{text}");
        }
        for text in ["0", "999", "2P", "-1M", "fast", ""] {
            let why = Rate::read(text).unwrap_err();
            assert!(why.contains("from 1k to 1P"), "{why}");
        }
    }
}
