//! Which specs are run, and which group each belongs to.

use crate::spec::Family;

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Which {
    /// Everything of SIG Network that can run here.
    #[default]
    Network,
    /// That, the conformance specs of every SIG, and `policy-api`.
    All,
    /// network-policy-api's conformance suite: AdminNetworkPolicy and BaselineAdminNetworkPolicy.
    PolicyApi,
}

/// The specs of one run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// How much.
    pub which: Which,
    /// Of these only those whose full name matches this regular expression. With `PolicyApi` one regular expression
    /// for the test and, after a slash, one for its sub-tests, as Go's `-run` takes them.
    pub focus: Option<String>,
}

/// Specs of SIG Network that cannot run here, whatever the network is, and why.
const IMPOSSIBLE: &[(&str, &str)] = &[
    ("Disruptive", "restarts programs by SSH"),
    ("Feature: containsAny { LoadBalancer }", "needs a cloud's load balancer"),
    (
        "Feature: containsAny { KubeProxyDaemonSetMigration, KubeProxyDaemonSetUpgrade, KubeProxyDaemonSetDowngrade }",
        "is about kube-proxy",
    ),
    ("Feature: containsAny { KubeProxyNFAcct }", "is about kube-proxy's metrics"),
    ("Feature: containsAny { Networking-IPv4, Networking-IPv6, Networking-DNS }", "needs the internet"),
    ("Feature: containsAny { SCTPConnectivity }", "the kernel has no SCTP"),
    ("Feature: containsAny { PerformanceDNS }", "is a load test of 10,000 Services"),
];

const DUAL_STACK: &str = "Feature: containsAny { IPv6DualStack }";

impl Selection {
    /// The regular expression that matches the specs of these full names and no others; ginkgo puts the name of the
    /// suite before them.
    pub fn exactly(names: &[&str]) -> String {
        let literal = |name: &&str| -> String {
            let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
            name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
        };
        format!(" ({})$", names.iter().map(literal).collect::<Vec<_>>().join("|"))
    }

    /// Whether specs of Kubernetes' suite may be among them.
    pub(super) fn has_specs(&self) -> bool {
        self.which != Which::PolicyApi
    }

    /// Whether tests of network-policy-api are among them. A focus names specs of one suite, Kubernetes' with `All`:
    /// the other's would set up its 70 containers for nothing.
    pub(super) fn has_policy_api(&self) -> bool {
        match self.which {
            Which::Network => false,
            Which::All => self.focus.is_none(),
            Which::PolicyApi => true,
        }
    }

    /// The filter of labels, as ginkgo takes it, for a cluster of these address families.
    pub(super) fn filter(&self, family: Family) -> String {
        let mut network = String::from("sig-network");
        for (labels, _) in IMPOSSIBLE {
            network.push_str(&format!(" && !({labels})"));
        }
        if family != Family::Dual {
            network.push_str(&format!(" && !({DUAL_STACK})"));
        }
        match self.which {
            Which::Network | Which::PolicyApi => network,
            Which::All => format!("(Conformance && !Disruptive) || ({network})"),
        }
    }
}

/// The groups of the report, in its order.
pub(super) const GROUPS: [&str; 5] =
    ["sig-network [Conformance]", "NetworkPolicy", "sig-network, other", "other SIGs [Conformance]", POLICY_API];

/// The group of network-policy-api's tests.
pub(super) const POLICY_API: &str = "network-policy-api";

/// The group of a spec with this name and these labels.
pub(super) fn group(name: &str, labels: &[String]) -> &'static str {
    let has = |wanted: &str| labels.iter().any(|label| label == wanted);
    match (has("sig-network"), has("Conformance")) {
        (true, true) => GROUPS[0],
        // Those of the API itself need no such feature.
        (true, false) if name.contains("Netpol") => GROUPS[1],
        (true, false) => GROUPS[2],
        (false, _) => GROUPS[3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dual_stack_specs_run_on_dual_stack_clusters_only() {
        let selection = Selection::default();
        assert!(selection.filter(Family::V4).contains(DUAL_STACK));
        assert!(!selection.filter(Family::Dual).contains(DUAL_STACK));
        assert!(selection.filter(Family::V4).starts_with("sig-network && !(Disruptive)"));
        let all = Selection { which: Which::All, focus: None };
        assert!(all.filter(Family::V4).starts_with("(Conformance && !Disruptive) || (sig-network"));
    }

    #[test]
    fn a_focus_means_one_suite() {
        let with = |which, focus: Option<&str>| Selection { which, focus: focus.map(str::to_owned) };
        assert!(with(Which::All, None).has_policy_api() && with(Which::All, None).has_specs());
        assert!(!with(Which::All, Some("DNS")).has_policy_api());
        assert!(!with(Which::Network, None).has_policy_api());
        let policies = with(Which::PolicyApi, Some("Gress"));
        assert!(policies.has_policy_api() && !policies.has_specs());
    }

    #[test]
    fn names_are_matched_literally() {
        assert_eq!(Selection::exactly(&["[a] b.c", "d"]), r" (\[a\] b\.c|d)$");
    }

    #[test]
    fn each_spec_has_one_group() {
        let of = |name, labels: &[&str]| group(name, &labels.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of("Services", &["sig-network", "Conformance"]), "sig-network [Conformance]");
        assert_eq!(of("[sig-network] Netpol API", &["sig-network"]), "NetworkPolicy");
        assert_eq!(of("Services", &["sig-network"]), "sig-network, other");
        assert_eq!(of("Job", &["sig-apps", "Conformance"]), "other SIGs [Conformance]");
    }
}
