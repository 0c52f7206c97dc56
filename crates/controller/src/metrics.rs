//! What the controller counts and measures, under the names that dashboards know.

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

/// A stage of a change's way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

/// The kinds of those who can be parked.
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

/// A kind of object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// What the controller counts and measures.
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
    resting: Gauge,
    unanswered: Gauge<f64, AtomicU64>,
    pub(crate) lease_unrenewed: Gauge<f64, AtomicU64>,
    northd_behind: Gauge<f64, AtomicU64>,
    pub(crate) northd_resets: Counter,
    restored: Family<TableLabel, Counter>,
    allocated_v4: Gauge,
    allocated_v6: Gauge,
    available_v4: Gauge,
    available_v6: Gauge,
}

/// From a millisecond to half a minute.
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
            resting: Gauge::default(),
            unanswered: Gauge::default(),
            lease_unrenewed: Gauge::default(),
            northd_behind: Gauge::default(),
            northd_resets: Counter::default(),
            restored: Family::default(),
            allocated_v4: Gauge::default(),
            allocated_v6: Gauge::default(),
            available_v4: Gauge::default(),
            available_v6: Gauge::default(),
        };
        telemetry.registry(|registry| {
            let own = registry.sub_registry_with_prefix("ovnkube_controller");
            let m = metrics.clone();
            own.register("pod_creation_latency_seconds", "From a pod's first sight to its annotation", m.pod_creation);
            own.register("sync_duration_seconds", "The first review of everything after taking over", m.sync);
            own.register(
                "propagation_seconds",
                "A change's way: object to northbound commit, from there to the southbound database, and to the last node",
                m.propagation,
            );
            own.register("leader", "1 if this instance leads", m.leader);
            own.register("nb_commits", "Transactions that were committed", m.commits);
            own.register("nb_operations", "Operations in those transactions", m.operations);
            own.register("nb_refused", "Transactions that the database refused", m.refused);
            own.register("warnings", "Warnings about objects", m.warnings);
            own.register("nb_e2e_timestamp", "When a followed change was committed, in seconds since 1970", m.nb_timestamp);
            own.register(
                "sb_e2e_timestamp",
                "When a followed change was seen in the southbound database, in seconds since 1970",
                m.sb_timestamp,
            );
            own.register("parked_objects", "Objects that are parked because something is wrong with them", m.parked);
            own.register("backlog", "Objects that wait for their turn", m.backlog);
            own.register("resting_addresses", "Addresses, subnets and numbers that are not free yet", m.resting);
            own.register(
                "nb_cfg_unanswered_seconds",
                "For how long northd or a working node has owed an answer to nb_cfg",
                m.unanswered,
            );
            own.register(
                "lease_unrenewed_seconds",
                "Time since the leader last renewed its Lease; 0 on a standby",
                m.lease_unrenewed,
            );
            own.register(
                "northd_behind_seconds",
                "Time since ovn-northd owes a copy of nb_cfg to the southbound database; 0 if it does not",
                m.northd_behind,
            );
            own.register("northd_resets", "Times that ovn-northd was told to forget its cluster state", m.northd_resets);
            own.register(
                "nb_rows_restored",
                "Northbound rows that another client changed or deleted and that were restored, by table",
                m.restored,
            );
            registry.register(
                "ovnkube_resource_retry_failures",
                "Writes to the API that failed and are tried again",
                metrics.retries.clone(),
            );
            let manager = registry.sub_registry_with_prefix("ovnkube_clustermanager");
            let m = metrics.clone();
            manager.register("allocated_v4_host_subnets", "IPv4 subnets that nodes have", m.allocated_v4);
            manager.register("allocated_v6_host_subnets", "IPv6 subnets that nodes have", m.allocated_v6);
            manager.register("num_v4_host_subnets", "IPv4 subnets that there are", m.available_v4);
            manager.register("num_v6_host_subnets", "IPv6 subnets that there are", m.available_v6);
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

    /// What can be read off the engine, now and then.
    pub(crate) fn survey(&self, engine: &Engine, now: Duration) {
        let mut parked = PARKED_KINDS.map(|kind| (kind, 0));
        for (owner, _) in engine.parked() {
            for (kind, count) in &mut parked {
                *count += i64::from(*kind == owner.kind());
            }
        }
        for (kind, count) in parked {
            self.parked.get_or_create(&KindLabel { kind }).set(count);
        }
        let unanswered = engine.unanswered_since().map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.unanswered.set(unanswered.as_secs_f64());
        let behind = engine.northd_behind_since().map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.northd_behind.set(behind.as_secs_f64());
        self.backlog.set(i64::try_from(engine.backlog()).unwrap_or(i64::MAX));
        // Who does not lead, or not any more, knows of nothing: an old number would be believed.
        let allocator = engine.allocator();
        let subnets = |v6| allocator.map_or((0, 0), |allocator| allocator.subnet_counts(v6));
        let small = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        self.resting.set(small(allocator.map_or(0, |allocator| allocator.quarantine().len() as u128)));
        let ((v4, all_v4), (v6, all_v6)) = (subnets(false), subnets(true));
        self.allocated_v4.set(small(v4));
        self.allocated_v6.set(small(v6));
        self.available_v4.set(small(all_v4));
        self.available_v6.set(small(all_v6));
    }
}

/// The calls to the API, read when somebody asks.
#[derive(Debug)]
struct ApiCalls(Api);

impl Collector for ApiCalls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Calls to the Kubernetes API";
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
