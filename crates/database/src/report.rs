//! Reports what a manager finds: in its log, as Events of its pod, in metrics, and in the file for `ovnkube db status`.

use std::path::PathBuf;

use kubernetes::{Api, Note, ObjectReference, Recorder};
use telemetry::StatusPage;

use crate::finding::{Finding, Findings, Severity};
use crate::kind::Kind;
use crate::manager_status::{ManagerStatus, ReportedFinding};
use crate::metrics::Metrics;
use crate::options::Options;

/// Where a manager reports.
pub(crate) struct Reporter {
    kind: Kind,
    run_directory: PathBuf,
    recorder: Recorder,
    /// For `ovnkube db status` on other hosts.
    page: StatusPage,
    /// The object that Events are about; none outside a pod.
    pod: Option<ObjectReference>,
}

impl Reporter {
    pub(crate) fn new(api: &Api, options: &Options, page: StatusPage, pod: Option<ObjectReference>) -> Self {
        let recorder = Recorder::new(api, "ovnkube-db", &options.member);
        Self { kind: options.kind, run_directory: options.run_directory.clone(), recorder, page, pod }
    }

    /// Logs and records what is new and what is over, and writes all of it for `ovnkube db status`.
    pub(crate) fn publish(&self, findings: &mut Findings, metrics: &Metrics, status: &mut ManagerStatus) {
        let database = self.kind.name();
        let changes = findings.changes(&kubernetes::timestamp());
        for finding in &changes.new {
            let (name, message) = (finding.kind.name(), &finding.message);
            match finding.kind.severity() {
                Severity::Error => tracing::error!(database, finding = name, "{message}"),
                Severity::Warning | Severity::Advice => tracing::warn!(database, finding = name, "{message}"),
            }
            self.event(finding);
        }
        for kind in changes.resolved {
            tracing::info!(database, finding = kind.name(), "warning resolved");
        }
        metrics.set_findings(findings);
        status.findings = reported(findings);
        self.page.set(status.json());
        if let Err(error) = status.write(self.kind, &self.run_directory) {
            tracing::debug!(database, %error, "cannot write the status of this manager");
        }
    }

    fn event(&self, finding: &Finding) {
        let Some(object) = self.pod.clone() else { return };
        let severity = match finding.kind.severity() {
            Severity::Error | Severity::Warning => kubernetes::Severity::Warning,
            Severity::Advice => kubernetes::Severity::Normal,
        };
        let message = format!("{} database: {}", self.kind.name(), finding.message);
        self.recorder.record(Note { object, severity, reason: finding.kind.name().to_owned(), message });
    }
}

fn reported(findings: &Findings) -> Vec<ReportedFinding> {
    let report = |finding: &Finding| ReportedFinding {
        name: finding.kind,
        severity: finding.kind.severity(),
        message: finding.message.clone(),
        since: findings.since(finding.kind).unwrap_or_default().to_owned(),
    };
    findings.all().map(report).collect()
}
