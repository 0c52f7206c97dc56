//! How far the nodes are. `nb_cfg` is raised with a change, and each chassis repeats it when its flows have it: that
//! tells when an address is forgotten, when a node is wired, and how long a change takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ovn_schema::TableRow;
use ovn_schema::northbound::{ChassisTemplateVar, GatewayChassis};
use ovsdb::operation::Condition;
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::transaction::Transaction;

use super::effect::{Effect, Measure, ObjectRef, Stage};
use super::node_network::Verdict;
use super::{Engine, seed};
use crate::identity::{Name, Owner, RowId};
use crate::ledger::{Entry, Ledger};
use crate::plan::owner_of;
use crate::store::Store;

/// How often a change is followed on its way when nobody needs the answer but the histogram.
const SAMPLE: Duration = Duration::from_secs(10);
/// A question that is not answered for so long does not keep others from being asked: a node may be dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// A chassis that no node has any more is removed after this time: a node that comes back meanwhile keeps it.
const FORGET_CHASSIS: Duration = Duration::from_secs(30);
/// The first pause before the removal of a chassis is tried again, and the longest.
const RETRY_REMOVAL: Duration = Duration::from_secs(1);
const LONGEST_RETRY_REMOVAL: Duration = Duration::from_secs(60);
/// No database counts this far: what is above was not counted.
const HIGHEST: i64 = i64::MAX / 2;

/// How far the nodes are.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// What each chassis repeated last; none as long as nobody has told.
    chassis: Option<BTreeMap<Box<str>, i64>>,
    /// What northd repeated last.
    southbound: i64,
    question: Option<Question>,
    /// The oldest number that somebody has not repeated yet, and since when: later ones are asked all the same.
    unanswered: Option<(i64, Duration)>,
    /// The oldest number that northd has not copied yet, and since when.
    northd_owes: Option<(i64, Duration)>,
    asked_last: Option<Duration>,
    /// Nodes that are to be told that their network works, with the number that will show it.
    unwired: BTreeMap<Name, Option<i64>>,
    /// Chassis to be removed, and when.
    leaving: BTreeMap<Box<str>, Duration>,
    /// How often the removal of a chassis has failed.
    failed_removals: BTreeMap<Box<str>, u32>,
    /// Chassis that no node has and whose variables are still there, and when to see whether they are gone; none if they
    /// were there when they were looked at last.
    fading: BTreeMap<Box<str>, Option<Duration>>,
    /// Chassis that are gone for good: nobody needs their variables.
    faded: BTreeSet<Box<str>>,
}

/// A number that was put into `nb_cfg`.
#[derive(Debug, Clone)]
struct Question {
    number: i64,
    at: Duration,
    /// Whether northd has answered.
    southbound: bool,
}

/// The chassis that nodes' rows speak of and the nodes themselves do not: they got others while nobody led.
pub(super) fn former_chassis<'a>(
    ledger: &'a Ledger,
    store: &'a Store,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = Box<str>> + 'a {
    store.nodes().filter_map(|node| Some((node, node.chassis.as_ref()?))).flat_map(move |(node, now)| {
        let rows = ledger.entry(&Owner::Node(node.name.clone())).map(Entry::rows).unwrap_or_default();
        let rows = rows.iter().filter(|id| id.table == GatewayChassis::TABLE);
        let named = rows.filter_map(|id| snapshot.table(id.table)?.get(id.uuid)?.text("chassis_name"));
        named.map(String::into_boxed_str).filter(move |name| name != now)
    })
}

/// The chassis that have variables and no node, and whether their node is gone or has another chassis. One whose node only
/// does not say its chassis at the moment is not replaced.
pub(super) fn without_node<'a>(
    store: &'a Store,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (Box<str>, bool)> + 'a {
    let rows = snapshot.table(ChassisTemplateVar::TABLE).into_iter().flat_map(ovsdb::replica::Table::iter);
    let ours = rows.filter_map(|view| match owner_of(view) {
        Some(Owner::Node(node)) => Some((view.text(ChassisTemplateVar::chassis.name())?.into_boxed_str(), node)),
        _ => None,
    });
    ours.filter(|(name, _)| !has_node(store, name)).map(|(name, node)| {
        let replaced = store.node(&node).is_none_or(|node| node.chassis.is_some());
        (name, replaced)
    })
}

