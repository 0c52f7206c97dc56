//! `Family`: IPv4 or IPv6, where a `bool` would not say which.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AddressError, Prefix};

/// The IP version of an address, a network or a row. IPv4 orders before IPv6, as in a dual-stack list.
///
/// Displayed as `IPv4` and `IPv6`, the text that Kubernetes uses in `ipFamilies`; serde writes the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4; 32 bits.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6; 128 bits.
    #[serde(rename = "IPv6")]
    V6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) is IPv6.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bits of an address, which is also the longest prefix length.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// Position in [`Family::BOTH`], for arrays with one element per family.
    pub fn index(self) -> usize {
        match self {
            Self::V4 => 0,
            Self::V6 => 1,
        }
    }

    /// True for [`Family::V6`].
    pub fn is_ipv6(self) -> bool {
        self == Self::V6
    }

    /// True for [`Family::V4`].
    pub fn is_ipv4(self) -> bool {
        self == Self::V4
    }

    /// True if the address is of this family.
    pub fn matches(self, address: IpAddr) -> bool {
        Self::of(address) == self
    }

    /// `v4` or `v6`: the short form in row identities, file names and CLI arguments.
    pub fn short(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// The version digit: `4` or `6`, as in `ip4.src` and `ip6.src`.
    pub fn version(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// `0.0.0.0` or `::`.
    pub fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// `0.0.0.0/0` or `::/0`: the destination of a default route.
    pub fn everything(self) -> Prefix {
        Prefix::default_route(self)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl From<IpAddr> for Family {
    fn from(address: IpAddr) -> Self {
        Self::of(address)
    }
}

impl FromStr for Family {
    type Err = AddressError;

    /// Parses the text of Kubernetes: `IPv4`, `IPv6`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text {
            "IPv4" => Ok(Self::V4),
            "IPv6" => Ok(Self::V6),
            _ => Err(AddressError::NotAFamily { text: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_family_of_its_notation() {
        for (text, family) in [("10.0.0.1", Family::V4), ("fd00::1", Family::V6), ("::ffff:10.0.0.1", Family::V6)] {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(Family::of(address), family, "{text}");
            assert_eq!(Family::from(address), family, "{text}");
            assert_eq!(Family::BOTH.map(|each| each.matches(address)), [family.is_ipv4(), family.is_ipv6()], "{text}");
        }
    }

    #[test]
    fn each_family_has_its_constants() {
        assert_eq!(Family::BOTH.map(Family::bits), [32, 128]);
        assert_eq!(Family::BOTH.map(Family::index), [0, 1]);
        assert_eq!(Family::BOTH.map(Family::version), [4, 6]);
        assert_eq!(Family::BOTH.map(Family::short), ["v4", "v6"]);
        assert_eq!(Family::BOTH.map(|family| family.unspecified().to_string()), ["0.0.0.0", "::"]);
        assert_eq!(Family::BOTH.map(|family| family.everything().to_string()), ["0.0.0.0/0", "::/0"]);
        assert!(Family::V4 < Family::V6);
    }

    #[test]
    fn text_and_serde_use_the_words_of_kubernetes() {
        for family in Family::BOTH {
            let text = family.to_string();
            assert_eq!(text.parse(), Ok(family));
            assert_eq!(serde_json::to_string(&family).expect("serializes"), format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Family>(&format!("{text:?}")).expect("deserializes"), family);
        }
        assert_eq!(
            "v4".parse::<Family>().map_err(|error| error.to_string()),
            Err(r#"unknown IP family "v4": expected IPv4 or IPv6"#.to_owned())
        );
    }

    #[test]
    fn a_prefix_has_the_family_of_its_network() {
        for family in Family::BOTH {
            assert_eq!(family.everything().family(), family);
        }
    }
}
