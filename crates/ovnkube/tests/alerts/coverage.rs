//! How each shipped alert is tested with the real components.

use lab::prometheus::alert_names;

/// How an alert is tested beyond the rule test that every alert has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Its fault is created in the test of this name.
    Real(&'static str),
    /// Rule test only, for this reason, which docs/metrics.md has in a table.
    #[allow(dead_code, reason = "for an alert whose fault nobody can create; today there is none")]
    RuleOnly(&'static str),
}

/// Faults that take seconds; `make test-alerts` runs it.
pub(crate) const QUICK: &str = "alerts_of_quick_faults_fire_and_resolve";
/// Faults that take minutes; `make test-alerts` runs it.
pub(crate) const SLOW: &str = "alerts_of_slow_faults_fire_and_resolve";

/// Faults of single programs, without a cluster; `make test-alerts` runs it.
pub(crate) const PROGRAMS: &str = "alerts_of_single_programs_fire_and_resolve";
/// Faults of the signer, with lifetimes of minutes; `make test-alerts` runs it.
pub(crate) const SIGNER: &str = "alerts_of_the_signer_fire_and_resolve";

pub(crate) const COVERAGE: &[(&str, Coverage)] = &[
    ("OvnkubeSlowPropagation", Coverage::Real(SLOW)),
    ("OvnkubeSlowPropagationLasting", Coverage::Real(SLOW)),
    ("OvnkubeNoLeader", Coverage::Real(QUICK)),
    ("OvnkubeParkedObjects", Coverage::Real(QUICK)),
    ("OvnkubeParkedNode", Coverage::Real(QUICK)),
    ("OvnkubeTransactionsRefused", Coverage::Real(PROGRAMS)),
    ("OvnkubeNodeDoesNotAnswer", Coverage::Real(SLOW)),
    ("OvnkubeNorthdStuck", Coverage::Real(SLOW)),
    ("OvnkubeLeaseNotRenewed", Coverage::Real(SLOW)),
    ("OvnkubeRowsRestored", Coverage::Real(QUICK)),
    ("OvnkubePortClaimedByOtherChassis", Coverage::Real(QUICK)),
    ("OvnkubeQuarantineStuck", Coverage::Real(SLOW)),
    ("OvnkubeSubnetsNearlyExhausted", Coverage::Real(SLOW)),
    ("OvnkubeSlowPodCreation", Coverage::Real(SLOW)),
    ("OvnkubeApiWritesFail", Coverage::Real(SLOW)),
    ("OvnkubeDatabaseNoLeader", Coverage::Real(QUICK)),
    ("OvnkubeDatabaseNoQuorum", Coverage::Real(QUICK)),
    ("OvnkubeDatabaseNotRunning", Coverage::Real(QUICK)),
    ("OvnkubeDatabaseQuorumAtRisk", Coverage::Real(QUICK)),
    ("OvnkubeDatabaseDiskAlmostFull", Coverage::Real(SLOW)),
    ("OvnkubeDatabaseSlowDisk", Coverage::Real(PROGRAMS)),
    ("OvnkubeDatabaseServerRestarting", Coverage::Real(QUICK)),
    ("OvnkubeDatabaseMemberBlocked", Coverage::Real(QUICK)),
    ("OvnkubeDatabaseNoReply", Coverage::Real(PROGRAMS)),
    ("OvnkubeDatabaseServerOverloaded", Coverage::Real(PROGRAMS)),
    ("OvnkubeDatabaseClockJump", Coverage::Real(PROGRAMS)),
    ("OvnkubeDatabaseSchemaNotCurrent", Coverage::Real(PROGRAMS)),
    ("OvnkubeDatabaseAdvice", Coverage::Real(PROGRAMS)),
    ("OvnkubeDatabaseNoActiveServer", Coverage::Real(PROGRAMS)),
    ("OvnkubeDatabaseBackupNotReplicating", Coverage::Real(PROGRAMS)),
    ("OvnkubeRelayDisconnected", Coverage::Real(PROGRAMS)),
    ("OvnkubeNodeNetworkNotReady", Coverage::Real(SLOW)),
    ("OvnkubeFlowsDeleted", Coverage::Real(QUICK)),
    ("OvnkubePodsAreNotWired", Coverage::Real(SLOW)),
    ("OvnkubePodsAreWiredSlowly", Coverage::Real(SLOW)),
    ("OvnkubePodsWithoutNetwork", Coverage::Real(QUICK)),
    ("OvnkubePodPortsAreDeleted", Coverage::Real(QUICK)),
    ("OvnkubeNodeCertificateFailing", Coverage::Real(SLOW)),
    ("OvnkubeNodeCertificateNotRenewed", Coverage::Real(SLOW)),
    ("OvnkubePkiCertificateExpiresSoon", Coverage::Real(SIGNER)),
    ("OvnkubePkiNodeCertificateExpiresSoon", Coverage::Real(SIGNER)),
    ("OvnkubePkiRequestsDenied", Coverage::Real(SIGNER)),
    ("OvnkubePkiRenewalFailing", Coverage::Real(SIGNER)),
    ("OvnkubePkiBlocked", Coverage::Real(SIGNER)),
    ("OvnkubePkiNoSigner", Coverage::Real(SIGNER)),
];

/// The alerts whose fault a test creates.
pub(crate) fn of_test(test: &str) -> Vec<&'static str> {
    COVERAGE
        .iter()
        .filter(|(_, coverage)| matches!(coverage, Coverage::Real(of) if *of == test))
        .map(|(alert, _)| *alert)
        .collect()
}

#[test]
fn every_shipped_alert_has_an_entry_and_the_documentation_names_the_exceptions() {
    let names = alert_names().unwrap();
    for name in &names {
        assert!(COVERAGE.iter().any(|(alert, _)| alert == name), "{name} has no entry in coverage.rs");
    }
    let page = include_str!("../../../../docs/metrics.md");
    for (alert, coverage) in COVERAGE {
        assert!(names.iter().any(|name| name == alert), "{alert} is not shipped");
        if let Coverage::RuleOnly(reason) = coverage {
            let row = format!("| `{alert}` | {reason} |");
            assert!(page.contains(&row), "docs/metrics.md lacks the row\n{row}");
        }
    }
}
