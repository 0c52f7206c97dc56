//! Settings of the whole cluster, and their validation.

use std::net::IpAddr;

use netmodel::{ClusterCidr, Family, Masquerade, OverlapError, Prefix, check_disjoint};
use ovn_schema::Features;

/// Settings that all controllers and node agents of a cluster must share.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// Pod networks, with the prefix length of node subnets (`cluster-subnets`).
    pub cluster: Vec<ClusterCidr>,
    /// Service networks (`service-cidrs`).
    pub services: Vec<Prefix>,
    /// Networks between the routers, one of each family.
    pub join: Vec<Prefix>,
    /// Networks of the addresses in [`Masquerade`], one of each family.
    pub masquerade: Vec<Prefix>,
    /// Whether namespaces may enable multicast.
    pub multicast: bool,
    /// One SNAT rule per pod instead of one per node.
    pub snat_per_pod: bool,
    /// MTU of the gateway routers' ports.
    pub gateway_mtu: u32,
    /// Addresses of OVN's databases, which no Service may have.
    pub databases: Vec<IpAddr>,
    /// Features of the northbound server's schema.
    pub features: Features,
}

/// Settings that exclude each other, or are missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No pod could get an address.
    #[error("cluster-subnets is empty: pods need addresses, as in 10.128.0.0/14/23")]
    NoClusterSubnets,
    /// Two networks overlap.
    #[error(transparent)]
    Overlap(#[from] OverlapError),
    /// Pods have a family for which there is no join or masquerade network.
    #[error("{setting} has no {family} network, but cluster-subnets has one: add one")]
    NoNetwork {
        /// Name of the setting.
        setting: &'static str,
        /// Address family of pods, without such a network.
        family: Family,
    },
    /// Networks of one family with node subnets of different lengths.
    #[error(
        "cluster-subnets: {one} and {two} have node subnets of different lengths: routes by source of the longer prefixes would \
         make the nodes with shorter ones unreachable; use one length for each address family"
    )]
    MixedLengths {
        /// First of the two, in the order of the setting.
        one: ClusterCidr,
        /// Another of the same family.
        two: ClusterCidr,
    },
    /// A join or masquerade network is too small.
    #[error("{setting} {prefix} is too small: {needed} addresses are needed")]
    TooSmall {
        /// Name of the setting.
        setting: &'static str,
        /// As it was configured.
        prefix: Prefix,
        /// Minimum number of addresses.
        needed: u128,
    },
}

/// Names of settings, by family.
const JOIN: [&str; 2] = ["v4-join-subnet", "v6-join-subnet"];
const MASQUERADE: [&str; 2] = ["v4-masquerade-subnet", "v6-masquerade-subnet"];

/// `ovn_cluster_router` has join address 1; node IDs start after it.
pub const FIRST_NODE_ID: u32 = 2;

impl ClusterSettings {
    /// The defaults for everything else.
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

