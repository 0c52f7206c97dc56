//! Whether pods' packets fit through the tunnel and the interface below it.

/// What Geneve with OVN's options adds to a pod's packet, without the outer addresses: Ethernet, UDP, Geneve, one option.
const TUNNEL: u32 = 14 + 8 + 8 + 8;
/// The outer header.
const OUTER: [u32; 2] = [20, 40];
/// What IPv6 asks of every link.
const SMALLEST_V6: u32 = 1280;

/// An MTU that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MtuError {
    /// Tunnelled packets would not fit.
    #[error(
        "the pods' MTU {pods} does not fit: {device} carries {carries} bytes, and tunnels take {overhead} of them: use an MTU of at \
         most {most}, or raise that of {device} to {needed}"
    )]
    TooLarge {
        /// The pods' MTU.
        pods: u32,
        /// The interface below.
        device: String,
        /// Its MTU.
        carries: u32,
        /// What tunnels take.
        overhead: u32,
        /// The largest MTU that pods can have.
        most: u32,
        /// The smallest MTU that the interface has to have.
        needed: u32,
    },
    /// IPv6 does not work below 1280.
    #[error("the pods' MTU {0} is too small: IPv6 needs at least 1280")]
    TooSmall(u32),
}

/// Refuses an MTU of pods that cannot work over an interface.
pub fn check_mtu(
    pods: u32,
    pods_have_ipv6: bool,
    device: &str,
    carries: u32,
    outer_is_ipv6: bool,
) -> Result<(), MtuError> {
    if pods_have_ipv6 && pods < SMALLEST_V6 {
        return Err(MtuError::TooSmall(pods));
    }
    let overhead = TUNNEL + OUTER[usize::from(outer_is_ipv6)];
    let needed = pods.saturating_add(overhead);
    if needed <= carries {
        return Ok(());
    }
    let most = carries.saturating_sub(overhead);
    Err(MtuError::TooLarge { pods, device: device.to_owned(), carries, overhead, most, needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_mtu_is_refused_with_the_right_number() {
        assert_eq!(check_mtu(1442, false, "br-ex", 1500, false), Ok(()));
        assert_eq!(check_mtu(1422, true, "br-ex", 1500, true), Ok(()));
        let why = check_mtu(1443, false, "br-ex", 1500, false).unwrap_err().to_string();
        assert!(why.contains("at most 1442") && why.contains("to 1501"), "{why}");
        let why = check_mtu(1400, false, "br-ex", 1280, false).unwrap_err().to_string();
        assert!(why.contains("at most 1222") && why.contains("58"), "{why}");
        assert_eq!(check_mtu(1222, true, "br-ex", 1280, false), Err(MtuError::TooSmall(1222)));
        assert_eq!(check_mtu(1222, false, "br-ex", 1280, false), Ok(()));
    }
}
