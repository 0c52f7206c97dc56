//! What the administrator says about the whole network, checked once.

use std::net::IpAddr;

use netmodel::{ClusterCidr, OverlapError, Prefix, check_disjoint};
use ovn_schema::Features;

/// What the administrator says about the whole network.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// Where pods' addresses come from, with the length of a node's share.
    pub cluster: Vec<ClusterCidr>,
    /// Where Services' addresses come from.
    pub services: Vec<Prefix>,
    /// What the routers talk to each other with; one of each family.
    pub join: Vec<Prefix>,
    /// Addresses that stand for the host and for hairpins; one of each family.
    pub masquerade: Vec<Prefix>,
    /// Whether pods may use multicast where their namespace allows it.
    pub multicast: bool,
    /// One translation for each pod instead of one for the cluster's addresses.
    pub snat_per_pod: bool,
    /// Packets that leave a node's switch are not larger than this.
    pub gateway_mtu: u32,
    /// Where the databases are reached: no Service may have these addresses.
    pub databases: Vec<IpAddr>,
    /// What the northbound server can do.
    pub features: Features,
}

/// Settings that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Nothing to take addresses from.
    #[error("cluster-subnets is empty: pods need addresses, as in 10.128.0.0/14/23")]
    NoClusterSubnets,
    /// Two of the networks overlap.
    #[error(transparent)]
    Overlap(#[from] OverlapError),
    /// A family of the cluster lacks one of the helper networks.
    #[error("{setting} has no {family} network, but cluster-subnets has one: give it one")]
    NoNetwork {
        /// The setting.
        setting: &'static str,
        /// The family.
        family: &'static str,
    },
    /// Networks of one family with shares of different lengths.
    #[error(
        "cluster-subnets: {one} and {two} give nodes shares of different lengths: routes by source of the longer ones would \
         hide the nodes of the shorter ones; use one length for each address family"
    )]
    MixedShares {
        /// One network.
        one: ClusterCidr,
        /// Another.
        two: ClusterCidr,
    },
    /// A helper network is too small.
    #[error("{setting} {prefix} is too small: {needed} addresses are needed")]
    TooSmall {
        /// The setting.
        setting: &'static str,
        /// Its value.
        prefix: Prefix,
        /// How many are needed.
        needed: u128,
    },
}

/// Addresses of the masquerade network, by what they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    /// The host itself, for what its own gateway router sends it.
    Host,
    /// The host that asks for endpoints of its own node.
    HostLocal,
    /// The next hop that is never asked for.
    NextHop,
    /// A pod that reaches itself through a Service.
    Hairpin,
    /// Nobody: every bridge drops what is sent there. It stands for the endpoints of a node that has none.
    Nowhere,
}

/// What the administrator calls the helper networks of each family.
const JOIN: [&str; 2] = ["v4-join-subnet", "v6-join-subnet"];
const MASQUERADE: [&str; 2] = ["v4-masquerade-subnet", "v6-masquerade-subnet"];

/// The clusters' router has the first join address; numbers of nodes begin behind it.
pub const FIRST_NODE_ID: u32 = 2;

impl ClusterSettings {
    /// What is used where nothing is said, for these pod networks.
    pub fn new(cluster: Vec<ClusterCidr>, services: Vec<Prefix>) -> Self {
        Self {
            cluster,
            services,
            join: ["100.64.0.0/16", "fd98::/64"].iter().filter_map(|text| text.parse().ok()).collect(),
            masquerade: ["169.254.169.0/29", "fd69::/125"].iter().filter_map(|text| text.parse().ok()).collect(),
            multicast: false,
            snat_per_pod: false,
            gateway_mtu: 1400,
            databases: Vec::new(),
            features: Features::default(),
        }
    }

