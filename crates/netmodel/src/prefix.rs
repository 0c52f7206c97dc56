//! `Prefix`: a network, v4 or v6, and the arithmetic of cutting it up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AddressError, Family, InterfaceAddress};

/// A network: an address whose host bits are all zero, and the length of its prefix.
///
/// Prefixes order by family, then network address, then length, so a network sorts right before its subnets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    network: IpAddr,
    length: u8,
}

impl Prefix {
    /// The network `network/length`; refuses an address with host bits set, and names the network that was meant.
    pub fn new(network: IpAddr, length: u8) -> Result<Self, AddressError> {
        let prefix = Self::containing(network, length)?;
        if prefix.network == network {
            Ok(prefix)
        } else {
            Err(AddressError::HostBits { address: network, length, meant: prefix })
        }
    }

    /// The network of this length that `address` is in.
    pub fn containing(address: IpAddr, length: u8) -> Result<Self, AddressError> {
        let longest = width(address);
        if length > longest {
            return Err(AddressError::BadLength { text: format!("{address}/{length}"), longest });
        }
        let network = to_address(address, to_bits(address) & !host_mask(longest, length));
        Ok(Self { network, length })
    }

    /// `0.0.0.0/0` or `::/0`.
    pub(crate) fn default_route(family: Family) -> Self {
        Self { network: family.unspecified(), length: 0 }
    }

    /// The network address: the first of the prefix.
    pub fn network(self) -> IpAddr {
        self.network
    }

    /// The last address of the prefix (the broadcast address of an IPv4 network).
    pub fn last(self) -> IpAddr {
        to_address(self.network, to_bits(self.network) | self.host_mask())
    }

    /// How many leading bits are fixed.
    pub fn length(self) -> u8 {
        self.length
    }

    /// IPv4 or IPv6.
    pub fn family(self) -> Family {
        Family::of(self.network)
    }

    /// Is this an IPv6 network?
    pub fn is_ipv6(self) -> bool {
        self.network.is_ipv6()
    }

    /// How many addresses there are, the network address included. `::/0` has one more than a `u128` can say and
    /// answers `u128::MAX`.
    pub fn size(self) -> u128 {
        self.host_mask().saturating_add(1)
    }

    /// Is `address` of this family and in this network?
    pub fn contains(self, address: IpAddr) -> bool {
        self.family().matches(address) && to_bits(address) & !self.host_mask() == to_bits(self.network)
    }

    /// Is every address of `other` in this network? A network contains itself.
    pub fn contains_prefix(self, other: Prefix) -> bool {
        self.length <= other.length && self.contains(other.network)
    }

    /// Do the two share an address? Of two prefixes that do, one contains the other.
    pub fn overlaps(self, other: Prefix) -> bool {
        self.contains_prefix(other) || other.contains_prefix(self)
    }

    /// The address `n` places after the network address; `None` outside the network. In a node's subnet `nth(1)` is
    /// the gateway, `nth(2)` the management port, and pods start at `nth(3)`.
    pub fn nth(self, n: u128) -> Option<IpAddr> {
        (n <= self.host_mask()).then(|| to_address(self.network, to_bits(self.network) | n))
    }

    /// How many places `address` is after the network address, the inverse of [`nth`](Self::nth); `None` outside the
    /// network.
    pub fn offset(self, address: IpAddr) -> Option<u128> {
        self.contains(address).then(|| to_bits(address) & self.host_mask())
    }

    /// [`nth`](Self::nth) as it is written on an interface: with the length of this network.
    pub fn nth_interface(self, n: u128) -> Option<InterfaceAddress> {
        InterfaceAddress::new(self.nth(n)?, self.length).ok()
    }

    /// All subnets of the given length, in order: disjoint, and together the whole network. There are none of a
    /// length that is shorter than this network's or longer than its family allows.
    pub fn subnets(self, length: u8) -> Subnets {
        let longest = width(self.network);
        let next = (self.length <= length && length <= longest).then(|| to_bits(self.network));
        Subnets { parent: self, length, next }
    }

    fn host_mask(self) -> u128 {
        host_mask(width(self.network), self.length)
    }
}

/// The subnets of a [`Prefix`], in order: see [`Prefix::subnets`].
#[derive(Debug, Clone)]
pub struct Subnets {
    parent: Prefix,
    length: u8,
    /// First address of the subnet that comes next, as a number.
    next: Option<u128>,
}

impl Iterator for Subnets {
    type Item = Prefix;

    fn next(&mut self) -> Option<Prefix> {
        let first = self.next?;
        let subnet = Prefix { network: to_address(self.parent.network, first), length: self.length };
        let last = to_bits(subnet.last());
        // The last subnet ends where its parent does; comparing there, before the addition, keeps `::/0` from
        // overflowing.
        self.next = if last == to_bits(self.parent.last()) { None } else { last.checked_add(1) };
        Some(subnet)
    }

    /// Jumps, so that the subnet of node 60,000 costs as little as the first one.
    fn nth(&mut self, n: usize) -> Option<Prefix> {
        let step = host_mask(width(self.parent.network), self.length).checked_add(1);
        let jump = match n {
            0 => Some(0),
            _ => step.and_then(|step| step.checked_mul(u128::try_from(n).ok()?)),
        };
        let target = self.next.and_then(|first| first.checked_add(jump?));
        self.next = target.filter(|&first| first <= to_bits(self.parent.last()));
        self.next()
    }
}

