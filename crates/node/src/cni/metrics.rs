//! What the CNI server measures, under the names that dashboards know.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use telemetry::Telemetry;

use crate::switch::ports::Ports;

/// A command and how it ended; `err` is what dashboards look for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    command: &'static str,
    err: &'static str,
}

#[derive(Debug, Clone)]
pub(super) struct Metrics {
    requests: Family<Label, Histogram, fn() -> Histogram>,
    pub(super) filter_repairs: Counter,
    pub(super) ports_recreated: Counter,
    pub(super) lost: Gauge,
}

/// From a millisecond to a minute.
fn seconds() -> Histogram {
    Histogram::new([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0])
}

impl Metrics {
    pub(super) fn register(telemetry: &Telemetry, ports: &Ports) -> Self {
        let metrics = Self {
            requests: Family::new_with_constructor(seconds),
            filter_repairs: Counter::default(),
            ports_recreated: Counter::default(),
            lost: Gauge::default(),
        };
        telemetry.registry(|registry| {
            let own = registry.sub_registry_with_prefix("ovnkube_node");
            let help = "How long requests of the container runtime took, by command and whether they failed";
            own.register("cni_request_duration_seconds", help, metrics.requests.clone());
            let help = "Transactions by which ports of pods were made and removed";
            own.register("port_transactions", help, ports.transactions());
            let help =
                "Interfaces of pods whose nftables chain was missing or changed and was restored (userspace datapath)";
            own.register("pod_filter_repairs", help, metrics.filter_repairs.clone());
            let help = "Ports of running pods that were deleted or changed on the switch and were recreated";
            own.register("pod_ports_recreated", help, metrics.ports_recreated.clone());
            let help = "Running pods whose interface was deleted: they have no network until they are created again";
            own.register("pods_without_network", help, metrics.lost.clone());
        });
        metrics
    }

    pub(super) fn observe(&self, command: &'static str, good: bool, took: Duration) {
        let label = Label { command, err: if good { "false" } else { "true" } };
        self.requests.get_or_create(&label).observe(took.as_secs_f64());
    }
}