fn has_node(store: &Store, chassis: &str) -> bool {
    store.nodes().any(|node| node.chassis.as_deref() == Some(chassis))
}

impl Progress {
    /// Whether the next transaction shall raise `nb_cfg`: somebody waits for the answer.
    pub(super) fn must_ask(&self, resting: bool, now: Duration) -> bool {
        self.may_ask(now) && (resting || self.unwired.values().any(Option::is_none))
    }

    /// Whether it may, because a change is to be followed for the histogram.
    pub(super) fn may_sample(&self, now: Duration) -> bool {
        self.may_ask(now) && self.asked_last.is_none_or(|last| now >= last + SAMPLE)
    }

    /// Only who knows what everybody has reached can choose a number that nobody has reached.
    fn may_ask(&self, now: Duration) -> bool {
        self.chassis.is_some() && self.question.as_ref().is_none_or(|question| now >= question.at + PATIENCE)
    }

    /// When to look again although nothing happened.
    pub(super) fn deadline(&self, resting: bool) -> Option<Duration> {
        let waits = resting || self.unwired.values().any(Option::is_none);
        let again = self.question.as_ref().filter(|_| waits).map(|question| question.at + PATIENCE);
        let chassis = self.leaving.values().chain(self.fading.values().flatten());
        again.into_iter().chain(chassis.copied()).min()
    }

    /// A node is to be told when its network works.
    pub(super) fn await_wiring(&mut self, node: &Name) {
        self.unwired.entry(node.clone()).or_default();
    }

    pub(super) fn forget_wiring(&mut self, node: &str) {
        self.unwired.remove(node);
    }

    pub(super) fn chassis_leaves(&mut self, name: Box<str>, now: Duration) {
        self.leaving.insert(name, now + FORGET_CHASSIS);
    }

    /// A chassis has variables, and no node.
    pub(super) fn chassis_fades(&mut self, name: Box<str>, now: Duration) {
        self.fading.insert(name, Some(now + FORGET_CHASSIS));
    }

    /// Looks whether chassis without nodes are gone. One that is alive registers again after it was removed, and that
    /// takes a moment: only one that stays away is gone.
    fn look_at_fading(&mut self, store: &Store, now: Duration) {
        let Self { chassis, fading, faded, .. } = self;
        fading.retain(|name, due| {
            let there = chassis.as_ref().is_none_or(|chassis| chassis.contains_key(name));
            match due {
                Some(due) if *due > now => return true,
                _ if there => *due = None,
                None => *due = Some(now + FORGET_CHASSIS),
                Some(_) => {
                    faded.insert(name.clone());
                    return false;
                }
            }
            !has_node(store, name)
        });
    }

    /// Takes the variables of chassis that are gone out of the database. Not before: an ovn-controller (25.03) that sees
    /// the row of its chassis go and come back fails an assertion.
    pub(super) fn forget_variables(
        &mut self,
        transaction: &mut Transaction,
        ledger: &Ledger,
        store: &Store,
        snapshot: &Snapshot,
    ) {
        if self.faded.is_empty() {
            return;
        }
        let table = snapshot.table(ChassisTemplateVar::TABLE);
        let rows: Vec<_> = table.into_iter().flat_map(ovsdb::replica::Table::iter).collect();
        self.faded.retain(|name| {
            let named = |view: &&RowView<'_>| view.text(ChassisTemplateVar::chassis.name()).as_deref() == Some(name);
            let Some(view) = rows.iter().copied().find(|view| named(&view)) else { return false };
            let Some(owner @ Owner::Node(_)) = owner_of(view) else { return false };
            if has_node(store, name) {
                return false;
            }
            // What a node has that is parked stays, until it is seen what becomes of it.
            let id = RowId { table: ChassisTemplateVar::TABLE, uuid: view.uuid };
            if !ledger.entry(&owner).is_some_and(|entry| entry.rows().contains(&id)) {
                transaction.owned_by_nobody();
                transaction.delete(id.table, vec![Condition::uuid(id.uuid)]);
            }
            true
        });
    }

