//! How each shipped alert is tested with the real components.

use lab::prometheus::alert_names;

/// How an alert is tested beyond the rule test that every alert has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Its fault is created in the test of this name.
    Real(&'static str),
    /// Rule test only, for this reason.
    RuleOnly(&'static str),
}

/// Faults that take seconds; `make test-alerts` runs it.
pub(crate) const QUICK: &str = "alerts_of_quick_faults_fire_and_resolve";
/// Faults that take minutes; `make test-alerts` runs it.
pub(crate) const SLOW: &str = "alerts_of_slow_faults_fire_and_resolve";

const OTHER_FORM: &str = "this cluster's databases are raft clusters; the test of the other form creates the fault";

const OTHER_TEST: &str = "the test of rotations creates faults of the signer, without Prometheus";

pub(crate) const COVERAGE: &[(&str, Coverage)] = &[
    ("OvnkubeSlowPropagation", Coverage::Real(SLOW)),
    ("OvnkubeSlowPropagationLasting", Coverage::Real(SLOW)),
    ("OvnkubeNoLeader", Coverage::Real(QUICK)),
    ("OvnkubeParkedObjects", Coverage::Real(QUICK)),
    ("OvnkubeParkedNode", Coverage::Real(QUICK)),
    (
        "OvnkubeTransactionsRefused",
        Coverage::RuleOnly("a database refuses our transactions only because of a defect of ours or of the database"),
    ),
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
    ("OvnkubeDatabaseSlowDisk", Coverage::RuleOnly("the lab has no disk that can be slowed down for one pod")),
    ("OvnkubeDatabaseServerRestarting", Coverage::Real(QUICK)),
    ("OvnkubeDatabaseMemberBlocked", Coverage::Real(QUICK)),
    (
        "OvnkubeDatabaseNoReply",
        Coverage::RuleOnly("a server that hangs is replaced within seconds, before the alert fires"),
    ),
    (
        "OvnkubeDatabaseServerOverloaded",
        Coverage::RuleOnly("the lab has no load that keeps a server busy for ten minutes"),
    ),
    ("OvnkubeDatabaseClockJump", Coverage::RuleOnly("all machines of the lab share the clock of the host")),
    (
        "OvnkubeDatabaseSchemaNotCurrent",
        Coverage::RuleOnly("the schema is converted within seconds; a downgrade is tested without Prometheus"),
    ),
    (
        "OvnkubeDatabaseAdvice",
        Coverage::RuleOnly("it fires for the lab's own Open vSwitch 3.5.0, and resolves only with a newer one"),
    ),
    ("OvnkubeDatabaseNoActiveServer", Coverage::RuleOnly(OTHER_FORM)),
    ("OvnkubeDatabaseBackupNotReplicating", Coverage::RuleOnly(OTHER_FORM)),
    ("OvnkubeRelayDisconnected", Coverage::RuleOnly("this cluster has no relay; the test of relays creates the fault")),
    ("OvnkubeNodeNetworkNotReady", Coverage::Real(SLOW)),
    ("OvnkubeFlowsDeleted", Coverage::Real(QUICK)),
    ("OvnkubePodsAreNotWired", Coverage::Real(SLOW)),
    ("OvnkubePodsAreWiredSlowly", Coverage::Real(SLOW)),
    ("OvnkubePodsWithoutNetwork", Coverage::Real(QUICK)),
    ("OvnkubePodPortsAreDeleted", Coverage::Real(QUICK)),
    ("OvnkubePkiCertificateExpiresSoon", Coverage::RuleOnly("certificates of this cluster live for months")),
    ("OvnkubePkiRenewalFailing", Coverage::RuleOnly(OTHER_TEST)),
    ("OvnkubePkiBlocked", Coverage::RuleOnly(OTHER_TEST)),
    ("OvnkubePkiNoSigner", Coverage::RuleOnly(OTHER_TEST)),
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
