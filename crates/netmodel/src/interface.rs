//! `InterfaceAddress`: an address as it stands on an interface, together with the length of its network.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::prefix::split;
use crate::{AddressError, Prefix};

/// An address and the length of the network it is in, like `10.130.0.5/23`.
///
/// Unlike a [`Prefix`] it may have host bits set; [`network`](Self::network) clears them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceAddress {
    address: IpAddr,
    /// Kept whole rather than as a length, so that `network()` cannot fail.
    network: Prefix,
}

impl InterfaceAddress {
    /// `address` in its network of this length.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, AddressError> {
        Ok(Self { address, network: Prefix::containing(address, length)? })
    }

    /// Without the prefix length.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Prefix length of the network, in bits.
    pub fn length(self) -> u8 {
        self.network.length()
    }

    /// With the host bits cleared.
    pub fn network(self) -> Prefix {
        self.network
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length())
    }
}

impl FromStr for InterfaceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (address, length) = split(text)?;
        Self::new(address, length)
    }
}

impl TryFrom<String> for InterfaceAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<InterfaceAddress> for String {
    fn from(address: InterfaceAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_stay_in_the_address_and_leave_the_network() {
        let pod: InterfaceAddress = "10.130.1.5/23".parse().expect("an interface address");
        assert_eq!(pod.to_string(), "10.130.1.5/23");
        assert_eq!(pod.network().to_string(), "10.130.0.0/23");
        assert_eq!(pod.address().to_string(), "10.130.1.5");
    }

    #[test]
    fn a_length_is_required_and_checked() {
        let missing = "10.130.0.5".parse::<InterfaceAddress>().expect_err("no length");
        assert!(missing.to_string().contains("as in 10.130.0.5/32"), "{missing}");
        let long = InterfaceAddress::new("10.130.0.5".parse().expect("an address"), 64).expect_err("too long");
        assert!(long.to_string().contains("from 0 to 32"), "{long}");
    }
}