impl std::iter::FusedIterator for Subnets {}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

impl FromStr for Prefix {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (network, length) = split(text)?;
        Self::new(network, length)
    }
}

impl TryFrom<String> for Prefix {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

/// Splits `address/length`; the length is known to fit the family.
pub(crate) fn split(text: &str) -> Result<(IpAddr, u8), AddressError> {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let address: IpAddr = address.parse().map_err(|_| AddressError::NotAnAddress { text: text.to_owned() })?;
    let longest = width(address);
    let Some(length) = length else {
        return Err(AddressError::NoLength { text: text.to_owned(), example: format!("{address}/{longest}") });
    };
    // `u8::from_str` would take "+24" and "024" too; one network has one text.
    let canonical = length.parse::<u8>().ok().filter(|number| number.to_string() == length && *number <= longest);
    match canonical {
        Some(length) => Ok((address, length)),
        None => Err(AddressError::BadLength { text: text.to_owned(), longest }),
    }
}

/// Bits of an address of this family.
fn width(address: IpAddr) -> u8 {
    Family::of(address).bits()
}

/// Ones where a network of this length has host bits.
fn host_mask(width: u8, length: u8) -> u128 {
    match width.saturating_sub(length) {
        0 => 0,
        host_bits => u128::MAX >> (128 - u32::from(host_bits)),
    }
}

fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address with these bits, in the family of `like`.
fn to_address(like: IpAddr, bits: u128) -> IpAddr {
    match like {
        // Bits that came from an IPv4 address never leave the low 32: masks and bounds are of that family.
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    fn refusal(text: &str) -> String {
        text.parse::<Prefix>().expect_err("not a prefix").to_string()
    }

    #[test]
    fn a_bad_text_is_refused_with_its_remedy() {
        assert_eq!(
            refusal("10.0.0.7/24"),
            "10.0.0.7/24 is an address in a network, not a network: did you mean 10.0.0.0/24?"
        );
        assert_eq!(refusal("10.0.0.0"), r#""10.0.0.0" has no prefix length: add one, as in 10.0.0.0/32"#);
        assert_eq!(
            refusal("10.0.0/24"),
            r#""10.0.0/24" does not start with an IP address: write it like 10.128.0.0/14 or fd01::/48"#
        );
        for length in ["33", "-1", "+24", "024", "", "256", "24/8", " 24"] {
            let message = refusal(&format!("10.0.0.0/{length}"));
            assert!(message.contains("from 0 to 32"), "{length:?}: {message}");
        }
        assert!(refusal("fd01::/129").contains("from 0 to 128"));
        assert!(!refusal("10.0.0.0\n/24").contains('\n'));
    }

    #[test]
    fn the_cluster_network_is_cut_into_node_subnets() {
        let cluster = prefix("10.128.0.0/14");
        let nodes: Vec<Prefix> = cluster.subnets(23).collect();
        assert_eq!(nodes.len(), 512);
        assert_eq!(nodes[1], prefix("10.128.2.0/23"));
        assert_eq!(nodes[511], prefix("10.131.254.0/23"));
        assert_eq!(nodes[0].nth(3), Some("10.128.0.3".parse().expect("an address")));
        assert_eq!(nodes[0].nth(511), Some(nodes[0].last()));
        assert_eq!(nodes[0].nth(512), None);
        assert_eq!(nodes[1].nth_interface(5).map(|interface| interface.to_string()), Some("10.128.2.5/23".to_owned()));
    }

    #[test]
    fn the_ends_of_the_address_space_do_not_overflow() {
        let everything = prefix("::/0");
        assert_eq!(everything.size(), u128::MAX);
        assert_eq!(everything.subnets(0).collect::<Vec<_>>(), [everything]);
        assert_eq!(everything.subnets(1).count(), 2);
        assert_eq!(everything.nth(u128::MAX), Some(everything.last()));
        assert_eq!(everything.subnets(0).nth(1), None);
        assert_eq!(everything.subnets(128).nth(usize::MAX).map(Prefix::length), Some(128));
        assert_eq!(prefix("0.0.0.0/0").size(), 1 << 32);
        assert_eq!(prefix("255.255.255.255/32").nth(1), None);
        assert_eq!(prefix("255.255.255.254/31").subnets(32).count(), 2);
    }

    #[test]
    fn lengths_that_do_not_fit_have_no_subnets() {
        assert_eq!(prefix("10.0.0.0/24").subnets(23).next(), None);
        assert_eq!(prefix("10.0.0.0/24").subnets(33).next(), None);
    }

    #[test]
    fn families_never_mix() {
        assert!(!prefix("::/0").contains("10.0.0.1".parse().expect("an address")));
        assert!(!prefix("0.0.0.0/0").overlaps(prefix("::/0")));
    }

    #[test]
    fn serde_speaks_text() {
        let json = serde_json::to_string(&prefix("fd01::/48")).expect("serializes");
        assert_eq!(json, r#""fd01::/48""#);
        assert_eq!(serde_json::from_str::<Prefix>(&json).expect("deserializes"), prefix("fd01::/48"));
        let error = serde_json::from_str::<Prefix>(r#""10.0.0.1/8""#).expect_err("host bits");
        assert!(error.to_string().contains("did you mean 10.0.0.0/8?"), "{error}");
    }
}
