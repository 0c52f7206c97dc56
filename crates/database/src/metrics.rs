//! Metrics of a member, with the names that dashboards of OVN-Kubernetes know.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

use crate::care::Finding;
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
struct ProblemLabels {
    db_name: &'static str,
    problem: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DatabaseLabels {
    db_name: &'static str,
}

type MemberGauge = Family<MemberLabels, Gauge>;

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
    problems: Family<ProblemLabels, Gauge>,
    size: Family<DatabaseLabels, Gauge>,
    free: Family<DatabaseLabels, Gauge>,
    sync: Family<DatabaseLabels, Gauge<f64, AtomicU64>>,
    restarts: Family<DatabaseLabels, Counter>,
}

impl Metrics {
    pub(crate) fn new(kind: Kind, telemetry: &Telemetry) -> Self {
        let metrics = Self {
            kind,
            role: Family::default(),
            status: Family::default(),
            term: Family::default(),
            election_timer: Family::default(),
            log_start: Family::default(),
            log_next: Family::default(),
            uncommitted: Family::default(),
            unapplied: Family::default(),
            inbound: Family::default(),
            outbound: Family::default(),
            members: Family::default(),
            problems: Family::default(),
            size: Family::default(),
            free: Family::default(),
            sync: Family::default(),
            restarts: Family::default(),
        };
        telemetry.registry(|registry| {
            let m = &metrics;
            registry.register("ovn_db_cluster_server_role", "1 for the raft role of this server", m.role.clone());
            registry.register("ovn_db_cluster_server_status", "1 for the status of this server", m.status.clone());
            registry.register("ovn_db_cluster_term", "Raft term", m.term.clone());
            registry.register(
                "ovn_db_cluster_election_timer",
                "Election timer in milliseconds",
                m.election_timer.clone(),
            );
            registry.register("ovn_db_cluster_log_index_start", "First index of the raft log", m.log_start.clone());
            registry.register("ovn_db_cluster_log_index_next", "Next index of the raft log", m.log_next.clone());
            registry.register(
                "ovn_db_cluster_log_not_committed",
                "Entries of the raft log that are not committed",
                m.uncommitted.clone(),
            );
            registry.register(
                "ovn_db_cluster_log_not_applied",
                "Entries of the raft log that are not applied",
                m.unapplied.clone(),
            );
            registry.register(
                "ovn_db_cluster_inbound_connections",
                "Connections from other servers of the cluster",
                m.inbound.clone(),
            );
            registry.register(
                "ovn_db_cluster_outbound_connections",
                "Connections to other servers of the cluster",
                m.outbound.clone(),
            );
            registry.register(
                "ovn_db_cluster_servers",
                "Servers in the configuration of the cluster",
                m.members.clone(),
            );
            registry.register("ovn_db_problem", "1 while a problem of the database is detected", m.problems.clone());
            registry.register("ovn_db_db_size_bytes", "Size of the database file", m.size.clone());
            registry.register("ovn_db_disk_free_bytes", "Free space for the database file", m.free.clone());
            registry.register(
                "ovn_db_disk_sync_seconds",
                "Duration of the last write and sync in the data directory",
                m.sync.clone(),
            );
            registry.register("ovn_db_server_restarts", "Restarts of ovsdb-server by its manager", m.restarts.clone());
        });
        // `increase` needs a first value.
        let _ = metrics.restarts.get_or_create(&metrics.database());
        metrics.set_problems(&[]);
        metrics
    }

    /// Removes what only a running server tells: a dead leader must not be shown as one.
    pub(crate) fn clear_status(&self) {
        self.role.clear();
        self.status.clear();
        let families = [&self.term, &self.election_timer, &self.log_start, &self.log_next, &self.uncommitted];
        let others = [&self.unapplied, &self.inbound, &self.outbound, &self.members];
        families.into_iter().chain(others).for_each(Family::clear);
    }

    fn database(&self) -> DatabaseLabels {
        DatabaseLabels { db_name: self.kind.schema() }
    }

    pub(crate) fn restarted(&self) {
        self.restarts.get_or_create(&self.database()).inc();
    }

    pub(crate) fn set_disk(&self, size: u64, free: u64, sync: std::time::Duration) {
        let labels = self.database();
        self.size.get_or_create(&labels).set(size.try_into().unwrap_or(i64::MAX));
        self.free.get_or_create(&labels).set(free.try_into().unwrap_or(i64::MAX));
        self.sync.get_or_create(&labels).set(sync.as_secs_f64());
    }

    pub(crate) fn set_problems(&self, findings: &[Finding]) {
        for problem in Finding::NAMES {
            let labels = ProblemLabels { db_name: self.kind.schema(), problem };
            let found = findings.iter().any(|finding| finding.name() == problem);
            self.problems.get_or_create(&labels).set(found.into());
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
