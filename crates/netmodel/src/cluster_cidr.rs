//! `ClusterCidr`: a network from which nodes get their subnets, in the notation of operators.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AddressError, ClusterCidrError, Prefix};

/// A network of the cluster and the length of the subnet that each node gets of it, like `10.128.0.0/14/23`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterCidr {
    /// The whole network.
    pub cidr: Prefix,
    /// The length of a node's subnet.
    pub node_length: u8,
}

impl ClusterCidr {
    /// `cidr` with the default length of a node's subnet: 24, or 64 for IPv6. A network that
    /// is itself longer is one node's.
    pub fn with_default_length(cidr: Prefix) -> Self {
        let usual = if cidr.is_ipv6() { 64 } else { 24 };
        Self { cidr, node_length: usual.max(cidr.length()) }
    }

    /// Is the node length one that fits? A text is checked when it is read; a value made of its fields is checked by
    /// [`SubnetPool::new`](crate::SubnetPool::new).
    pub fn check(self) -> Result<(), ClusterCidrError> {
        let longest = longest(self.cidr);
        if self.node_length > longest {
            return Err(ClusterCidrError::NodeTooSmall { text: self.to_string(), longest });
        }
        if self.node_length < self.cidr.length() {
            return Err(ClusterCidrError::NodeTooLarge {
                text: self.to_string(),
                shortest: self.cidr.length(),
                longest,
            });
        }
        Ok(())
    }
}

/// The longest subnet that a node can do with: one with room for its gateway, its management port and a pod. An IPv4
/// subnet also loses its broadcast address.
fn longest(cidr: Prefix) -> u8 {
    if cidr.is_ipv6() { 126 } else { 29 }
}

impl fmt::Display for ClusterCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cidr, self.node_length)
    }
}

impl FromStr for ClusterCidr {
    type Err = ClusterCidrError;

    fn from_str(text: &str) -> Result<Self, ClusterCidrError> {
        let second_slash = text.match_indices('/').nth(1).map(|(at, _)| at);
        let (network, node_length) = match second_slash.and_then(|at| text.split_at_checked(at)) {
            Some((network, rest)) => (network, rest.strip_prefix('/')),
            None => (text, None),
        };
        let cidr: Prefix = network.parse().map_err(|error| match error {
            // The example of a lone address, `/32`, would be of no use here.
            AddressError::NoLength { text, .. } => ClusterCidrError::NoLength { text },
            error => ClusterCidrError::Network(error),
        })?;
        let cluster = match node_length {
            None => Self::with_default_length(cidr),
            Some(digits) => {
                // As for a prefix: "+24" and "024" are numbers to `u8::from_str`, but not what anybody writes.
                let number = digits.parse::<u8>().ok().filter(|number| number.to_string() == digits);
                let example = Self::with_default_length(cidr).to_string();
                let node_length =
                    number.ok_or_else(|| ClusterCidrError::BadNodeLength { text: text.to_owned(), example })?;
                Self { cidr, node_length }
            }
        };
        cluster.check()?;
        Ok(cluster)
    }
}

impl TryFrom<String> for ClusterCidr {
    type Error = ClusterCidrError;

    fn try_from(text: String) -> Result<Self, ClusterCidrError> {
        text.parse()
    }
}

impl From<ClusterCidr> for String {
    fn from(cluster: ClusterCidr) -> Self {
        cluster.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        text.parse::<ClusterCidr>().expect("a cluster network").to_string()
    }

    fn refusal(text: &str) -> String {
        text.parse::<ClusterCidr>().expect_err("not a cluster network").to_string()
    }

    #[test]
    fn the_node_length_may_be_left_out() {
        assert_eq!(written("10.128.0.0/14/23"), "10.128.0.0/14/23");
        assert_eq!(written("10.128.0.0/14"), "10.128.0.0/14/24");
        assert_eq!(written("10.128.0.0/26"), "10.128.0.0/26/26");
        assert_eq!(written("fd01::/48"), "fd01::/48/64");
        assert_eq!(written("fd01::/48/72"), "fd01::/48/72");
        assert_eq!(written("10.128.0.0/23/23"), "10.128.0.0/23/23");
    }

    #[test]
    fn a_bad_text_is_refused_with_its_remedy() {
        assert_eq!(
            refusal("10.128.0.0/14/12"),
            r#""10.128.0.0/14/12" gives a node more than the whole network: write a node length from 14 to 29"#
        );
        assert_eq!(
            refusal("10.128.0.0/14/30"),
            r#""10.128.0.0/14/30" leaves a node no address for pods: write a network and a node length of at most 29"#
        );
        assert!(refusal("fd01::/48/127").ends_with("at most 126"));
        assert!(refusal("10.0.0.0/30").ends_with("at most 29"));
        assert_eq!(
            refusal("10.128.0.0"),
            r#""10.128.0.0" has no prefix length: write it like 10.128.0.0/14/23 or fd01::/48/64"#
        );
        assert!(refusal("10.128.0.1/14/23").contains("did you mean 10.128.0.0/14?"));
        for digits in ["", "+23", "023", "300", "23/5", " 23", "x\n"] {
            let message = refusal(&format!("10.128.0.0/14/{digits}"));
            assert!(message.ends_with("after the second slash, as in 10.128.0.0/14/24"), "{message}");
            assert!(!message.contains('\n'));
        }
    }

    #[test]
    fn the_longest_subnet_of_a_node_has_room_for_a_pod_and_the_next_one_has_not() {
        for network in ["10.128.0.0", "fd01::"] {
            let pods = |length: u8| {
                let subnet: Prefix = format!("{network}/{length}").parse().expect("a network");
                crate::AddressPool::new(subnet).capacity()
            };
            let longest = longest(format!("{network}/24").parse().expect("a network"));
            assert!(pods(longest) > 0, "{network}/{longest}");
            assert_eq!(pods(longest + 1), 0, "{network}/{}", longest + 1);
        }
    }

    #[test]
    fn serde_speaks_text() {
        let cluster: ClusterCidr = serde_json::from_str(r#""10.128.0.0/14/23""#).expect("deserializes");
        assert_eq!(cluster.node_length, 23);
        assert_eq!(serde_json::to_string(&cluster).expect("serializes"), r#""10.128.0.0/14/23""#);
    }
}
