//! What the engine wants done outside the database: annotations, conditions, Events, figures.

use kubernetes::{Note, ObjectReference, Recorder, Severity};
use ovsdb::client::Client;
use topology::Effect;
use topology::engine::{Measure, ObjectRef};
use topology::store::ObjectKind;

use crate::metrics::Metrics;
use crate::patches::Patches;
use crate::repairs::Repairs;

/// Where effects go. Nothing of it keeps its caller waiting.
pub(crate) struct Outlet {
    pub(crate) patches: Patches,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) southbound: Client,
    pub(crate) repairs: Repairs,
}

impl Outlet {
    /// Sees to it that an effect is done.
    pub(crate) fn carry_out(&self, effect: Effect) {
        match effect {
            Effect::Annotate { owner, object, annotations } => self.patches.annotate(owner, &object, &annotations),
            Effect::Condition { owner, object, condition } => self.patches.condition(owner, &object, &condition),
            Effect::NodeNetwork { object, available, reason, message } => {
                self.patches.node_network(&object, available, reason, &message);
            }
            Effect::Warn { object, reason, message, detail } => {
                self.metrics.warnings.inc();
                tracing::warn!(
                    kind = object.kind,
                    namespace = object.namespace.as_deref(),
                    name = &*object.name,
                    reason,
                    detail = detail.as_deref(),
                    "{message}"
                );
                self.record(object, reason, message);
            }
            Effect::Restored { owner, object, rows } => self.repairs.restored(&owner, object, &rows, self),
            Effect::Healed { object, reason } => tracing::info!(
                kind = object.kind,
                namespace = object.namespace.as_deref(),
                name = &*object.name,
                reason,
                "what was wrong with it is over"
            ),
            Effect::LeftoversKept { rows, waiting_for } => tracing::warn!(
                rows,
                waiting_for,
                "rows of the previous controller are kept: what replaces them is parked; they go when it is served"
            ),
            Effect::ForgetChassis { name } => {
                self.patches.forget_chassis(self.southbound.clone(), name);
            }
            Effect::LookAtNamespace { name, question } => self.patches.look_at_namespace(name, question),
            Effect::Measured(measure) => {
                if let Measure::Sync(took) = measure {
                    tracing::info!(seconds = took.as_secs_f64(), "everything was reviewed");
                }
                self.metrics.measured(measure);
            }
        }
    }

    /// Writes a warning about an object as an Event.
    pub(crate) fn record(&self, object: ObjectRef, reason: &str, message: String) {
        let object = ObjectReference {
            api_version: ObjectKind::of_name(object.kind).map_or_else(|| "v1".into(), ObjectKind::api_version),
            kind: object.kind.into(),
            namespace: object.namespace.as_deref().unwrap_or_default().into(),
            name: object.name.into(),
            uid: object.uid.as_ref().into(),
        };
        self.recorder.record(Note { object, severity: Severity::Warning, reason: reason.into(), message });
    }
}
