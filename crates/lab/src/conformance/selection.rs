//! Which specs are run, and which group each belongs to.

use crate::spec::Family;

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Which {
    /// Everything of SIG Network that can run here.
    #[default]
    Network,
    /// That, and the conformance specs of every SIG.
    All,
}

/// The specs of one run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// How much.
    pub which: Which,
    /// Of these only those whose full name matches this regular expression.
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
            Which::Network => network,
            Which::All => format!("(Conformance && !Disruptive) || ({network})"),
        }
    }
}

/// The groups of the report, in its order.
pub(super) const GROUPS: [&str; 4] =
    ["sig-network [Conformance]", "NetworkPolicy", "sig-network, other", "other SIGs [Conformance]"];

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