    /// Refuses what cannot work, by the names that the administrator knows.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.cluster.is_empty() {
            return Err(SettingsError::NoClusterSubnets);
        }
        let mut named: Vec<(&str, Prefix)> = self.cluster.iter().map(|cidr| ("cluster-subnets", cidr.cidr)).collect();
        named.extend(self.services.iter().map(|prefix| ("service-cidrs", *prefix)));
        named.extend(self.join.iter().map(|prefix| (JOIN[usize::from(prefix.is_ipv6())], *prefix)));
        named.extend(self.masquerade.iter().map(|prefix| (MASQUERADE[usize::from(prefix.is_ipv6())], *prefix)));
        check_disjoint(&named)?;
        for (place, one) in self.cluster.iter().enumerate() {
            let mixed =
                |two: &&ClusterCidr| two.cidr.is_ipv6() == one.cidr.is_ipv6() && two.node_length != one.node_length;
            if let Some(two) = self.cluster[place + 1..].iter().find(mixed) {
                return Err(SettingsError::MixedShares { one: *one, two: *two });
            }
        }
        for (v6, family) in [(false, "IPv4"), (true, "IPv6")] {
            if !self.has_family(v6) {
                continue;
            }
            let place = usize::from(v6);
            for (setting, networks, needed) in [(JOIN[place], &self.join, 4), (MASQUERADE[place], &self.masquerade, 8)]
            {
                let network = networks.iter().find(|network| network.is_ipv6() == v6);
                let prefix = *network.ok_or(SettingsError::NoNetwork { setting, family })?;
                if prefix.size() < needed {
                    return Err(SettingsError::TooSmall { setting, prefix, needed });
                }
            }
        }
        Ok(())
    }

    /// Whether pods have addresses of a family.
    pub fn has_family(&self, v6: bool) -> bool {
        self.cluster.iter().any(|cidr| cidr.cidr.is_ipv6() == v6)
    }

    /// The families that pods have, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = bool> + '_ {
        [false, true].into_iter().filter(|v6| self.has_family(*v6))
    }

    /// The pod networks of a family.
    pub fn cluster_of(&self, v6: bool) -> impl Iterator<Item = Prefix> + '_ {
        self.cluster.iter().map(|cidr| cidr.cidr).filter(move |cidr| cidr.is_ipv6() == v6)
    }

    /// The join network of a family.
    pub fn join_of(&self, v6: bool) -> Option<Prefix> {
        self.join.iter().copied().find(|prefix| prefix.is_ipv6() == v6)
    }

    /// The join address of the clusters' router.
    pub fn router_join_address(&self, v6: bool) -> Option<IpAddr> {
        self.join_of(v6)?.nth(1)
    }

    /// The join address of a node's gateway router.
    pub fn join_address(&self, node_id: u32, v6: bool) -> Option<IpAddr> {
        self.join_of(v6)?.nth(u128::from(node_id))
    }

    /// The largest number that a node can have: each needs a join address of each family.
    pub fn last_node_id(&self) -> u32 {
        let sizes = self.families().filter_map(|v6| self.join_of(v6)).map(|join| join.size().saturating_sub(2));
        u32::try_from(sizes.min().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// The masquerade network of a family.
    pub fn masquerade_of(&self, v6: bool) -> Option<Prefix> {
        self.masquerade.iter().copied().find(|prefix| prefix.is_ipv6() == v6)
    }

    /// An address of the masquerade network.
    pub fn masquerade_address(&self, what: Masquerade, v6: bool) -> Option<IpAddr> {
        let place = match what {
            Masquerade::Host => 2,
            Masquerade::HostLocal => 3,
            Masquerade::NextHop => 4,
            Masquerade::Hairpin => 5,
            Masquerade::Nowhere => 6,
        };
        self.masquerade_of(v6)?.nth(place)
    }

    /// What a pod reaches through its node's router, rather than by a default route that another network may have.
    pub fn pod_routes(&self, v6: bool) -> impl Iterator<Item = Prefix> + '_ {
        let services = self.services.iter().copied().filter(move |prefix| prefix.is_ipv6() == v6);
        let hairpin = self.masquerade_address(Masquerade::Hairpin, v6);
        let hairpin = hairpin.and_then(|address| Prefix::containing(address, if v6 { 128 } else { 32 }).ok());
        self.cluster_of(v6).chain(services).chain(self.join_of(v6)).chain(hairpin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(cluster: &[&str], services: &[&str]) -> ClusterSettings {
        ClusterSettings::new(
            cluster.iter().map(|text| text.parse().unwrap()).collect(),
            services.iter().map(|text| text.parse().unwrap()).collect(),
        )
    }

    #[test]
    fn what_cannot_work_is_named() {
        assert_eq!(settings(&["10.128.0.0/14/23", "fd01::/48/64"], &["172.30.0.0/16"]).check(), Ok(()));
        assert_eq!(settings(&[], &[]).check(), Err(SettingsError::NoClusterSubnets));
        let mixed = settings(&["10.128.0.0/14/23", "10.132.0.0/14/24"], &[]).check().unwrap_err().to_string();
        assert!(mixed.contains("10.128.0.0/14/23") && mixed.contains("10.132.0.0/14/24"), "{mixed}");
        let overlap = settings(&["10.128.0.0/14/23"], &["10.130.0.0/16"]).check().unwrap_err().to_string();
        assert!(overlap.contains("cluster-subnets") && overlap.contains("service-cidrs"), "{overlap}");
        let mut no_join = settings(&["fd01::/48/64"], &[]);
        no_join.join.retain(|prefix| !prefix.is_ipv6());
        assert!(no_join.check().unwrap_err().to_string().contains("v6-join-subnet has no IPv6 network"));
    }

    #[test]
    fn pods_are_told_the_ways_of_their_family() {
        let settings = settings(&["10.128.0.0/14/23", "fd01::/48/64"], &["172.30.0.0/16", "fd02::/112"]);
        let ways: Vec<String> = settings.pod_routes(false).map(|way| way.to_string()).collect();
        assert_eq!(ways, ["10.128.0.0/14", "172.30.0.0/16", "100.64.0.0/16", "169.254.169.5/32"]);
        assert_eq!(settings.pod_routes(true).count(), 4);
        assert_eq!(settings.last_node_id(), 65534);
    }
}
