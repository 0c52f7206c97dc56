//! Metrics of a member, with the names that dashboards of OVN-Kubernetes know.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use telemetry::Telemetry;

use crate::assess::Usage;
use crate::finding::{FindingKind, Findings};
use crate::kind::Kind;
use crate::status::ClusterStatus;

/// Labels of every metric about a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemberLabels {
    db_name: &'static str,
    cluster_id: String,
    server_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabels {
    db_name: &'static str,
    cluster_id: String,
    server_id: String,
    server_role: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    db_name: &'static str,
    cluster_id: String,
    server_id: String,
    server_status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabels {
    db_name: &'static str,
    problem: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DatabaseLabels {
    db_name: &'static str,
}

type MemberGauge = Family<MemberLabels, Gauge>;
type FractionGauge = Family<DatabaseLabels, Gauge<f64, AtomicU64>>;

/// Handles of all metrics; clones share their values.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    kind: Kind,
    role: Family<RoleLabels, Gauge>,
    status: Family<StatusLabels, Gauge>,
    term: MemberGauge,
    election_timer: MemberGauge,
    log_start: MemberGauge,
    log_next: MemberGauge,
    uncommitted: MemberGauge,
    unapplied: MemberGauge,
    inbound: MemberGauge,
    outbound: MemberGauge,
    members: MemberGauge,
    findings: Family<FindingLabels, Gauge>,
    size: Family<DatabaseLabels, Gauge>,
    free: Family<DatabaseLabels, Gauge>,
    sync: FractionGauge,
    resident: Family<DatabaseLabels, Gauge>,
    cpu: FractionGauge,
    longest_step: FractionGauge,
    restarts: Family<DatabaseLabels, Counter>,
}

/// Creates metrics and registers them.
pub(crate) struct Registrar<'a>(pub(crate) &'a mut Registry);

impl Registrar<'_> {
    pub(crate) fn register<M: Metric + Default + Clone>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        // In this form, a test that looks for registrations finds names only.
        Registry::register(self.0, name, help, metric.clone());
        metric
    }
}

impl Metrics {
    pub(crate) fn new(kind: Kind, telemetry: &Telemetry) -> Self {
        let metrics = telemetry.registry(|registry| Self::registered(kind, Registrar(registry)));
        // `increase` needs a first value.
        let _ = metrics.restarts.get_or_create(&metrics.database());
        metrics.set_findings(&Findings::default());
        metrics
    }

    fn registered(kind: Kind, mut m: Registrar<'_>) -> Self {
        Self {
            kind,
            role: m.register("ovn_db_cluster_server_role", "1 for the raft role of this server"),
            status: m.register("ovn_db_cluster_server_status", "1 for the status of this server"),
            term: m.register("ovn_db_cluster_term", "Raft term"),
            election_timer: m.register("ovn_db_cluster_election_timer", "Election timer in milliseconds"),
            log_start: m.register("ovn_db_cluster_log_index_start", "First index of the raft log"),
            log_next: m.register("ovn_db_cluster_log_index_next", "Next index of the raft log"),
            uncommitted: m
                .register("ovn_db_cluster_log_not_committed", "Entries of the raft log that are not committed"),
            unapplied: m.register("ovn_db_cluster_log_not_applied", "Entries of the raft log that are not applied"),
            inbound: m.register("ovn_db_cluster_inbound_connections", "Connections from other servers of the cluster"),
            outbound: m.register("ovn_db_cluster_outbound_connections", "Connections to other servers of the cluster"),
            members: m.register("ovn_db_cluster_servers", "Servers in the configuration of the cluster"),
            findings: m.register("ovn_db_problem", "1 while a problem of the database is detected"),
            size: m.register("ovn_db_db_size_bytes", "Size of the database file"),
            free: m.register("ovn_db_disk_free_bytes", "Free space for the database file"),
            sync: m.register("ovn_db_disk_sync_seconds", "Duration of the last write and sync in the data directory"),
            resident: m.register("ovn_db_server_resident_memory_bytes", "Resident memory of ovsdb-server"),
            cpu: m.register("ovn_db_server_cpu_ratio", "Share of one CPU that ovsdb-server used in the last interval"),
            longest_step: m
                .register("ovn_db_server_longest_step_seconds", "Longest step of ovsdb-server in the last interval"),
            restarts: m.register("ovn_db_server_restarts", "Restarts of ovsdb-server by its manager"),
        }
    }

