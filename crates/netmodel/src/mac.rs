//! `Mac`: an Ethernet address, and the rule by which an IP address becomes one.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::MacError;

/// The first two bytes of every MAC that is computed from an IP address. Locally administered, so it can meet no
/// hardware's, and the one that operators know from existing clusters.
const COMPUTED: [u8; 2] = [0x0a, 0x58];

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

impl Mac {
    /// The address with these bytes.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// The bytes, in the order in which they are written.
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// Whether an interface can have it: neither multicast nor empty.
    pub const fn is_usable(self) -> bool {
        self.0[0] & 1 == 0 && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// The MAC of an interface with this IP address: `0a:58` and the four bytes of an IPv4 address, or the first four
    /// bytes of the SHA-256 of an IPv6 address's text.
    ///
    /// An IPv4 address in IPv6 clothes (`::ffff:10.0.0.1`) is taken for the IPv4 address that it is, as other
    /// implementations of this rule do.
    pub fn for_address(address: IpAddr) -> Self {
        let [a, b, c, d] = match address.to_canonical() {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(address) => {
                let digest = Sha256::digest(address.to_string().as_bytes());
                [digest[0], digest[1], digest[2], digest[3]]
            }
        };
        Self([COMPUTED[0], COMPUTED[1], a, b, c, d])
    }

    /// Whether it looks like one that goes with an address.
    pub fn is_computed(self) -> bool {
        self.0.starts_with(&COMPUTED)
    }

    /// The MAC of an interface with these addresses: that of its first IPv4 address, else of its first address;
    /// `None` without any.
    pub fn for_addresses(addresses: &[IpAddr]) -> Option<Self> {
        let v4 = addresses.iter().find(|address| address.to_canonical().is_ipv4());
        v4.or(addresses.first()).copied().map(Self::for_address)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let refusal = || MacError { text: text.to_owned() };
        let mut pairs = text.split(':');
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let pair = pairs.next().filter(|pair| pair.len() == 2).ok_or_else(refusal)?;
            // `from_str_radix` alone would take "+5" for a pair.
            if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(refusal());
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| refusal())?;
        }
        if pairs.next().is_some() { Err(refusal()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_ipv4_address_is_readable_in_its_mac() {
        assert_eq!(Mac::for_address(address("10.130.0.5")).to_string(), "0a:58:0a:82:00:05");
        assert_eq!(Mac::for_address(address("::ffff:10.130.0.5")).to_string(), "0a:58:0a:82:00:05");
    }

    #[test]
    fn an_ipv6_address_is_hashed_as_text() {
        // printf '%s' fd01:0:0:2::5 | sha256sum
        assert_eq!(Mac::for_address(address("fd01:0:0:2::5")).to_string(), "0a:58:8d:29:59:1a");
        assert_eq!(Mac::for_address(address("fd01:0:0:2:0:0:0:5")), Mac::for_address(address("fd01:0:0:2::5")));
    }

    #[test]
    fn ipv4_goes_before_ipv6_wherever_it_stands() {
        let (v4, v6) = (address("10.130.0.5"), address("fd01::5"));
        assert_eq!(Mac::for_addresses(&[v6, v4]), Some(Mac::for_address(v4)));
        assert_eq!(Mac::for_addresses(&[v6]), Some(Mac::for_address(v6)));
        assert_eq!(Mac::for_addresses(&[]), None);
    }

    #[test]
    fn a_bad_text_is_refused_with_an_example() {
        for text in ["", "0a:58", "0a:58:0a:82:00:05:06", "0a:58:0a:82:00:+5", "0a-58-0a-82-00-05", "0a:58:0a:82:00:é"]
        {
            let message = text.parse::<Mac>().expect_err("not a MAC").to_string();
            assert!(message.starts_with(&format!("{text:?} is not a MAC address")), "{message}");
        }
        assert_eq!("0A:58:0a:82:00:05".parse::<Mac>().expect("a MAC").to_string(), "0a:58:0a:82:00:05");
    }
}
