//! Effects: API writes, Events and log lines that follow commits, and measurements.

use std::time::Duration;

use objects::{Condition, Name};

use crate::identity::Owner;

/// The object that an effect is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// As in the API, such as `Pod`.
    pub kind: &'static str,
    /// None for cluster-scoped kinds.
    pub namespace: Option<Name>,
    /// Without the namespace.
    pub name: Box<str>,
    /// An effect must not hit another object of the same name.
    pub uid: Name,
}

/// Something to be done outside the northbound database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write annotations on the object with this UID; [`crate::Engine::patched`] takes the outcome.
    Annotate {
        /// To be passed to `patched`.
        owner: Owner,
        /// A node or pod; the write is conditional on its UID.
        object: ObjectRef,
        /// Keys and values; other annotations stay.
        annotations: Vec<(&'static str, String)>,
    },
    /// Write a node's condition `NetworkUnavailable`; [`crate::Engine::node_network_written`] takes the outcome.
    NodeNetwork {
        /// The Node that the condition is of.
        object: ObjectRef,
        /// Whether its network works: the condition has the opposite status.
        available: bool,
        /// The condition's `reason`.
        reason: &'static str,
        /// The condition's `message`.
        message: String,
    },
    /// Write the condition of a policy's status on the object with this UID; [`crate::Engine::patched`] takes the outcome.
    Condition {
        /// To be passed to `patched`.
        owner: Owner,
        /// The AdminNetworkPolicy or BaselineAdminNetworkPolicy.
        object: ObjectRef,
        /// The condition; without a transition time, the time of the write is used.
        condition: Condition,
    },
    /// Log a warning about an object, and create an Event.
    Warn {
        /// The object that the Event regards.
        object: ObjectRef,
        /// The Event's `reason`.
        reason: &'static str,
        /// The problem and its remedy.
        message: String,
        /// For the log only: names objects of other namespaces, which the Event's readers may not see.
        detail: Option<String>,
    },
    /// Report rows that another client had changed or deleted and that were restored.
    Restored {
        /// Whose rows they are.
        owner: Owner,
        /// The owner's object, if it has one.
        object: Option<ObjectRef>,
        /// In the order in which they were restored.
        rows: Vec<RestoredRow>,
    },
    /// Log that the problem of an earlier [`Effect::Warn`] is gone.
    Resolved {
        /// Object of the warning.
        object: ObjectRef,
        /// Reason of the warning.
        reason: &'static str,
    },
    /// Log that rows of another controller are kept: owners that replace them are parked or waiting.
    LeftoversKept {
        /// How many rows are kept.
        rows: usize,
        /// The first few of these owners.
        waiting_for: String,
    },
    /// Remove a chassis without a node from the southbound database; [`crate::Engine::chassis_removed`] takes the outcome.
    RemoveChassis {
        /// `Chassis.name`: the system ID of the host.
        name: Box<str>,
    },
    /// Read a namespace; [`crate::Engine::namespace_checked`] takes the reply.
    CheckNamespace {
        /// Where the policy was that is deleted.
        name: Name,
        /// Number of the check: replies to older ones are ignored.
        check: u64,
    },
    /// Record a measurement.
    Measured(Measure),
}

/// A row that another client had changed, and that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredRow {
    /// As the schema of `OVN_Northbound` names it.
    pub table: &'static str,
    /// The row's name, or its UUID if it has none.
    pub name: String,
}

/// Outcome of a write of annotations or of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchOutcome {
    /// The API server has it.
    Done,
    /// The object was deleted or replaced; the watch shows it.
    ObjectGone,
    /// Neither written nor gone; the engine retries.
    Failed,
}

/// A stage of the propagation of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// From the event on the object to the northbound commit.
    Northbound,
    /// From the commit to northd's acknowledgement in the southbound database.
    Southbound,
    /// From the commit to the acknowledgement of the last ready node.
    Nodes,
}

/// A measurement, for the histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// From the first event of a pod to its annotation.
    PodCreation(Duration),
    /// Time that one change spent in a stage.
    Propagation(Stage, Duration),
    /// From the takeover to the end of the resync.
    Sync(Duration),
}
