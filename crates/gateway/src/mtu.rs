//! Whether pods' packets, with the tunnel's overhead, fit the interface.

use netmodel::Family;

/// Overhead of Geneve with OVN's option, without the outer IP header: Ethernet, UDP, Geneve, one option.
const TUNNEL: u32 = 14 + 8 + 8 + 8;
/// Outer IP header of IPv4 and of IPv6.
const OUTER: [u32; 2] = [20, 40];
/// Minimum of IPv6.
const MIN_IPV6_MTU: u32 = 1280;

/// Why an MTU of pods cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MtuError {
    /// Tunnelled packets would not fit.
    #[error(
        "pod MTU {pods} is too large: {device} has MTU {device_mtu}, and tunnels need {overhead} bytes; use an MTU of at most \
         {largest}, or raise that of {device} to {needed}"
    )]
    TooLarge {
        /// As configured.
        pods: u32,
        /// Interface that carries the tunnels.
        device: String,
        /// Bytes of the largest packet that the device takes; tunnels need some of them.
        device_mtu: u32,
        /// Bytes that the tunnel adds.
        overhead: u32,
        /// Largest possible MTU of pods.
        largest: u32,
        /// Smallest sufficient MTU of the interface.
        needed: u32,
    },
    /// Below the minimum of IPv6.
    #[error("pod MTU {0} is too small: IPv6 needs at least 1280")]
    TooSmall(u32),
}

/// Checks an MTU of pods against the interface that carries the tunnels, in bytes.
pub fn check_mtu(
    pods: u32,
    pod_families: &[Family],
    device: &str,
    device_mtu: u32,
    outer: Family,
) -> Result<(), MtuError> {
    if pod_families.contains(&Family::V6) && pods < MIN_IPV6_MTU {
        return Err(MtuError::TooSmall(pods));
    }
    let overhead = TUNNEL + OUTER[outer.index()];
    let needed = pods.saturating_add(overhead);
    if needed <= device_mtu {
        return Ok(());
    }
    let largest = device_mtu.saturating_sub(overhead);
    Err(MtuError::TooLarge { pods, device: device.to_owned(), device_mtu, overhead, largest, needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mtu_names_one_that_fits() {
        assert_eq!(check_mtu(1442, &[Family::V4], "br-ex", 1500, Family::V4), Ok(()));
        assert_eq!(check_mtu(1422, &[Family::V4, Family::V6], "br-ex", 1500, Family::V6), Ok(()));
        let why = check_mtu(1443, &[Family::V4], "br-ex", 1500, Family::V4).unwrap_err().to_string();
        assert!(why.contains("at most 1442") && why.contains("to 1501"), "{why}");
        let why = check_mtu(1400, &[Family::V4], "br-ex", 1280, Family::V4).unwrap_err().to_string();
        assert!(why.contains("at most 1222") && why.contains("58"), "{why}");
        assert_eq!(
            check_mtu(1222, &[Family::V4, Family::V6], "br-ex", 1280, Family::V4),
            Err(MtuError::TooSmall(1222))
        );
        assert_eq!(check_mtu(1222, &[Family::V4], "br-ex", 1280, Family::V4), Ok(()));
    }
}