    /// Removes the metrics that only a running server reports: a dead leader must not be shown as one.
    pub(crate) fn clear_status(&self) {
        self.role.clear();
        self.status.clear();
        let families = [&self.term, &self.election_timer, &self.log_start, &self.log_next, &self.uncommitted];
        let others = [&self.unapplied, &self.inbound, &self.outbound, &self.members];
        families.into_iter().chain(others).for_each(Family::clear);
        self.resident.clear();
        [&self.cpu, &self.longest_step].into_iter().for_each(Family::clear);
    }

    fn database(&self) -> DatabaseLabels {
        DatabaseLabels { db_name: self.kind.schema() }
    }

    pub(crate) fn restarted(&self) {
        self.restarts.get_or_create(&self.database()).inc();
    }

    /// `sync` is none if the write failed: the duration of an earlier one must not be shown.
    pub(crate) fn set_disk(&self, size: u64, free: u64, sync: Option<std::time::Duration>) {
        let labels = self.database();
        self.size.get_or_create(&labels).set(size.try_into().unwrap_or(i64::MAX));
        self.free.get_or_create(&labels).set(free.try_into().unwrap_or(i64::MAX));
        match sync {
            Some(sync) => {
                self.sync.get_or_create(&labels).set(sync.as_secs_f64());
            }
            None => self.sync.clear(),
        }
    }

    /// Nothing is known about the disk.
    pub(crate) fn clear_disk(&self) {
        self.size.clear();
        self.free.clear();
        self.sync.clear();
    }

    pub(crate) fn set_usage(&self, usage: &Usage) {
        let labels = self.database();
        self.resident.get_or_create(&labels).set(usage.resident.try_into().unwrap_or(i64::MAX));
        self.cpu.get_or_create(&labels).set(usage.cpu);
        self.longest_step.get_or_create(&labels).set(usage.longest_step.as_secs_f64());
    }

    pub(crate) fn set_findings(&self, findings: &Findings) {
        for kind in FindingKind::ALL {
            let labels = FindingLabels { db_name: self.kind.schema(), problem: kind.name() };
            self.findings.get_or_create(&labels).set(findings.has(*kind).into());
        }
    }

    /// Replaces everything about the server: a rejoined one has another ID.
    pub(crate) fn set_status(&self, status: &ClusterStatus) {
        let labels = MemberLabels {
            db_name: self.kind.schema(),
            cluster_id: status.cluster.clone(),
            server_id: status.server.clone(),
        };
        let MemberLabels { db_name, cluster_id, server_id } = labels.clone();
        let set = |family: &MemberGauge, value: u64| {
            family.clear();
            family.get_or_create(&labels).set(value.try_into().unwrap_or(i64::MAX));
        };
        self.role.clear();
        self.status.clear();
        let role = RoleLabels {
            db_name,
            cluster_id: cluster_id.clone(),
            server_id: server_id.clone(),
            server_role: status.role.clone(),
        };
        self.role.get_or_create(&role).set(1);
        let server_status = StatusLabels { db_name, cluster_id, server_id, server_status: status.status.clone() };
        self.status.get_or_create(&server_status).set(1);
        set(&self.term, status.term);
        set(&self.election_timer, status.election_timer);
        set(&self.log_start, status.log.0);
        set(&self.log_next, status.log.1);
        set(&self.uncommitted, status.uncommitted);
        set(&self.unapplied, status.unapplied);
        set(&self.inbound, status.inbound.len() as u64);
        set(&self.outbound, status.outbound.len() as u64);
        set(&self.members, status.servers.len() as u64);
    }
}
