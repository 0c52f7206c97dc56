//! A simulated controller: the engine with watches, replica, commits and API writes, all subject to faults.

use std::collections::BTreeSet;
use std::time::Duration;

use objects::{Condition, Name, NamespaceFacts, ObjectKind};
use ovsdb::transaction::Transaction;
use topology::engine::{Next, PatchOutcome};
use topology::identity::Owner;
use topology::{ClusterSettings, Effect, Engine};

use crate::support::api::{Api, KINDS, Key, Watches};
use crate::support::database::{Follower, Nb, cell};
use crate::support::faults::{Fault, Faults};
use crate::support::rng::Rng;

/// More steps than any engine here needs: if not idle then, it never will be.
pub(crate) const MAX_STEPS: usize = 10_000;

/// The contents of a patch.
#[derive(Debug)]
enum Payload {
    Annotations(Vec<(&'static str, String)>),
    Condition(Condition),
    /// A node's `NetworkUnavailable`.
    Network {
        available: bool,
    },
}

pub(crate) struct Patch {
    /// The owner of the annotations or condition; none for a node's network.
    owner: Option<Owner>,
    key: Key,
    uid: String,
    payload: Payload,
    /// The incarnation that sent it.
    sender: u64,
}

#[derive(PartialEq, Eq)]
enum Role {
    Standby,
    /// Waits until its replica shows the takeover.
    TakingOver,
    Leading,
}

pub(crate) struct Controller {
    pub(crate) engine: Engine,
    watches: Watches,
    follower: Follower,
    role: Role,
    incarnation: u64,
    number: u64,
    last: Option<String>,
    /// A commit whose reply was lost.
    in_doubt: Option<String>,
    /// A commit that the replica does not show yet.
    awaited: Option<String>,
    /// Patches in flight, of this and earlier incarnations.
    patches: Vec<Patch>,
    /// Namespace checks in flight.
    namespace_checks: Vec<(Name, u64)>,
    pub(crate) warnings: usize,
    /// Chassis to remove now; `unwanted` has all that were ever to be removed.
    forget: Vec<String>,
    pub(crate) unwanted: BTreeSet<String>,
}

impl Controller {
    pub(crate) fn new(settings: &ClusterSettings, nb: &Nb, incarnation: u64) -> Self {
        Self {
            // Some incarnations use small batches, so that related objects are committed separately.
            engine: Engine::new(settings.clone()).with_batch([200, 1, 3, 200][incarnation as usize % 4]),
            watches: Watches::default(),
            follower: Follower::new(nb),
            role: Role::Standby,
            incarnation,
            number: 0,
            last: None,
            in_doubt: None,
            awaited: None,
            patches: Vec::new(),
            namespace_checks: Vec::new(),
            warnings: 0,
            forget: Vec::new(),
            unwanted: BTreeSet::new(),
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.role != Role::Standby
    }

    /// Whether it leads, and no other controller has taken over since.
    pub(crate) fn is_current_leader(&self, nb: &Nb) -> bool {
        let writer = format!("{}:", self.incarnation);
        self.leads() && nb.sequence().is_some_and(|sequence| sequence.starts_with(&writer))
    }

    pub(crate) fn list(&mut self, api: &Api, kind: ObjectKind, now: Duration) {
        for observed in self.watches.list(api, kind) {
            self.engine.observe(observed, now);
        }
    }

    /// Observes at most `most` events of each kind.
    pub(crate) fn watch(&mut self, api: &Api, most: usize, now: Duration, rng: &mut Rng, faults: &mut Faults) {
        self.watch_kinds(api, &KINDS, most, now, rng, faults);
    }

    /// Observes at most `most` events of each of these kinds.
    pub(crate) fn watch_kinds(
        &mut self,
        api: &Api,
        kinds: &[ObjectKind],
        most: usize,
        now: Duration,
        rng: &mut Rng,
        faults: &mut Faults,
    ) {
        for kind in kinds.iter().copied() {
            for observed in self.watches.next(api, kind, most) {
                if faults.inject(Fault::DuplicateEvent, rng) {
                    self.engine.observe(observed.clone(), now);
                }
                self.engine.observe(observed, now);
            }
        }
    }

    pub(crate) fn follow(&mut self, nb: &Nb, most: usize, now: Duration) {
        let (owners, rows) = self.follower.follow(nb, most);
        self.engine.drifted(owners, rows, now);
    }

    fn next_value(&mut self) -> String {
        self.number += 1;
        format!("{}:{}", self.incarnation, self.number)
    }

    /// Takes over from any former leader.
    pub(crate) fn take_over(&mut self, nb: &mut Nb) {
        if KINDS.iter().any(|_| !self.engine.is_complete()) {
            return;
        }
        self.engine.demote();
        self.last = nb.sequence();
        let next = self.next_value();
        let (guarded, _) = cell().guarded(&Transaction::new(), self.last.as_deref(), &next);
        nb.apply(&guarded).unwrap();
        self.last = Some(next);
        self.in_doubt = None;
        self.awaited = None;
        self.role = Role::TakingOver;
    }

    fn fenced(&mut self) {
        self.engine.demote();
        self.role = Role::Standby;
        self.in_doubt = None;
        self.awaited = None;
    }

    /// One step; returns whether there was something to do.
    pub(crate) fn step(
        &mut self,
        nb: &mut Nb,
        late_copies: &mut Vec<Transaction>,
        now: Duration,
        rng: &mut Rng,
        faults: &mut Faults,
    ) -> bool {
        let shown = cell().value_in(&self.follower.snapshot());
        match self.role {
            Role::Standby => return false,
            Role::TakingOver => {
                if shown != self.last {
                    return false;
                }
                self.engine.promote(&self.follower.snapshot(), false, now).unwrap();
                self.role = Role::Leading;
                return true;
            }
            Role::Leading => {}
        }
        if let Some(in_doubt) = self.in_doubt.clone() {
            self.resolve(nb, &in_doubt);
            return true;
        }
        if self.awaited.is_some() {
            if shown == self.awaited {
                self.awaited = None;
                self.engine.committed(&self.follower.snapshot(), now);
                self.collect();
                return true;
            }
            return false;
        }
        for name in std::mem::take(&mut self.forget) {
            let removed = !faults.inject(Fault::ChassisRemovalFails, rng);
            if removed {
                nb.chassis.remove(&name);
            }
            self.engine.chassis_removed(&name, removed, now);
        }
        self.engine.progress(nb.progress(), nb.southbound, now);
        let next = self.engine.next(&self.follower.snapshot(), now);
        self.collect();
        match next {
            Next::Idle => false,
            Next::Again => true,
            Next::Commit(transaction) => {
                self.commit(&transaction, nb, late_copies, now, rng, faults);
                self.collect();
                true
            }
        }
    }

    fn commit(
        &mut self,
        transaction: &Transaction,
        nb: &mut Nb,
        late_copies: &mut Vec<Transaction>,
        now: Duration,
        rng: &mut Rng,
        faults: &mut Faults,
    ) {
        assert!(!transaction.is_empty());
        if std::env::var("SIMULATION_TRACE").is_ok() {
            eprintln!("-- incarnation {} commits (log {}):", self.incarnation, nb.log.len());
            for operation in transaction.operations() {
                eprintln!("   {}", serde_json::to_string(operation).unwrap());
            }
        }
        let next = self.next_value();
        let (guarded, guard) = cell().guarded(transaction, self.last.as_deref(), &next);
        let not_ready = self.engine.store().nodes().filter(|node| !node.ready);
        nb.believed_not_ready = not_ready.filter_map(|node| node.chassis.as_deref().map(String::from)).collect();
        if faults.inject(Fault::RequestLost, rng) {
            // It never arrives, or arrives late.
            self.in_doubt = Some(next);
            late_copies.push(guarded);
            return;
        }
        match nb.apply(&guarded) {
            Err((place, ..)) if place == Some(guard) => self.fenced(),
            Err((_, owner, why)) => self.engine.refused(owner.as_deref(), &why, now),
            Ok(()) => {
                nb.check_isolation(&self.engine);
                nb.check_order();
                if faults.inject(Fault::DuplicateCommit, rng) {
                    assert!(nb.apply(&guarded).is_err(), "a copy took effect");
                }
                if faults.inject(Fault::ReplyLost, rng) {
                    self.in_doubt = Some(next);
                } else {
                    self.awaited = Some(next.clone());
                    self.last = Some(next);
                }
            }
        }
    }

    /// Resolves an in-doubt commit by reading the sequence; one that did not happen is fenced.
    fn resolve(&mut self, nb: &mut Nb, in_doubt: &str) {
        let found = nb.sequence();
        if found.as_deref() == Some(in_doubt) {
            self.last = found;
            self.awaited = self.last.clone();
            self.in_doubt = None;
        } else if found == self.last {
            let fence = self.next_value();
            let (guarded, _) = cell().guarded(&Transaction::new(), self.last.as_deref(), &fence);
            nb.apply(&guarded).unwrap();
            self.last = Some(fence.clone());
            self.in_doubt = None;
            self.engine.abandoned();
            // Nothing is planned before the replica shows the fence.
            self.awaited = Some(fence);
        } else {
            self.fenced();
        }
    }

    fn collect(&mut self) {
        for effect in self.engine.take_effects() {
            match effect {
                Effect::Annotate { owner, object, annotations } => {
                    let kind = if object.kind == "Pod" { ObjectKind::Pod } else { ObjectKind::Node };
                    let namespace = object.namespace.as_deref().unwrap_or_default().to_owned();
                    let key = (kind, namespace, object.name.to_string());
                    let (uid, sender) = (object.uid.to_string(), self.incarnation);
                    let (owner, payload) = (Some(owner), Payload::Annotations(annotations));
                    self.patches.push(Patch { owner, key, uid, payload, sender });
                }
                Effect::Condition { owner, object, condition } => {
                    let kind = ObjectKind::from_name(object.kind).unwrap();
                    let key = (kind, String::new(), object.name.to_string());
                    let (uid, payload) = (object.uid.to_string(), Payload::Condition(condition));
                    self.patches.push(Patch { owner: Some(owner), key, uid, payload, sender: self.incarnation });
                }
                Effect::Warn { message, .. } => {
                    assert!(!message.is_empty());
                    self.warnings += 1;
                }
                Effect::NodeNetwork { object, available, .. } => {
                    let key = (ObjectKind::Node, String::new(), object.name.to_string());
                    let (uid, payload) = (object.uid.to_string(), Payload::Network { available });
                    self.patches.push(Patch { owner: None, key, uid, payload, sender: self.incarnation });
                }
                Effect::RemoveChassis { name } => {
                    self.unwanted.insert(name.to_string());
                    self.forget.push(name.into());
                }
                Effect::CheckNamespace { name, check } => self.namespace_checks.push((name, check)),
                _ => {}
            }
        }
    }

    /// Patches of the former incarnation are still in flight.
    pub(crate) fn inherit(&mut self, former: Self) {
        self.patches.extend(former.patches);
    }

    /// Whether no API call is in flight.
    pub(crate) fn has_no_calls(&self) -> bool {
        self.patches.is_empty() && self.namespace_checks.is_empty()
    }

    /// Completes one namespace check, or one patch in flight.
    pub(crate) fn patch(&mut self, api: &mut Api, now: Duration, rng: &mut Rng, faults: &mut Faults) -> bool {
        if !self.namespace_checks.is_empty() && !faults.inject(Fault::SlowApi, rng) {
            let (name, check) = self.namespace_checks.remove(0);
            let found = api.objects.get(&(ObjectKind::Namespace, String::new(), name.to_string()));
            let found = found.map(|object| NamespaceFacts::parse(&object.to_string()).unwrap());
            self.engine.namespace_checked(&name, check, found.as_ref(), now);
            return true;
        }
        if self.patches.is_empty() {
            return !self.namespace_checks.is_empty();
        }
        if faults.inject(Fault::SlowApi, rng) {
            return true;
        }
        let patch = self.patches.remove(rng.below(self.patches.len()));
        let network = matches!(patch.payload, Payload::Network { .. });
        let outcome = if faults.inject(Fault::ApiFails, rng) || network && faults.inject(Fault::NodeConditionFails, rng)
        {
            PatchOutcome::Failed
        } else if match &patch.payload {
            Payload::Annotations(annotations) => api.annotate(&patch.key, &patch.uid, annotations),
            Payload::Condition(condition) => api.write_condition(&patch.key, &patch.uid, condition),
            Payload::Network { available } => api.write_network_unavailable(&patch.key, &patch.uid, *available),
        } {
            if faults.inject(Fault::ApiReplyLost, rng) { PatchOutcome::Failed } else { PatchOutcome::Done }
        } else {
            PatchOutcome::ObjectGone
        };
        if std::env::var("SIMULATION_TRACE").is_ok() {
            eprintln!("-- patch {:?} {} {:?}: {outcome:?}", patch.key, patch.uid, patch.payload);
        }
        if patch.sender == self.incarnation {
            match &patch.owner {
                Some(owner) => self.engine.patched(owner, &patch.uid, outcome, now),
                None => self.engine.node_network_written(&patch.key.2, &patch.uid, outcome, now),
            }
        }
        true
    }
}
