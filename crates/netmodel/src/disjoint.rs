//! `check_disjoint`: the networks of a configuration must not share an address.

use thiserror::Error;

use crate::Prefix;

/// Two networks of a configuration share addresses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} {prefix} overlaps {other_name} {other}: give each a network of its own")]
pub struct OverlapError {
    /// The field that comes first.
    pub name: String,
    /// First of the two that overlap.
    pub prefix: Prefix,
    /// The field that comes later.
    pub other_name: String,
    /// Second of the two that overlap.
    pub other: Prefix,
}

/// Checks that no two of these networks overlap; each comes with the name of the field that it was read from. A field
/// with several networks comes several times.
pub fn check_disjoint(networks: &[(&str, Prefix)]) -> Result<(), OverlapError> {
    // Every pair: a configuration has a handful of networks, and the pair named first is the one written first.
    for (index, &(name, prefix)) in networks.iter().enumerate() {
        let mut later = networks.iter().skip(index + 1);
        if let Some(&(other_name, other)) = later.find(|(_, other)| prefix.overlaps(*other)) {
            return Err(OverlapError { name: name.to_owned(), prefix, other_name: other_name.to_owned(), other });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(networks: &[(&str, &str)]) -> Result<(), String> {
        let networks: Vec<(&str, Prefix)> =
            networks.iter().map(|(name, text)| (*name, text.parse().expect("a prefix"))).collect();
        check_disjoint(&networks).map_err(|error| error.to_string())
    }

    #[test]
    fn the_usual_networks_are_disjoint() {
        let networks = [
            ("cluster-subnets", "10.128.0.0/14"),
            ("cluster-subnets", "fd01::/48"),
            ("service-cidrs", "172.30.0.0/16"),
            ("service-cidrs", "fd02::/112"),
            ("join-subnet", "100.64.0.0/16"),
            ("masquerade-subnet", "169.254.0.0/17"),
        ];
        assert_eq!(check(&networks), Ok(()));
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn an_overlap_names_both_fields_and_both_networks() {
        let networks = [
            ("cluster-subnets", "10.128.0.0/14"),
            ("join-subnet", "100.64.0.0/16"),
            ("service-cidrs", "10.130.0.0/16"),
        ];
        assert_eq!(
            check(&networks),
            Err("cluster-subnets 10.128.0.0/14 overlaps service-cidrs 10.130.0.0/16: give each a network of its own"
                .to_owned())
        );
        assert!(check(&[("join-subnet", "fd98::/64"), ("join-subnet", "fd98::/64")]).is_err());
    }
}