    /// By how much `nb_cfg` is raised for the next question: by one, or above every number that was ever repeated. A
    /// northbound database that was created anew or restored counts from where it stands, while southbound database and
    /// chassis are still at the numbers of the former one.
    pub(super) fn raise(&self, snapshot: &Snapshot) -> i64 {
        let stands = seed::global(snapshot).and_then(|global| global.integer("nb_cfg")).unwrap_or(0);
        let chassis = self.chassis.iter().flat_map(BTreeMap::values).copied();
        let reached = chassis.chain([self.southbound]).filter(|number| *number < HIGHEST).max().unwrap_or(0);
        reached.saturating_sub(stands).saturating_add(1).max(1)
    }

    /// `nb_cfg` was raised, in a transaction that is in this snapshot.
    pub(super) fn asked(&mut self, snapshot: &Snapshot, now: Duration) -> i64 {
        let number = seed::global(snapshot).and_then(|global| global.integer("nb_cfg")).unwrap_or(0);
        self.question = Some(Question { number, at: now, southbound: false });
        self.unanswered.get_or_insert((number, now));
        self.northd_owes.get_or_insert((number, now));
        self.asked_last = Some(now);
        for waiting in self.unwired.values_mut().filter(|waiting| waiting.is_none()) {
            *waiting = Some(number);
        }
        number
    }

    /// What northd and every chassis that matters have reached.
    fn answered(&self, store: &Store) -> i64 {
        self.floor(store).min(self.southbound)
    }

    /// Whether a node's own chassis has reached a number.
    fn reached(&self, store: &Store, node: &str, number: i64) -> Option<bool> {
        let chassis = store.node(node)?.chassis.as_ref()?;
        self.chassis.as_ref()?.get(chassis).map(|reached| *reached >= number)
    }

    /// What every chassis that matters has reached. One whose node does not work keeps nobody waiting: it will have the
    /// newest state before it works again. One that no node speaks of counts: its node may be new, or be made again.
    fn floor(&self, store: &Store) -> i64 {
        let asleep: BTreeSet<&str> =
            store.nodes().filter(|node| !node.ready).filter_map(|node| node.chassis.as_deref()).collect();
        // Who does not know how far the nodes are does not know that they have forgotten anything.
        let Some(chassis) = &self.chassis else { return i64::MIN };
        let awake = chassis.iter().filter(|(name, _)| !asleep.contains(&***name));
        awake.map(|(_, reached)| *reached).min().unwrap_or(i64::MAX)
    }
}

impl Engine {
    /// What every chassis has reached, and northd.
    pub fn progress(&mut self, chassis: BTreeMap<Box<str>, i64>, southbound: i64, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let progress = &mut leading.progress;
        progress.chassis = Some(chassis);
        progress.southbound = southbound;
        progress.northd_owes = progress.northd_owes.filter(|(number, _)| *number > southbound);
        if let Some(question) = &mut progress.question
            && !question.southbound
            && southbound >= question.number
        {
            question.southbound = true;
            let took = now.saturating_sub(question.at);
            self.effects.push(Effect::Measured(Measure::Propagation(Stage::Southbound, took)));
        }
        if let Some(question) = progress.question.clone()
            && question.southbound
            && progress.floor(&self.store) >= question.number
        {
            progress.question = None;
            let took = now.saturating_sub(question.at);
            self.effects.push(Effect::Measured(Measure::Propagation(Stage::Nodes, took)));
        }
        let answered = progress.answered(&self.store);
        if progress.unanswered.is_some_and(|(number, _)| number <= answered) {
            let open = progress.question.as_ref().filter(|question| question.number > answered);
            progress.unanswered = open.map(|question| (question.number, question.at));
        }
        self.look_at_progress(now);
    }

