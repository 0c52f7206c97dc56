//! Which specs are run, and which group each belongs to.

use crate::spec::Family;

/// Which suites a run includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum SpecSet {
    /// All specs of SIG Network that can run here
    #[default]
    Network,
    /// `network`, the conformance specs of every SIG, and `policy-api`
    All,
    /// network-policy-api's conformance suite: AdminNetworkPolicy and BaselineAdminNetworkPolicy
    PolicyApi,
}

/// The specs of one run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The whole set, unless there is a focus.
    pub set: SpecSet,
    /// Only those whose full name matches this regular expression. With `PolicyApi` one regular expression for the test
    /// and, after a slash, one for its subtests, as in Go's `-run`.
    pub focus: Option<String>,
}

/// Specs of SIG Network that cannot run in a lab with any network, and why.
const EXCLUDED: &[(&str, &str)] = &[
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
    /// A regular expression that matches exactly the specs with these full names; ginkgo prefixes them with the name of
    /// the suite.
    pub fn exact_names(names: &[&str]) -> String {
        let literal = |name: &&str| -> String {
            let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
            name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
        };
        format!(" ({})$", names.iter().map(literal).collect::<Vec<_>>().join("|"))
    }

    /// Whether Kubernetes' suite is to run.
    pub(super) fn has_specs(&self) -> bool {
        self.set != SpecSet::PolicyApi
    }

    /// Whether network-policy-api's suite is to run. A focus names specs of one suite, Kubernetes' with `All`: the
    /// other suite would set up its 70 containers for nothing.
    pub(super) fn has_policy_api(&self) -> bool {
        match self.set {
            SpecSet::Network => false,
            SpecSet::All => self.focus.is_none(),
            SpecSet::PolicyApi => true,
        }
    }

    /// ginkgo's label filter for a cluster of these address families.
    pub(super) fn filter(&self, family: Family) -> String {
        let mut network = String::from("sig-network");
        for (labels, _) in EXCLUDED {
            network.push_str(&format!(" && !({labels})"));
        }
        if family != Family::Dual {
            network.push_str(&format!(" && !({DUAL_STACK})"));
        }
        match self.set {
            SpecSet::Network | SpecSet::PolicyApi => network,
            SpecSet::All => format!("(Conformance && !Disruptive) || ({network})"),
        }
    }
}

/// In the order of the table.
pub(super) const GROUPS: [&str; 5] =
    ["sig-network [Conformance]", "NetworkPolicy", "sig-network, other", "other SIGs [Conformance]", POLICY_API];

pub(super) const POLICY_API: &str = "network-policy-api";

pub(super) fn group(name: &str, labels: &[String]) -> &'static str {
    let has = |wanted: &str| labels.iter().any(|label| label == wanted);
    match (has("sig-network"), has("Conformance")) {
        (true, true) => GROUPS[0],
        // Also specs of the policy API itself, which lack the feature label.
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
        let all = Selection { set: SpecSet::All, focus: None };
        assert!(all.filter(Family::V4).starts_with("(Conformance && !Disruptive) || (sig-network"));
    }

    #[test]
    fn a_focus_selects_one_suite() {
        let with = |set, focus: Option<&str>| Selection { set, focus: focus.map(str::to_owned) };
        assert!(with(SpecSet::All, None).has_policy_api() && with(SpecSet::All, None).has_specs());
        assert!(!with(SpecSet::All, Some("DNS")).has_policy_api());
        assert!(!with(SpecSet::Network, None).has_policy_api());
        let policies = with(SpecSet::PolicyApi, Some("Gress"));
        assert!(policies.has_policy_api() && !policies.has_specs());
    }

    #[test]
    fn names_are_matched_literally() {
        assert_eq!(Selection::exact_names(&["[a] b.c", "d"]), r" (\[a\] b\.c|d)$");
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
