//! One controller instance: the engine with all that carries it, at the mercy of chance.

use std::collections::BTreeSet;
use std::time::Duration;

use ovsdb::transaction::Transaction;
use topology::engine::{Next, PatchOutcome};
use topology::identity::{Name, Owner};
use topology::objects::{Condition, NamespaceFacts};
use topology::store::ObjectKind;
use topology::{ClusterSettings, Effect, Engine};

use crate::support::api::{Api, KINDS, Key, Watches};
use crate::support::database::{Follower, Nb, cell};
use crate::support::faults::{Fault, Faults};
use crate::support::rng::Rng;

/// More turns than any engine here has work for: one that is not idle then never will be.
pub(crate) const TURNS: usize = 10_000;

/// What a patch says.
#[derive(Debug)]
enum Words {
    Annotations(Vec<(&'static str, String)>),
    Condition(Condition),
    /// A node's `NetworkUnavailable`.
    Network {
        available: bool,
    },
}

pub(crate) struct Patch {
    /// Whose annotations or condition it writes; none for a node's network.
    owner: Option<Owner>,
    key: Key,
    uid: String,
    words: Words,
    /// Which incarnation of which controller sent it.
    sender: u64,
}

#[derive(PartialEq, Eq)]
enum Role {
    Standby,
    /// It has taken over and waits for its replica to show it.
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
    /// A commit whose answer was lost.
    doubt: Option<String>,
    /// A commit that the replica has not shown yet.
    awaited: Option<String>,
    /// Patches of earlier incarnations and this one that are under way.
    patches: Vec<Patch>,
    /// Namespaces that the API is asked about.
    questions: Vec<(Name, u64)>,
    pub(crate) warnings: usize,
    /// Chassis that it wants removed now, and those that it ever wanted removed.
    forget: Vec<String>,
    pub(crate) unwanted: BTreeSet<String>,
}

impl Controller {
    pub(crate) fn new(settings: &ClusterSettings, nb: &Nb, incarnation: u64) -> Self {
        Self {
            // Now and then batches of few objects: what belongs together need not be committed together.
            engine: Engine::new(settings.clone()).with_batch([200, 1, 3, 200][incarnation as usize % 4]),
            watches: Watches::default(),
            follower: Follower::new(nb),
            role: Role::Standby,
            incarnation,
            number: 0,
            last: None,
            doubt: None,
            awaited: None,
            patches: Vec::new(),
            questions: Vec::new(),
            warnings: 0,
            forget: Vec::new(),
            unwanted: BTreeSet::new(),
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.role != Role::Standby
    }

    /// Whether it leads, and nobody has taken over since.
    pub(crate) fn rules(&self, nb: &Nb) -> bool {
        let writer = format!("{}:", self.incarnation);
        self.leads() && nb.sequence().is_some_and(|sequence| sequence.starts_with(&writer))
    }

    pub(crate) fn list(&mut self, api: &Api, kind: ObjectKind, now: Duration) {
        for observed in self.watches.list(api, kind) {
            self.engine.observe(observed, now);
        }
    }

    /// Sees some of what happened.
    pub(crate) fn watch(&mut self, api: &Api, most: usize, now: Duration, rng: &mut Rng, faults: &mut Faults) {
        self.watch_kinds(api, &KINDS, most, now, rng, faults);
    }

    /// Sees some of what happened to objects of some kinds.
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
                if faults.strike(Fault::DuplicateEvent, rng) {
                    self.engine.observe(observed.clone(), now);
                }
                self.engine.observe(observed, now);
            }
        }
    }

    pub(crate) fn follow(&mut self, nb: &Nb, most: usize, now: Duration) {
        let (owners, rows) = self.follower.follow(nb, most);
        self.engine.disturbed(owners, rows, now);
    }

    fn next_value(&mut self) -> String {
        self.number += 1;
        format!("{}:{}", self.incarnation, self.number)
    }

