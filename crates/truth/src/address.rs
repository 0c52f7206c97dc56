//! Address families and CIDRs.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;

/// Address family; a copy of netmodel's, because this crate must not depend on the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// 32 bits.
    V4,
    /// 128 bits.
    V6,
}

impl Family {
    /// An IPv4-mapped IPv6 address is IPv6.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A CIDR, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Cidr {
    network: IpAddr,
    length: u32,
}

impl Cidr {
    /// Addresses of the other family are never contained.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        if Family::of(self.network) != Family::of(address) {
            return false;
        }
        let (network, width) = bits(self.network);
        let (address, _) = bits(address);
        (0..self.length).all(|bit| {
            let mask = 1_u128 << (width - 1 - bit);
            network & mask == address & mask
        })
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("invalid CIDR {text:?}");
        let (network, length) = text.split_once('/').ok_or_else(wrong)?;
        let network: IpAddr = network.parse().map_err(|_| wrong())?;
        let length: u32 = length.parse().map_err(|_| wrong())?;
        if length > bits(network).1 {
            return Err(wrong());
        }
        Ok(Self { network, length })
    }
}

/// The address as a number, and its width in bits.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cidr_contains_only_its_addresses() {
        for (cidr_text, address, inside) in [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
            ("10.1.2.0/23", "10.1.3.255", true),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "1.2.3.4", false),
            ("::/0", "fd00::1", true),
            ("fd00:1::/32", "fd00:1:ffff::", true),
            ("fd00:1::/32", "fd00:2::", false),
        ] {
            let cidr = Cidr::try_from(cidr_text.to_owned()).expect("a CIDR");
            assert_eq!(cidr.contains(address.parse().expect("an address")), inside, "{address} in {cidr_text}");
        }
    }

    #[test]
    fn an_invalid_cidr_is_rejected() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1"] {
            assert!(Cidr::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
