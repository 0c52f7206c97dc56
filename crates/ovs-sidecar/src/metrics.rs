//! Metrics of the role.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unit {
    unit: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UnitAction {
    unit: String,
    action: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DaemonLabel {
    daemon: String,
}

/// Clones share the values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Families>);

#[derive(Debug, Default)]
struct Families {
    active: Family<Unit, Gauge>,
    actions: Family<UnitAction, Counter>,
    lines: Family<DaemonLabel, Counter>,
    gaps: Family<DaemonLabel, Counter>,
}

impl Metrics {
    pub(crate) fn new(telemetry: &Telemetry) -> Self {
        let metrics = Self::default();
        let families = &metrics.0;
        telemetry.registry(|registry| {
            registry.register("ovnkube_ovs_unit_active", "1 if the unit of Open vSwitch runs", families.active.clone());
            registry.register(
                "ovnkube_ovs_unit_actions",
                "Units that were enabled, reset or started",
                families.actions.clone(),
            );
            registry.register(
                "ovnkube_ovs_log_lines",
                "Lines of Open vSwitch's logs that were printed",
                families.lines.clone(),
            );
            registry.register("ovnkube_ovs_log_gaps", "Places where lines of a log are missing", families.gaps.clone());
        });
        metrics
    }

    pub(crate) fn set_active(&self, unit: &str, is_active: bool) {
        self.0.active.get_or_create(&Unit { unit: unit.to_owned() }).set(i64::from(is_active));
    }

    pub(crate) fn acted(&self, action: &str, unit: &str) {
        let label = UnitAction { unit: unit.to_owned(), action: action.to_owned() };
        self.0.actions.get_or_create(&label).inc();
    }

    pub(crate) fn printed(&self, daemon: &str, lines: u64, gaps: u64) {
        let label = DaemonLabel { daemon: daemon.to_owned() };
        self.0.lines.get_or_create(&label).inc_by(lines);
        self.0.gaps.get_or_create(&label).inc_by(gaps);
    }
}
