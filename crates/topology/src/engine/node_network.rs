//! The node condition `NetworkUnavailable`: retried until written, or until it no longer matters.
//!
//! One write per node is in flight. A newer status waits for the outcome of the older one, so that the older one cannot
//! arrive last.

use std::collections::BTreeMap;
use std::time::Duration;

use backoff::Backoff;

use super::effect::{Effect, ObjectRef, PatchOutcome};
use super::{Engine, Leading};
use crate::identity::Owner;
use crate::store::Store;

/// First and longest delay before a failed write is retried.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// What the condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkStatus {
    pub(super) available: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Debug, Clone)]
struct Write {
    object: ObjectRef,
    status: NetworkStatus,
    attempts: u32,
    /// When it is retried; none while it is in flight.
    due: Option<Duration>,
    /// To be written as soon as this one is answered.
    newer: Option<(ObjectRef, NetworkStatus)>,
}

impl Write {
    fn effect(&self) -> Effect {
        let NetworkStatus { available, reason, message } = self.status.clone();
        Effect::NodeNetwork { object: self.object.clone(), available, reason, message }
    }
}

/// The writes that have not succeeded yet, by node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeNetworks(BTreeMap<Box<str>, Write>);

impl NodeNetworks {
    /// Writes the condition; supersedes a pending one.
    pub(super) fn set(&mut self, object: ObjectRef, status: NetworkStatus, effects: &mut Vec<Effect>) {
        if let Some(write) = self.0.get_mut(&object.name)
            && write.due.is_none()
        {
            write.newer = Some((object, status));
            return;
        }
        let name = object.name.clone();
        let write = Write { object, status, attempts: 0, due: None, newer: None };
        effects.push(write.effect());
        self.0.insert(name, write);
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.0.values().filter_map(|write| write.due).min()
    }
}

impl Leading {
    /// Whether it still matters: the same node exists, and its state is as the write says.
    fn matters(&self, write: &Write, store: &Store) -> bool {
        let node = store.node(&write.object.name).filter(|node| node.uid == write.object.uid);
        node.is_some_and(|node| match write.status.available {
            true => node.network_unavailable == Some(true),
            false => self.parked.contains_key(&Owner::Node(node.name.clone())),
        })
    }
}

impl Engine {
    /// Takes the outcome of [`Effect::NodeNetwork`].
    pub fn node_network_written(&mut self, name: &str, uid: &str, outcome: PatchOutcome, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let ours = |write: &&mut Write| write.due.is_none() && &*write.object.uid == uid;
        let Some(write) = leading.node_networks.0.get_mut(name).filter(ours) else { return };
        if let Some((object, status)) = write.newer.take() {
            *write = Write { object, status, attempts: 0, due: None, newer: None };
            self.effects.push(write.effect());
            return;
        }
        // The API also answers with a conflict on concurrent writes; whether the node is gone, the watch shows.
        let there = self.store.node(name).is_some_and(|node| &*node.uid == uid);
        if outcome == PatchOutcome::Done || !there {
            leading.node_networks.0.remove(name);
            return;
        }
        write.due = Some(now + RETRY.delay(write.attempts, 1.0));
        write.attempts += 1;
    }

    /// Retries the writes that are due.
    pub(super) fn retry_node_networks(&mut self, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let due = |write: &Write| write.due.is_some_and(|due| due <= now);
        let names: Vec<Box<str>> =
            leading.node_networks.0.iter().filter(|(_, write)| due(write)).map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(mut write) = leading.node_networks.0.remove(&name) else { continue };
            if leading.matters(&write, &self.store) {
                write.due = None;
                self.effects.push(write.effect());
                leading.node_networks.0.insert(name, write);
            }
        }
    }
}
