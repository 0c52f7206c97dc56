//! Features that need more of a server than every supported version has.

use std::collections::BTreeSet;
use std::fmt;

/// One line for each feature: its name in messages and settings, and what is lost without it.
macro_rules! features {
    ($($variant:ident $name:literal $loss:literal)+) => {
        /// Something that works only if the server's schema has what it needs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Feature {
            $(#[doc = $loss] $variant),+
        }

        impl Feature {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// What is lost without it.
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
    Bfd "bfd" "a dead external gateway is not noticed"
    ConditionalNat "conditional-nat" "addresses are translated for all traffic of a pod, not for some destinations only"
    ControlPlanePolicing "control-plane-policing" "packets that go to ovn-controller are not limited in rate"
    Dhcp "dhcp" "ports get no addresses by DHCP"
    EcmpReroute "ecmp-reroute" "an EgressIP object uses one of its addresses only"
    FairMeters "fair-meters" "all ACLs that log share one rate limit"
    LoadBalancerGroups "load-balancer-groups" "load balancers are attached to each switch and router one by one"
    LoadBalancerTemplates "load-balancer-templates" "a NodePort needs a load balancer for each node"
    MacBindingAging "mac-binding-aging" "learned neighbours stay until they are removed by hand"
    NatPortRanges "nat-port-ranges" "translated connections may take ports that the host uses"
    QosMarks "qos-marks" "replies of EgressIP traffic are not marked, and may leave by another node"
    QosRules "qos-rules" "EgressQoS and bandwidth annotations of pods are not applied"
    SessionAffinity "session-affinity" "Services with session affinity spread their clients like others"
    StaticMacBindings "static-mac-bindings" "the masquerade addresses are resolved by ARP, not fixed"
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which features work with the servers that were checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    off: BTreeSet<Feature>,
}

impl Features {
    /// Whether a feature works.
    pub fn has(&self, feature: Feature) -> bool {
        !self.off.contains(&feature)
    }

    /// Those that do not.
    pub fn off(&self) -> impl Iterator<Item = Feature> + '_ {
        self.off.iter().copied()
    }

    /// With what another server says: what one of them lacks is off.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.off.extend(&other.off);
        self
    }
}

/// All but these.
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
    fn what_one_server_lacks_is_off() {
        let northbound = Features::from_iter([Feature::Bfd]);
        let both = northbound.and(&Features::from_iter([Feature::Dhcp]));
        assert!(!both.has(Feature::Bfd) && !both.has(Feature::Dhcp) && both.has(Feature::AclTiers));
        assert_eq!(both.off().count(), 2);
    }
}
