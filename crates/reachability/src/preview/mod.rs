//! Previews the effect of objects on a northbound database, in memory.
//!
//! ```text
//!  objects ──put──▶ Engine ──transactions──▶ database in memory ──▶ snapshot ──differences──▶ what changed, by object
//!     ▲────────────── annotations ─────────────────┘
//! ```
//!
//! The database is empty, or starts with the rows of a real one. [`Preview::settle`] simulates controller, API server and
//! nodes until nothing is left to do.

mod difference;
mod label;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use netmodel::SubnetPoolError;
use objects::{ObjectKey, ObjectKind, POD_NETWORKS, record_network};
use ovn_schema::northbound;
use ovsdb::memory::Database;
use ovsdb::operation::RowValues;
use ovsdb::replica::{Replica, Snapshot};
use ovsdb::schema::DatabaseSchema;
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use serde_json::{Map, Value, json};
use topology::engine::{Next, ObjectRef, PatchOutcome};
use topology::plan::TABLES;
use topology::settings::ClusterSettings;
use topology::{Effect, Engine, Observed};

pub use difference::{Column, Difference, RowChange, differences};
pub use label::{label, label_columns};

/// The simulated time between two steps.
const STEP: Duration = Duration::from_secs(1);

/// Why no preview could be computed; refused objects are part of a preview.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// Node subnets cannot be allocated.
    #[error(transparent)]
    Subnets(#[from] SubnetPoolError),
    /// The initial rows violate the schema.
    #[error("the rows of the database do not match its schema: {0}")]
    Rows(String),
    /// The simulation did not end; the number of steps.
    #[error("the plan is not complete after {0} steps: this is a bug in ovnkube, please report it")]
    Unsettled(usize),
}

/// An Event that the controller would write about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// As in the API; `Cluster` and `Selector` for owners that are not objects.
    pub kind: &'static str,
    /// `namespace/name`, or the name alone.
    pub name: String,
    /// Reason of the Event that the controller would write.
    pub reason: &'static str,
    /// The problem and its remedy.
    pub message: String,
}

type Key = (ObjectKind, ObjectKey);

/// Objects, the engine and a database in memory.
#[derive(Debug)]
pub struct Preview {
    engine: Engine,
    database: Database,
    replica: Replica,
    objects: BTreeMap<Key, Value>,
    now: Duration,
    warned: BTreeMap<(&'static str, String), (&'static str, String)>,
}

impl Preview {
    /// Starts with an empty database that has all features.
    pub fn new(settings: ClusterSettings) -> Result<Self, PreviewError> {
        Self::over(settings, northbound::schema(), Vec::new())
    }

    /// Starts with the rows of a database. Features that its schema lacks are not used.
    pub fn over(
        mut settings: ClusterSettings,
        schema: DatabaseSchema,
        rows: Vec<(String, Uuid, RowValues)>,
    ) -> Result<Self, PreviewError> {
        settings.features = northbound::DATABASE.check(&schema).features();
        let mut begin = Transaction::new();
        if !rows.iter().any(|(table, ..)| table == "NB_Global") {
            begin.insert_with_uuid("NB_Global", Uuid::from_bytes([1; 16]), Row::new());
        }
        for (table, uuid, values) in rows {
            begin.insert_with_uuid(&table, uuid, Row(values));
        }
        let replica = Replica::of(&schema, &TABLES);
        let mut preview = Self {
            engine: Engine::new(settings),
            database: Database::new(schema),
            replica,
            objects: BTreeMap::new(),
            now: Duration::ZERO,
            warned: BTreeMap::new(),
        };
        preview.commit(&begin).map_err(|(_, why)| PreviewError::Rows(why))?;
        Ok(preview)
    }

    /// Adds or replaces an object; an error if it cannot be parsed.
    pub fn put(&mut self, kind: ObjectKind, object: Value) -> Result<(), String> {
        let observed = observed(kind, &object)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = (kind, ObjectKey::new(text("namespace"), text("name")));
        self.objects.insert(key, object);
        // Before it leads, objects are passed as lists.
        if self.engine.is_leading() {
            self.engine.observe(observed, self.now);
        }
        Ok(())
    }

    /// Simulates controller, API server and nodes until nothing is left to do.
    pub fn settle(&mut self) -> Result<(), PreviewError> {
        if !self.engine.is_leading() {
            self.list();
            self.engine.promote(&self.snapshot(), false, self.now)?;
        }
        let limit = 10_000 + 10 * self.objects.len();
        for _ in 0..limit {
            self.now += STEP;
            self.acknowledge();
            let changed = self.run_effects();
            match self.engine.next(&self.snapshot(), self.now) {
                Next::Commit(transaction) => match self.commit(&transaction) {
                    Ok(()) => self.engine.committed(&self.snapshot(), self.now),
                    Err((owner, why)) => self.engine.refused(owner.as_deref(), &why, self.now),
                },
                Next::Again => {}
                Next::Idle if changed || self.engine.backlog() > 0 => {}
                Next::Idle => match self.engine.deadline() {
                    Some(due) => self.now = self.now.max(due),
                    None => return Ok(()),
                },
            }
        }
        Err(PreviewError::Unsettled(limit))
    }

