//! What the engine wants done outside the database, and what it measured.

use std::time::Duration;

use crate::identity::{Name, Owner};
use crate::objects::Condition;

/// An object that something is said about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// `Pod`, `Node`, `Namespace`.
    pub kind: &'static str,
    /// Its namespace, if it has one.
    pub namespace: Option<Name>,
    /// Its name.
    pub name: Box<str>,
    /// Its identity.
    pub uid: Name,
}

/// Something to be done outside the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Annotations to be written, onto the object of this identity and no other.
    Annotate {
        /// Whose answer it is.
        owner: Owner,
        /// The object.
        object: ObjectRef,
        /// Keys and values.
        annotations: Vec<(&'static str, String)>,
    },
    /// A node's condition `NetworkUnavailable` to be set; [`crate::Engine::node_network_written`] takes the outcome.
    NodeNetwork {
        /// The node.
        object: ObjectRef,
        /// Whether its network works.
        available: bool,
        /// In one word.
        reason: &'static str,
        /// What a person reads.
        message: String,
    },
    /// The condition of a policy's status to be written, onto the object of this identity and no other.
    Condition {
        /// Whose answer it is.
        owner: Owner,
        /// The policy.
        object: ObjectRef,
        /// What it shall say; if it does not say since when, from now on.
        condition: Condition,
    },
    /// Something is wrong with an object.
    Warn {
        /// The object.
        object: ObjectRef,
        /// In one word.
        reason: &'static str,
        /// What is wrong, and what to do about it.
        message: String,
        /// What only administrators may read.
        detail: Option<String>,
    },
    /// Rows that another client had changed or deleted are as they should be again.
    Restored {
        /// Whose rows they are.
        owner: Owner,
        /// The object behind it, if there is one.
        object: Option<ObjectRef>,
        /// The rows.
        rows: Vec<RestoredRow>,
    },
    /// What somebody was warned of is over.
    Healed {
        /// The object.
        object: ObjectRef,
        /// What was wrong, in one word.
        reason: &'static str,
    },
    /// Rows of another controller stay, because what replaces them is parked or waits.
    LeftoversKept {
        /// How many.
        rows: usize,
        /// A few of the objects that they wait for.
        waiting_for: String,
    },
    /// A chassis that no node has any more can be removed; [`crate::Engine::chassis_removed`] takes the outcome.
    ForgetChassis {
        /// Its name.
        name: Box<str>,
    },
    /// The API is to be asked what has become of a namespace; [`crate::Engine::namespace_looked_at`] takes the answer.
    LookAtNamespace {
        /// The namespace.
        name: Name,
        /// Which question it is: an answer to an older one may be too old.
        question: u64,
    },
    /// Something was measured.
    Measured(Measure),
}

/// A row that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredRow {
    /// Its table.
    pub table: &'static str,
    /// Its name; its identity if it has none.
    pub name: String,
}

/// What became of annotations, or of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchOutcome {
    /// They are written.
    Done,
    /// The object is gone, or is another one: the watch tells the rest.
    ObjectGone,
    /// It did not work; it may later.
    Failed,
}

/// The stages of a change's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// From the object's change to the northbound commit.
    Northbound,
    /// From there to northd's answer in the southbound database.
    Southbound,
    /// From the northbound commit to the last node's flows.
    Nodes,
}

/// Something that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// From a pod's first sight to its annotation.
    PodCreation(Duration),
    /// A stage of a change's way.
    Propagation(Stage, Duration),
    /// From the promotion to the end of the first review.
    Sync(Duration),
}
