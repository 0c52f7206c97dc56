//! Features that not every supported version of the server has.

use std::collections::BTreeSet;
use std::fmt;

/// One line per feature: its name in messages and settings, and what is lost without it.
macro_rules! features {
    ($($variant:ident $name:literal $loss:literal)+) => {
        /// A feature that needs certain tables, columns or values in the server's schema.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Feature {
            $(#[doc = $loss] $variant),+
        }

        impl Feature {
            /// In the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As in messages and logs, such as `load-balancer-groups`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// What does not work without it.
            pub const fn loss(self) -> &'static str {
                match self {
                    $(Self::$variant => $loss),+
                }
            }
        }
    };
}

features! {
    Core "core" "nothing works without it"
    AclTiers "acl-tiers" "AdminNetworkPolicy and BaselineAdminNetworkPolicy are not enforced"
    Bfd "bfd" "failures of external gateways are not detected"
    ConditionalNat "conditional-nat" "NAT applies to all traffic of a pod instead of selected destinations"
    ControlPlanePolicing "control-plane-policing" "packets to ovn-controller are not rate-limited"
    Dhcp "dhcp" "ports get no addresses by DHCP"
    EcmpReroute "ecmp-reroute" "an EgressIP uses only one of its addresses"
    FairMeters "fair-meters" "all ACLs that log share one rate limit"
    LoadBalancerGroups "load-balancer-groups" "load balancers are attached to each switch and router one by one"
    LoadBalancerTemplates "load-balancer-templates" "a NodePort needs a load balancer for each node"
    MacBindingAging "mac-binding-aging" "learned neighbours never expire"
    NatPortRanges "nat-port-ranges" "NAT may use ports of the host"
    QosMarks "qos-marks" "replies of EgressIP traffic are not marked, and may leave by another node"
    QosRules "qos-rules" "EgressQoS and bandwidth annotations of pods are not applied"
    SessionAffinity "session-affinity" "Services ignore session affinity"
    StaticMacBindings "static-mac-bindings" "masquerade addresses are resolved by ARP instead of statically"
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Features that all checked servers support.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    off: BTreeSet<Feature>,
}

impl Features {
    /// Whether all servers support the feature.
    pub fn has(&self, feature: Feature) -> bool {
        !self.off.contains(&feature)
    }

    /// The unsupported ones.
    pub fn off(&self) -> impl Iterator<Item = Feature> + '_ {
        self.off.iter().copied()
    }

    /// Combines two servers: a feature that either lacks is off.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.off.extend(&other.off);
        self
    }
}

/// From the features that a server lacks.
impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(off: I) -> Self {
        Self { off: off.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let names: BTreeSet<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
        assert_eq!(names.len(), Feature::ALL.len());
    }

    #[test]
    fn a_feature_that_one_server_lacks_is_off() {
        let northbound = Features::from_iter([Feature::Bfd]);
        let both = northbound.and(&Features::from_iter([Feature::Dhcp]));
        assert!(!both.has(Feature::Bfd) && !both.has(Feature::Dhcp) && both.has(Feature::AclTiers));
        assert_eq!(both.off().count(), 2);
    }
}