    /// The current rows.
    pub fn snapshot(&self) -> Snapshot {
        self.replica.snapshot()
    }

    /// The engine, for its store and allocations.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The objects, with the annotations that were written.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectKind, &Value)> {
        self.objects.iter().map(|((kind, _), object)| (*kind, object))
    }

    /// Objects that would be parked, with the reasons.
    pub fn refused(&self) -> Vec<ObjectEvent> {
        let parked = self.engine.parked().map(|(owner, refusal)| ObjectEvent {
            kind: owner.kind(),
            name: owner.name(),
            reason: refusal.reason,
            message: refusal.to_string(),
        });
        parked.collect()
    }

    /// Events about objects that are not parked.
    pub fn warnings(&self) -> Vec<ObjectEvent> {
        let refused: BTreeSet<(&str, String)> =
            self.engine.parked().map(|(owner, _)| (owner.kind(), owner.name())).collect();
        let warned = self.warned.iter().filter(|((kind, name), _)| !refused.contains(&(*kind, name.clone())));
        let remark = |((kind, name), (reason, message)): (&(&'static str, String), &(&'static str, String))| {
            ObjectEvent { kind, name: name.clone(), reason, message: message.clone() }
        };
        warned.map(remark).collect()
    }

    fn list(&mut self) {
        for kind in ObjectKind::ALL {
            self.engine.observe(Observed::Relisting(kind), self.now);
            for (_, object) in self.objects.iter().filter(|((of, _), _)| *of == kind) {
                // It was parsed in `put`.
                if let Ok(observed) = observed(kind, object) {
                    self.engine.observe(observed, self.now);
                }
            }
            self.engine.observe(Observed::Listed(kind), self.now);
        }
    }

    /// Every chassis acknowledges the newest `nb_cfg`.
    fn acknowledge(&mut self) {
        let snapshot = self.snapshot();
        let global = snapshot.table("NB_Global").and_then(|table| table.iter().next());
        let number = global.and_then(|row| row.integer("nb_cfg")).unwrap_or(0);
        let chassis = self.engine.store().nodes().filter_map(|node| node.chassis.clone());
        let reached = chassis.map(|name| (name, number)).collect();
        self.engine.progress(reached, number, self.now);
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<(), (Option<String>, String)> {
        let (answer, changes) = self.database.transact_with_changes(&BTreeSet::new(), transaction.operations());
        transaction
            .read_reply(answer)
            .map_err(|refusal| (refusal.owner.as_ref().map(ToString::to_string), refusal.to_string()))?;
        self.replica.feed(&changes);
        Ok(())
    }

    /// Runs the engine's effects; returns whether an object changed.
    fn run_effects(&mut self) -> bool {
        let mut changed = false;
        for effect in self.engine.take_effects() {
            match effect {
                Effect::Annotate { owner, object, annotations } => {
                    let outcome = self.annotate(&object, &annotations);
                    self.engine.patched(&owner, &object.uid, outcome, self.now);
                    changed = true;
                }
                Effect::Warn { object, reason, message, .. } => {
                    self.warned.insert((object.kind, name_of(&object)), (reason, message));
                }
                Effect::CheckNamespace { name, check } => {
                    let found = self.engine.store().namespace(&name).cloned();
                    self.engine.namespace_checked(&name, check, found.as_ref(), self.now);
                    changed = true;
                }
                Effect::Resolved { object, .. } => {
                    self.warned.remove(&(object.kind, name_of(&object)));
                }
                _ => {}
            }
        }
        changed
    }

    fn annotate(&mut self, meant: &ObjectRef, annotations: &[(&'static str, String)]) -> PatchOutcome {
        let Some(kind) = ObjectKind::ALL.into_iter().find(|kind| kind.name() == meant.kind) else {
            return PatchOutcome::ObjectGone;
        };
        let key = (kind, ObjectKey::new(meant.namespace.as_deref().unwrap_or_default(), &meant.name));
        let Some(object) = self.objects.get_mut(&key) else { return PatchOutcome::ObjectGone };
        let held = &mut object["metadata"]["annotations"];
        if !held.is_object() {
            *held = Value::Object(Map::new());
        }
        for (key, value) in annotations {
            held[*key] = json!(value);
        }
        if let Some((_, network)) = annotations.iter().find(|(key, _)| *key == POD_NETWORKS) {
            record_network(object, network);
        }
        if let Ok(observed) = observed(kind, object) {
            self.engine.observe(observed, self.now);
        }
        PatchOutcome::Done
    }
}

fn name_of(object: &ObjectRef) -> String {
    match &object.namespace {
        Some(namespace) => format!("{namespace}/{}", object.name),
        None => object.name.to_string(),
    }
}

/// The object as a watch event.
fn observed(kind: ObjectKind, object: &Value) -> Result<Observed, String> {
    Observed::reader(kind)(&object.to_string())
}

#[cfg(test)]
mod tests;