    /// Takes over, whoever led before.
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
        self.doubt = None;
        self.awaited = None;
        self.role = Role::TakingOver;
    }

    fn deposed(&mut self) {
        self.engine.demote();
        self.role = Role::Standby;
        self.doubt = None;
        self.awaited = None;
    }

    /// Does one thing, if there is one to do; says whether there was.
    pub(crate) fn step(
        &mut self,
        nb: &mut Nb,
        ghosts: &mut Vec<Transaction>,
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
        if let Some(doubtful) = self.doubt.clone() {
            self.settle(nb, &doubtful);
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
            let removed = !faults.strike(Fault::ChassisRemovalFails, rng);
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
                self.commit(&transaction, nb, ghosts, now, rng, faults);
                self.collect();
                true
            }
        }
    }

    fn commit(
        &mut self,
        transaction: &Transaction,
        nb: &mut Nb,
        ghosts: &mut Vec<Transaction>,
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
        let asleep = self.engine.store().nodes().filter(|node| !node.ready);
        nb.believed_asleep = asleep.filter_map(|node| node.chassis.as_deref().map(String::from)).collect();
        if faults.strike(Fault::RequestLost, rng) {
            // It never arrives, or arrives when nobody thinks of it any more.
            self.doubt = Some(next);
            ghosts.push(guarded);
            return;
        }
        match nb.apply(&guarded) {
            Err((place, ..)) if place == Some(guard) => self.deposed(),
            Err((_, owner, why)) => self.engine.refused(owner.as_deref(), &why, now),
            Ok(()) => {
                nb.check_isolation(&self.engine);
                nb.check_order();
                if faults.strike(Fault::DuplicateCommit, rng) {
                    assert!(nb.apply(&guarded).is_err(), "a copy took effect");
                }
                if faults.strike(Fault::AnswerLost, rng) {
                    self.doubt = Some(next);
                } else {
                    self.awaited = Some(next.clone());
                    self.last = Some(next);
                }
            }
        }
    }

    /// One look settles a doubt; what did not happen is fenced off.
    fn settle(&mut self, nb: &mut Nb, doubtful: &str) {
        let found = nb.sequence();
        if found.as_deref() == Some(doubtful) {
            self.last = found;
            self.awaited = self.last.clone();
            self.doubt = None;
        } else if found == self.last {
            let fence = self.next_value();
            let (guarded, _) = cell().guarded(&Transaction::new(), self.last.as_deref(), &fence);
            nb.apply(&guarded).unwrap();
            self.last = Some(fence.clone());
            self.doubt = None;
            self.engine.abandoned();
            // Nothing is planned before the replica shows the fence.
            self.awaited = Some(fence);
        } else {
            self.deposed();
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
                    let (owner, words) = (Some(owner), Words::Annotations(annotations));
                    self.patches.push(Patch { owner, key, uid, words, sender });
                }
                Effect::Condition { owner, object, condition } => {
                    let kind = ObjectKind::of_name(object.kind).unwrap();
                    let key = (kind, String::new(), object.name.to_string());
                    let (uid, words) = (object.uid.to_string(), Words::Condition(condition));
                    self.patches.push(Patch { owner: Some(owner), key, uid, words, sender: self.incarnation });
                }
                Effect::Warn { message, .. } => {
                    assert!(!message.is_empty());
                    self.warnings += 1;
                }
                Effect::NodeNetwork { object, available, .. } => {
                    let key = (ObjectKind::Node, String::new(), object.name.to_string());
                    let (uid, words) = (object.uid.to_string(), Words::Network { available });
                    self.patches.push(Patch { owner: None, key, uid, words, sender: self.incarnation });
                }
                Effect::ForgetChassis { name } => {
                    self.unwanted.insert(name.to_string());
                    self.forget.push(name.into());
                }
                Effect::LookAtNamespace { name, question } => self.questions.push((name, question)),
                _ => {}
            }
        }
    }

    /// What a former one of the same process sent is still under way.
    pub(crate) fn inherit(&mut self, former: Self) {
        self.patches.extend(former.patches);
    }

    /// Whether the API owes it no answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.patches.is_empty() && self.questions.is_empty()
    }

    /// Looks at one of the namespaces that it wants to know of, or sends one of the patches that are under way.
    pub(crate) fn patch(&mut self, api: &mut Api, now: Duration, rng: &mut Rng, faults: &mut Faults) -> bool {
        if !self.questions.is_empty() && !faults.strike(Fault::SlowApi, rng) {
            let (name, question) = self.questions.remove(0);
            let found = api.objects.get(&(ObjectKind::Namespace, String::new(), name.to_string()));
            let found = found.map(|object| NamespaceFacts::parse(&object.to_string()).unwrap());
            self.engine.namespace_looked_at(&name, question, found.as_ref(), now);
            return true;
        }
        if self.patches.is_empty() {
            return !self.questions.is_empty();
        }
        if faults.strike(Fault::SlowApi, rng) {
            return true;
        }
        let patch = self.patches.remove(rng.below(self.patches.len()));
        let network = matches!(patch.words, Words::Network { .. });
        let outcome = if faults.strike(Fault::ApiFails, rng) || network && faults.strike(Fault::NodeConditionFails, rng)
        {
            PatchOutcome::Failed
        } else if match &patch.words {
            Words::Annotations(annotations) => api.annotate(&patch.key, &patch.uid, annotations),
            Words::Condition(condition) => api.say(&patch.key, &patch.uid, condition),
            Words::Network { available } => api.say_network(&patch.key, &patch.uid, *available),
        } {
            if faults.strike(Fault::ApiAnswerLost, rng) { PatchOutcome::Failed } else { PatchOutcome::Done }
        } else {
            PatchOutcome::ObjectGone
        };
        if std::env::var("SIMULATION_TRACE").is_ok() {
            eprintln!("-- patch {:?} {} {:?}: {outcome:?}", patch.key, patch.uid, patch.words);
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