    /// Validates the settings; errors use their names in the configuration.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.cluster.is_empty() {
            return Err(SettingsError::NoClusterSubnets);
        }
        let mut named: Vec<(&str, Prefix)> = self.cluster.iter().map(|cidr| ("cluster-subnets", cidr.cidr)).collect();
        named.extend(self.services.iter().map(|prefix| ("service-cidrs", *prefix)));
        named.extend(self.join.iter().map(|prefix| (JOIN[prefix.family().index()], *prefix)));
        named.extend(self.masquerade.iter().map(|prefix| (MASQUERADE[prefix.family().index()], *prefix)));
        check_disjoint(&named)?;
        for (index, one) in self.cluster.iter().enumerate() {
            let mixed =
                |two: &&ClusterCidr| two.cidr.family() == one.cidr.family() && two.node_length != one.node_length;
            if let Some(two) = self.cluster[index + 1..].iter().find(mixed) {
                return Err(SettingsError::MixedLengths { one: *one, two: *two });
            }
        }
        for family in Family::BOTH {
            if !self.has_family(family) {
                continue;
            }
            for (setting, networks, needed) in [
                (JOIN[family.index()], &self.join, 4),
                (MASQUERADE[family.index()], &self.masquerade, Masquerade::NETWORK_SIZE),
            ] {
                let network = networks.iter().find(|network| network.family() == family);
                let prefix = *network.ok_or(SettingsError::NoNetwork { setting, family })?;
                if prefix.size() < needed {
                    return Err(SettingsError::TooSmall { setting, prefix, needed });
                }
            }
        }
        Ok(())
    }

    /// Whether pods have addresses of a family.
    pub fn has_family(&self, family: Family) -> bool {
        self.cluster.iter().any(|cidr| cidr.cidr.family() == family)
    }

    /// The families of pods, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        Family::BOTH.into_iter().filter(|family| self.has_family(*family))
    }

    /// The pod networks of a family.
    pub fn cluster_of(&self, family: Family) -> impl Iterator<Item = Prefix> + '_ {
        self.cluster.iter().map(|cidr| cidr.cidr).filter(move |cidr| cidr.family() == family)
    }

    /// The join network of a family.
    pub fn join_of(&self, family: Family) -> Option<Prefix> {
        self.join.iter().copied().find(|prefix| prefix.family() == family)
    }

    /// First address of the join network.
    pub fn router_join_address(&self, family: Family) -> Option<IpAddr> {
        self.join_of(family)?.nth(1)
    }

    /// The join address of a node's gateway router.
    pub fn join_address(&self, node_id: u32, family: Family) -> Option<IpAddr> {
        self.join_of(family)?.nth(u128::from(node_id))
    }

    /// The largest node ID: each needs a join address of each family.
    pub fn last_node_id(&self) -> u32 {
        let sizes = self.families().filter_map(|family| self.join_of(family)).map(|join| join.size().saturating_sub(2));
        u32::try_from(sizes.min().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// The masquerade network of a family.
    pub fn masquerade_of(&self, family: Family) -> Option<Prefix> {
        self.masquerade.iter().copied().find(|prefix| prefix.family() == family)
    }

    /// The address of a role in the masquerade network.
    pub fn masquerade_address(&self, role: Masquerade, family: Family) -> Option<IpAddr> {
        role.address(self.masquerade_of(family)?)
    }

    /// Networks that pods reach through their node's router, even if another network has the default route.
    pub fn pod_routes(&self, family: Family) -> impl Iterator<Item = Prefix> + '_ {
        let services = self.services.iter().copied().filter(move |prefix| prefix.family() == family);
        let hairpin = self.masquerade_address(Masquerade::Hairpin, family);
        let hairpin = hairpin.and_then(|address| Prefix::containing(address, family.bits()).ok());
        self.cluster_of(family).chain(services).chain(self.join_of(family)).chain(hairpin)
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
    fn invalid_settings_are_named() {
        assert_eq!(settings(&["10.128.0.0/14/23", "fd01::/48/64"], &["172.30.0.0/16"]).check(), Ok(()));
        assert_eq!(settings(&[], &[]).check(), Err(SettingsError::NoClusterSubnets));
        let mixed = settings(&["10.128.0.0/14/23", "10.132.0.0/14/24"], &[]).check().unwrap_err().to_string();
        assert!(mixed.contains("10.128.0.0/14/23") && mixed.contains("10.132.0.0/14/24"), "{mixed}");
        let overlap = settings(&["10.128.0.0/14/23"], &["10.130.0.0/16"]).check().unwrap_err().to_string();
        assert!(overlap.contains("cluster-subnets") && overlap.contains("service-cidrs"), "{overlap}");
        let mut no_join = settings(&["fd01::/48/64"], &[]);
        no_join.join.retain(|prefix| prefix.family() == Family::V4);
        assert!(no_join.check().unwrap_err().to_string().contains("v6-join-subnet has no IPv6 network"));
    }

    #[test]
    fn pod_routes_are_of_one_family() {
        let settings = settings(&["10.128.0.0/14/23", "fd01::/48/64"], &["172.30.0.0/16", "fd02::/112"]);
        let routes: Vec<String> = settings.pod_routes(Family::V4).map(|route| route.to_string()).collect();
        assert_eq!(routes, ["10.128.0.0/14", "172.30.0.0/16", "100.64.0.0/16", "169.254.169.5/32"]);
        assert_eq!(settings.pod_routes(Family::V6).count(), 4);
        assert_eq!(settings.last_node_id(), 65534);
    }
}