    /// Since when northd has not copied `nb_cfg` to the southbound database; nothing if it has.
    pub fn northd_behind_since(&self) -> Option<Duration> {
        self.leading.as_ref()?.progress.northd_owes.map(|(_, since)| since)
    }

    /// Since when northd or a node that works owes an answer to `nb_cfg`; nothing if nobody does.
    pub fn unanswered_since(&self) -> Option<Duration> {
        let progress = &self.leading.as_ref()?.progress;
        // A node may have stopped working since: then it owes none.
        let (_, since) = progress.unanswered.filter(|(number, _)| *number > progress.answered(&self.store))?;
        Some(since)
    }

    /// Frees what is forgotten, tells nodes that are wired, removes chassis that are gone.
    pub(super) fn look_at_progress(&mut self, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let (progress, store) = (&leading.progress, &self.store);
        let floor = progress.floor(store);
        let freed = leading
            .allocator
            .wake(|node, number| floor >= number && progress.reached(store, node, number).unwrap_or(true));
        for node in freed {
            for key in leading.waiting.remove(&node).unwrap_or_default() {
                leading.queue.push(Owner::Pod(key), now);
            }
            // A subnet or a number may be free: whoever had none tries again.
            let parked: Vec<Owner> =
                leading.parked.keys().filter(|owner| matches!(owner, Owner::Node(_))).cloned().collect();
            for owner in parked {
                leading.queue.push(owner, now);
            }
        }
        let wired: Vec<Name> = progress
            .unwired
            .iter()
            .filter(|(node, number)| number.is_some_and(|number| progress.reached(store, node, number) == Some(true)))
            .map(|(node, _)| node.clone())
            .collect();
        for name in wired {
            leading.progress.unwired.remove(&name);
            let Some(node) = self.store.node(&name).filter(|node| node.network_unavailable == Some(true)) else {
                continue;
            };
            let object = ObjectRef { kind: "Node", namespace: None, name: (&*name).into(), uid: node.uid.clone() };
            let message = "the node's logical network is in its flows".into();
            let verdict = Verdict { available: true, reason: "NetworkWired", message };
            leading.node_networks.say(object, verdict, &mut self.effects);
        }
        let due: Vec<Box<str>> = {
            let leaving = leading.progress.leaving.iter();
            leaving.filter(|(_, due)| **due <= now).map(|(name, _)| name.clone()).collect()
        };
        for name in due {
            leading.progress.leaving.remove(&name);
            if has_node(&self.store, &name) {
                leading.progress.failed_removals.remove(&name);
                self.unremoved.remove(&name);
            } else {
                let there = leading.progress.chassis.as_ref().is_none_or(|chassis| chassis.contains_key(&name));
                let due = if there { now + FORGET_CHASSIS } else { now };
                leading.progress.fading.insert(name.clone(), Some(due));
                self.unremoved.insert(name.clone());
                self.effects.push(Effect::ForgetChassis { name });
            }
        }
        leading.progress.look_at_fading(&self.store, now);
    }

    /// Whether a chassis could be removed. If not, it is tried again for as long as no node has it.
    pub fn chassis_removed(&mut self, name: &str, removed: bool, now: Duration) {
        if removed {
            self.unremoved.remove(name);
        }
        let Some(progress) = self.leading.as_mut().map(|leading| &mut leading.progress) else { return };
        if removed {
            progress.failed_removals.remove(name);
            return;
        }
        let failed = progress.failed_removals.entry(name.into()).or_default();
        let pause = RETRY_REMOVAL.saturating_mul(1 << (*failed).min(10)).min(LONGEST_RETRY_REMOVAL);
        *failed += 1;
        progress.leaving.insert(name.into(), now + pause);
    }
}
