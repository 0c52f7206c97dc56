//! Runs the engine's effects: API writes, Events, log lines, metrics.

use kubernetes::{Note, ObjectReference, Recorder, Severity};
use objects::ObjectKind;
use ovsdb::client::Client;
use topology::Effect;
use topology::engine::{Measure, ObjectRef};

use crate::api_writer::ApiWriter;
use crate::messages::LEFTOVERS_KEPT;
use crate::metrics::Metrics;
use crate::repairs::Repairs;

/// Runs effects; never blocks its caller.
pub(crate) struct EffectRunner {
    pub(crate) api_writer: ApiWriter,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) southbound: Client,
    pub(crate) repairs: Repairs,
}

impl EffectRunner {
    /// Dispatches an effect to its writer, or logs it; writes run in tasks of their own.
    pub(crate) fn run(&self, effect: Effect) {
        match effect {
            Effect::Annotate { owner, object, annotations } => self.api_writer.annotate(owner, &object, &annotations),
            Effect::Condition { owner, object, condition } => self.api_writer.condition(owner, &object, &condition),
            Effect::NodeNetwork { object, available, reason, message } => {
                self.api_writer.node_network(&object, available, reason, &message);
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
            Effect::Resolved { object, reason } => tracing::info!(
                kind = object.kind,
                namespace = object.namespace.as_deref(),
                name = &*object.name,
                reason,
                "warning resolved"
            ),
            Effect::LeftoversKept { rows, waiting_for } => tracing::warn!(rows, waiting_for, "{LEFTOVERS_KEPT}"),
            Effect::RemoveChassis { name } => {
                self.api_writer.remove_chassis(self.southbound.clone(), name);
            }
            Effect::CheckNamespace { name, check } => self.api_writer.check_namespace(name, check),
            Effect::Measured(measure) => {
                if let Measure::Sync(took) = measure {
                    tracing::info!(milliseconds = u64::try_from(took.as_millis()).ok(), "resync complete");
                }
                self.metrics.measured(measure);
            }
        }
    }

    /// Creates a warning Event on an object.
    pub(crate) fn record(&self, object: ObjectRef, reason: &str, message: String) {
        let object = ObjectReference {
            api_version: ObjectKind::from_name(object.kind).map_or_else(|| "v1".into(), ObjectKind::api_version),
            kind: object.kind.into(),
            namespace: object.namespace.as_deref().unwrap_or_default().into(),
            name: object.name.into(),
            uid: object.uid.as_ref().into(),
        };
        self.recorder.record(Note { object, severity: Severity::Warning, reason: reason.into(), message });
    }
}
