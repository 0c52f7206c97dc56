//! Metrics that only a member of this form has.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use telemetry::Telemetry;

use crate::kind::Kind;
use crate::metrics::Registrar;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    db_name: &'static str,
}

/// Metrics of one database; clones share their values.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) active: Gauge,
    pub(crate) complete: Gauge,
    pub(crate) replicating: Gauge,
}

impl Metrics {
    pub(crate) fn new(kind: Kind, telemetry: &Telemetry) -> Self {
        telemetry.registry(|registry| Self::registered(&Labels { db_name: kind.schema() }, Registrar(registry)))
    }

    fn registered(labels: &Labels, mut m: Registrar<'_>) -> Self {
        let active: Family<Labels, Gauge> = m.register("ovn_db_active", "1 if this server accepts writes, else 0");
        let complete: Family<Labels, Gauge> =
            m.register("ovn_db_complete", "1 if this server has had all data and may become active, else 0");
        let replicating: Family<Labels, Gauge> =
            m.register("ovn_db_replicating", "1 if this server follows the changes of the active one, else 0");
        Self {
            active: active.get_or_create_owned(labels),
            complete: complete.get_or_create_owned(labels),
            replicating: replicating.get_or_create_owned(labels),
        }
    }
}
