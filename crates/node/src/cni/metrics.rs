//! Metrics of the CNI server.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use telemetry::Telemetry;

use crate::switch::ports::Ports;

/// Labels of a request; `err` is `true` or `false`.
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

/// Buckets from a millisecond to a minute.
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
            let help = "Duration of CNI requests in seconds, by command and whether they failed";
            own.register("cni_request_duration_seconds", help, metrics.requests.clone());
            let help = "OVSDB transactions that create or remove ports of pods";
            own.register("port_transactions", help, ports.transactions());
            let help =
                "Interfaces of pods whose nftables chain was missing or changed and was restored (userspace datapath)";
            own.register("pod_filter_repairs", help, metrics.filter_repairs.clone());
            let help = "Ports of running pods that another client deleted or changed, and that were recreated";
            own.register("pod_ports_recreated", help, metrics.ports_recreated.clone());
            let help = "Running pods whose interface was deleted: they have no network until they are recreated";
            own.register("pods_without_network", help, metrics.lost.clone());
        });
        // Alerts compare failed with successful requests, and neither exists after a start without them.
        for err in ["false", "true"] {
            let _ = metrics.requests.get_or_create(&Label { command: "ADD", err });
        }
        metrics
    }

    pub(super) fn observe(&self, command: &'static str, good: bool, took: Duration) {
        let label = Label { command, err: if good { "false" } else { "true" } };
        self.requests.get_or_create(&label).observe(took.as_secs_f64());
    }
}
