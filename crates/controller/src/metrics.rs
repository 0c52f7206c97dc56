//! The controller's metrics. Their names are a contract: renamed ones keep an alias.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubernetes::Api;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use telemetry::Telemetry;
use topology::Engine;
use topology::engine::{Measure, Stage};

/// A stage of the propagation of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

/// The kinds of owners that can be parked.
const PARKED_KINDS: [&str; 8] = [
    "Cluster",
    "Node",
    "Namespace",
    "Pod",
    "Service",
    "NetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
];

/// A table of the northbound database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabel {
    table: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Handles of all metrics; clones share their values.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pod_creation: Histogram,
    sync: Histogram,
    propagation: Family<StageLabel, Histogram, fn() -> Histogram>,
    pub(crate) leader: Gauge,
    pub(crate) commits: Counter,
    pub(crate) operations: Counter,
    pub(crate) refused: Counter,
    pub(crate) retries: Counter,
    pub(crate) warnings: Counter,
    nb_timestamp: Gauge<f64, AtomicU64>,
    sb_timestamp: Gauge<f64, AtomicU64>,
    parked: Family<KindLabel, Gauge>,
    backlog: Gauge,
    quarantined: Gauge,
    nb_cfg_lag: Gauge<f64, AtomicU64>,
    pub(crate) lease_unrenewed: Gauge<f64, AtomicU64>,
    northd_behind: Gauge<f64, AtomicU64>,
    pub(crate) northd_resets: Counter,
    pub(crate) port_binding_conflicts: Counter,
    restored: Family<TableLabel, Counter>,
    allocated_v4: Gauge,
    allocated_v6: Gauge,
    available_v4: Gauge,
    available_v6: Gauge,
}

/// Buckets from 1 ms to 30 s.
fn seconds() -> Histogram {
    Histogram::new([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0])
}

impl Metrics {
    pub(crate) fn register(telemetry: &Telemetry, api: &Api) -> Self {
        let metrics = Self {
            pod_creation: seconds(),
            sync: seconds(),
            propagation: Family::new_with_constructor(seconds),
            leader: Gauge::default(),
            commits: Counter::default(),
            operations: Counter::default(),
            refused: Counter::default(),
            retries: Counter::default(),
            warnings: Counter::default(),
            nb_timestamp: Gauge::default(),
            sb_timestamp: Gauge::default(),
            parked: Family::default(),
            backlog: Gauge::default(),
            quarantined: Gauge::default(),
            nb_cfg_lag: Gauge::default(),
            lease_unrenewed: Gauge::default(),
            northd_behind: Gauge::default(),
            northd_resets: Counter::default(),
            port_binding_conflicts: Counter::default(),
            restored: Family::default(),
            allocated_v4: Gauge::default(),
            allocated_v6: Gauge::default(),
            available_v4: Gauge::default(),
            available_v6: Gauge::default(),
        };
        telemetry.registry(|registry| {
            let own = registry.sub_registry_with_prefix("ovnkube_controller");
            let m = metrics.clone();
            own.register("pod_creation_latency_seconds", "Time from the first event of a pod to its annotation", m.pod_creation);
            own.register("sync_duration_seconds", "Duration of the resync after a takeover", m.sync);
            own.register(
                "propagation_seconds",
                "Propagation of a change: from the object to the northbound commit, then to the southbound database, and to the last node",
                m.propagation,
            );
            own.register("leader", "1 if this instance is the leader", m.leader);
            own.register("nb_commits", "Committed northbound transactions", m.commits);
            own.register("nb_operations", "Operations in sent northbound transactions", m.operations);
            own.register("nb_refused", "Transactions that the northbound database refused", m.refused);
            own.register("warnings", "Warnings about objects, as Events and log lines", m.warnings);
            own.register("nb_e2e_timestamp", "When the last sampled change was committed, in seconds since 1970", m.nb_timestamp);
            own.register(
                "sb_e2e_timestamp",
                "When the last sampled change was acknowledged by northd, in seconds since 1970",
                m.sb_timestamp,
            );
            own.register("parked_objects", "Parked objects, by kind", m.parked);
            own.register("backlog", "Owners that are queued", m.backlog);
            own.register(
                "quarantined_addresses",
                "Released addresses, subnets and node IDs that cannot be allocated yet",
                m.quarantined.clone(),
            );
            own.register("resting_addresses", "deprecated: use quarantined_addresses", m.quarantined);
            own.register(
                "nb_cfg_lag_seconds",
                "How long northd or a ready node has not acknowledged nb_cfg; 0 if all have",
                m.nb_cfg_lag.clone(),
            );
            own.register("nb_cfg_unanswered_seconds", "deprecated: use nb_cfg_lag_seconds", m.nb_cfg_lag);
            own.register(
                "lease_unrenewed_seconds",
                "Time since the leader last renewed its Lease; 0 on a standby",
                m.lease_unrenewed,
            );
            own.register(
                "northd_behind_seconds",
                "How long ovn-northd has not copied nb_cfg to the southbound database; 0 if it has",
                m.northd_behind,
            );
            own.register("northd_resets", "Resets of ovn-northd's cluster state", m.northd_resets);
            own.register(
                "port_binding_conflicts",
                "Logical ports that a chassis claimed although they belong to another node, and that were released",
                m.port_binding_conflicts,
            );
            own.register(
                "nb_rows_restored",
                "Northbound rows that another client changed or deleted and that were restored, by table",
                m.restored,
            );
            registry.register(
                "ovnkube_resource_retry_failures",
                "Failed API writes, which are retried",
                metrics.retries.clone(),
            );
            let manager = registry.sub_registry_with_prefix("ovnkube_clustermanager");
            let m = metrics.clone();
            manager.register("allocated_v4_host_subnets", "Allocated IPv4 node subnets", m.allocated_v4);
            manager.register("allocated_v6_host_subnets", "Allocated IPv6 node subnets", m.allocated_v6);
            manager.register("num_v4_host_subnets", "IPv4 node subnets of the cluster networks", m.available_v4);
            manager.register("num_v6_host_subnets", "IPv6 node subnets of the cluster networks", m.available_v6);
            registry.register_collector(Box::new(ApiCalls(api.clone())));
        });
        metrics
    }

    pub(crate) fn measured(&self, measure: Measure) {
        let observe = |stage, took: Duration| {
            self.propagation.get_or_create(&StageLabel { stage }).observe(took.as_secs_f64());
        };
        match measure {
            Measure::PodCreation(took) => self.pod_creation.observe(took.as_secs_f64()),
            Measure::Sync(took) => self.sync.observe(took.as_secs_f64()),
            Measure::Propagation(Stage::Northbound, took) => {
                self.nb_timestamp.set(now());
                observe("northbound", took);
            }
            Measure::Propagation(Stage::Southbound, took) => {
                self.sb_timestamp.set(now());
                observe("southbound", took);
            }
            Measure::Propagation(Stage::Nodes, took) => observe("nodes", took),
        }
    }

    pub(crate) fn restored(&self, table: &'static str) {
        self.restored.get_or_create(&TableLabel { table }).inc();
    }

    /// Sets the gauges that are read from the engine.
    pub(crate) fn update(&self, engine: &Engine, now: Duration) {
        let mut parked = PARKED_KINDS.map(|kind| (kind, 0));
        for (owner, _) in engine.parked() {
            for (kind, count) in &mut parked {
                *count += i64::from(*kind == owner.kind());
            }
        }
        for (kind, count) in parked {
            self.parked.get_or_create(&KindLabel { kind }).set(count);
        }
        let nb_cfg_lag = engine.nb_cfg_unacknowledged_since().map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.nb_cfg_lag.set(nb_cfg_lag.as_secs_f64());
        let behind = engine.northd_behind_since().map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.northd_behind.set(behind.as_secs_f64());
        self.backlog.set(i64::try_from(engine.backlog()).unwrap_or(i64::MAX));
        // A standby has no allocator: its gauges must not keep the values of an earlier term.
        let allocator = engine.allocator();
        let subnets = |family| allocator.map_or((0, 0), |allocator| allocator.subnet_counts(family));
        let small = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        self.quarantined.set(small(allocator.map_or(0, |allocator| allocator.quarantine().len() as u128)));
        let [(v4, all_v4), (v6, all_v6)] = netmodel::Family::BOTH.map(subnets);
        self.allocated_v4.set(small(v4));
        self.allocated_v6.set(small(v6));
        self.available_v4.set(small(all_v4));
        self.available_v6.set(small(all_v6));
    }
}

/// API calls by verb and outcome, read at each scrape.
#[derive(Debug)]
struct ApiCalls(Api);

impl Collector for ApiCalls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Calls to the Kubernetes API, by verb and outcome";
        let mut family = encoder.encode_descriptor("ovnkube_controller_api_calls", help, None, MetricType::Counter)?;
        for (verb, outcome, count) in self.0.calls().iter().filter(|(.., count)| *count > 0) {
            let labels = [("verb", verb.as_str()), ("outcome", outcome.as_str())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
