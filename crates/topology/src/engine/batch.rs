//! Batches: who has its turn gets what it needs and is compared with the database; the differences are one transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use ovn_schema::TableRow;
use ovn_schema::northbound::LogicalSwitchPort;
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;

use super::effect::{Effect, Measure, Stage};
use super::queue::Turn;
use super::record::Record;
use super::repair::{self, Disturbed, Repairs};
use super::{BATCH, Engine, Leading};
use super::{seed, selectors};
use crate::allocation::{PodState, Thing};
use crate::contribution::Contribution;
use crate::desired::{Given, check_node, desired, holder_of_chassis, service_needs};
use crate::identity::{Name, Owner, RowId};
use crate::ledger::{Entry, Touched};
use crate::objects::{NodeFacts, PodFacts};
use crate::plan::plan;
use crate::refusal::Refusal;

/// A batch that was handed out and whose fate is open.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    turns: Vec<Turn>,
    /// What the owners had before.
    before: Vec<(Owner, Entry)>,
    /// Whether it raises `nb_cfg`.
    asks: bool,
    /// Those among the turns who stay as they are.
    stays: BTreeSet<Owner>,
    /// What it takes off the list of what rests.
    freed: Vec<Thing>,
    /// What it takes out of the database and puts into it.
    record: Record,
    /// What others had changed, and it puts right.
    mends: Disturbed,
    /// Which rows it therefore writes.
    repairs: Repairs,
    /// Owners that have all they want once it is committed; noted only while another controller's rows are left.
    done: BTreeSet<Owner>,
    /// Rows of another controller that it removes.
    replaced: BTreeSet<RowId>,
}

/// What to do next.
#[derive(Debug)]
pub enum Next {
    /// Commit this, and tell what became of it.
    Commit(Transaction),
    /// Nothing had to be written for some owners; there are more.
    Again,
    /// Nothing to do until something happens.
    Idle,
}

impl Engine {
    /// Whether a transaction was handed out whose fate is open.
    pub fn in_flight(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.in_flight.is_some())
    }

    /// The next transaction. The snapshot must hold everything that was committed.
    pub fn next(&mut self, snapshot: &Snapshot, now: Duration) -> Next {
        self.tick(now);
        let Some(leading) = &mut self.leading else { return Next::Idle };
        if leading.in_flight.is_some() {
            return Next::Idle;
        }
        let turns = leading.queue.take(leading.limit, !leading.singly);
        let had_turns = !turns.is_empty();
        let mut transaction = self.changes(turns, snapshot, now);
        let Some(leading) = &mut self.leading else { return Next::Idle };
        leading.progress.forget_variables(&mut transaction, &leading.ledger, &self.store, snapshot);
        let changes = !transaction.is_empty();
        let Some(batch) = &mut leading.in_flight else { return Next::Idle };
        let resting = leading.allocator.quarantine();
        let leaves = batch.record.loses() || changes && batch.turns.iter().any(|turn| resting.leaves_with(&turn.owner));
        let must = leading.progress.must_ask(leaves || resting.must_ask(), now);
        batch.asks = must || changes && leading.progress.may_sample(now);
        batch.freed = resting.freed().take(BATCH).collect();
        let raise = batch.asks.then(|| leading.progress.raise(snapshot));
        batch.record.keep(&mut transaction, &batch.freed, raise, snapshot);
        if transaction.is_empty() {
            self.finish(snapshot, now);
            if had_turns {
                return Next::Again;
            }
            if let Some(since) = self.leading.as_mut().and_then(|leading| leading.reviewing.take()) {
                self.effects.push(Effect::Measured(Measure::Sync(now.saturating_sub(since))));
            }
            return Next::Idle;
        }
        Next::Commit(transaction)
    }

    /// What the turns change, as operations; the batch is noted as in flight.
    fn changes(&mut self, mut turns: Vec<Turn>, snapshot: &Snapshot, now: Duration) -> Transaction {
        let mends = self.leading.as_mut().map(|leading| leading.take_disturbed(&turns)).unwrap_or_default();
        // Owners that wait and have nothing of their own yet: what a former object of the same name left goes meanwhile.
        let mut cleared: BTreeSet<Owner> = BTreeSet::new();
        loop {
            let Some(leading) = &mut self.leading else { return Transaction::new() };
            let mut touched = Touched::default();
            let mut before = Vec::with_capacity(turns.len());
            let mut stays = BTreeSet::new();
            let (mut done, mut replaced) = (BTreeSet::new(), BTreeSet::new());
            for Turn { owner, .. } in &turns {
                if *owner == Owner::Adopted {
                    // It is the last one: whoever replaces these rows in this very transaction has had its turn.
                    replaced = leading.leftovers.free(&done);
                    before.push((owner.clone(), leading.ledger.remove_rows(owner, &replaced, &mut touched)));
                    continue;
                }
                let contribution = if cleared.contains(owner) {
                    Some(Contribution::default())
                } else {
                    let mut context = Context { leading, store: &self.store, effects: &mut self.effects, now };
                    context.contribution(owner, &self.settings, snapshot)
                };
                if contribution.is_none() {
                    stays.insert(owner.clone());
                }
                if let Some(contribution) = contribution {
                    let refused = leading.parked.contains_key(owner) && contribution.refusal.is_none();
                    if !leading.leftovers.is_empty() && !refused && !leading.is_waiting(owner, &self.store) {
                        done.insert(owner.clone());
                    }
                    let was = leading.ledger.put(owner, contribution, &mut touched);
                    if self.store.is_lingering(owner) {
                        // What was in its way is gone.
                        for words in self.store.release(owner) {
                            leading.queue.push(Owner::Selector(words), now);
                        }
                    }
                    leading.let_go(&was, &self.store, now);
                    let came = was.rows().is_empty();
                    before.push((owner.clone(), was));
                    if let Owner::Selector(words) = owner {
                        leading.gather(words, came, &self.store, &mut touched, &mut before);
                        leading.call_waiting(words, &self.store, now);
                    }
                }
            }
            mends.touch(&leading.ledger, snapshot, &mut touched);
            let plan = plan(&touched, &leading.ledger, snapshot);
            if plan.missing.is_empty() {
                leading.gathered(&turns);
                // Where nothing is written, nothing goes and nothing comes: a review of an unchanged cluster.
                let record = match plan.transaction.is_empty() {
                    true => Record::default(),
                    false => Record::of(&touched, &before, snapshot),
                };
                let repairs = repair::repairs(&mends.foreign, &touched, &plan.transaction, snapshot);
                let (asks, freed) = (false, Vec::new());
                let batch = Batch { turns, before, stays, asks, freed, record, mends, repairs, done, replaced };
                leading.in_flight = Some(batch);
                return plan.transaction;
            }
            // Somebody refers to a row that is not there, because its owner is parked: it has to wait.
            let waiting = leading.set_aside(&mut turns, before, &plan.missing);
            if waiting.is_empty() {
                // Nobody in the batch refers to it: nothing can be gained by trying again.
                turns.clear();
            }
            for owner in waiting {
                if leading.queue.postpone(&owner) {
                    continue;
                }
                let message =
                    format!("{owner} needs rows of an object that is parked itself: see the Events of its node");
                leading.park(&owner, Refusal::new("WaitingForParked", message), &self.store, &mut self.effects);
                leading.wait(&owner, &self.store);
                let context = Context { leading, store: &self.store, effects: &mut self.effects, now };
                if !context.has_rows_of_its_own(&owner) && leading.ledger.entry(&owner).is_some() {
                    cleared.insert(owner.clone());
                    turns.push(Turn { owner, since: now });
                }
            }
        }
    }

    /// The transaction was committed, and the snapshot holds it.
    pub fn committed(&mut self, snapshot: &Snapshot, now: Duration) {
        if let Some(leading) = &mut self.leading {
            leading.limit = (leading.limit * 2).min(self.batch);
            leading.singly = false;
            let oldest = leading.in_flight.iter().flat_map(|batch| &batch.turns).map(|turn| turn.since).min();
            if let Some(oldest) = oldest {
                let took = now.saturating_sub(oldest);
                self.effects.push(Effect::Measured(Measure::Propagation(Stage::Northbound, took)));
            }
            leading.look_for_lost_rows(snapshot, now);
        }
        self.finish(snapshot, now);
    }

    fn finish(&mut self, snapshot: &Snapshot, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let Some(batch) = leading.in_flight.take() else { return };
        let quarantine = leading.allocator.quarantine_mut();
        // Who stays as it is keeps all rows, and with them what they stand for.
        for turn in batch.turns.iter().filter(|turn| !batch.stays.contains(&turn.owner)) {
            quarantine.committed(&turn.owner);
        }
        quarantine.forget_freed(&batch.freed);
        batch.record.committed(quarantine);
        self.effects.extend(repair::effects(batch.repairs, &self.store));
        if batch.asks {
            let number = leading.progress.asked(snapshot, now);
            leading.allocator.quarantine_mut().asked(number);
        }
        leading.replaced(batch.done, &batch.replaced, &mut self.effects, now);
        // A policy that went with its namespace goes for good when the last of its ports is gone.
        if batch.turns.iter().any(|turn| matches!(turn.owner, Owner::Pod(_))) {
            for owner in self.store.lingering() {
                leading.queue.push(owner.clone(), now);
            }
        }
        for turn in &batch.turns {
            self.follow_up(&turn.owner);
        }
    }

    /// The server refused the transaction: nothing of it happened. The owner it names is parked, and the rest is tried
    /// again; if it names none, smaller batches find out who it is.
    pub fn refused(&mut self, owner: Option<&str>, why: &str, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let Some(batch) = leading.in_flight.take() else { return };
        let alone = batch.turns.len() == 1;
        leading.limit = (batch.turns.len() / 2).max(1);
        leading.singly = owner.is_none();
        leading.disturbed.add(batch.mends);
        leading.not_gathered(&batch.turns);
        for (owner, entry) in batch.before.into_iter().rev() {
            leading.ledger.restore(&owner, entry);
        }
        for Turn { owner: turn, since } in batch.turns {
            if alone || owner.is_some_and(|owner| owner == turn.to_string()) {
                let message = format!("the northbound database refused it: {why}; what it had stays");
                leading.park(&turn, Refusal::new("DatabaseRefused", message), &self.store, &mut self.effects);
            } else {
                leading.queue.push(turn, since.min(now));
            }
        }
    }

    /// The transaction did not happen, and never will: everything is tried again.
    pub fn abandoned(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        let Some(batch) = leading.in_flight.take() else { return };
        leading.disturbed.add(batch.mends);
        leading.not_gathered(&batch.turns);
        for (owner, entry) in batch.before.into_iter().rev() {
            leading.ledger.restore(&owner, entry);
        }
        for Turn { owner, since } in batch.turns {
            leading.queue.push(owner, since);
        }
    }

    /// Somebody else changed rows of ours: their owners are looked at again, and what the rows hold is counted again.
    pub fn disturbed(&mut self, owners: BTreeSet<Owner>, rows: BTreeSet<RowId>, now: Duration) {
        self.look_again(Disturbed { owners, foreign: rows.clone(), rows }, now);
    }

    /// Perhaps somebody else changed rows of ours that we have written ourselves: the same, but nobody is blamed.
    pub fn doubted(&mut self, owners: BTreeSet<Owner>, rows: BTreeSet<RowId>, now: Duration) {
        self.look_again(Disturbed { owners, rows, foreign: BTreeSet::new() }, now);
    }

    fn look_again(&mut self, disturbed: Disturbed, now: Duration) {
        if let Some(leading) = &mut self.leading {
            for owner in &disturbed.owners {
                leading.queue.push(owner.clone(), now);
            }
            leading.disturbed.add(disturbed);
        }
    }
}

/// What an owner's turn works with.
struct Context<'a> {
    leading: &'a mut Leading,
    store: &'a crate::store::Store,
    effects: &'a mut Vec<Effect>,
    now: Duration,
}

impl Context<'_> {
    /// Gives an owner what it needs and says what it adds to the network; nothing if what it has stays as it is.
    fn contribution(
        &mut self,
        owner: &Owner,
        settings: &crate::settings::ClusterSettings,
        snapshot: &Snapshot,
    ) -> Option<Contribution> {
        let mut refusal = self.settle(owner, snapshot).err();
        if self.leading.stays(owner, self.store) {
            if let Some(refusal) = refusal {
                self.leading.park(owner, refusal, self.store, self.effects);
            }
            return None;
        }
        if let Some(node) = self.unwired_node_of(owner) {
            if refusal.is_none() && self.leading.parked.contains_key(&Owner::Node(node.clone())) {
                let message = format!("node {node} has no network itself: see its Events");
                refusal = Some(Refusal::new("NodeWithoutNetwork", message));
            }
            if let Some(refusal) = refusal {
                self.leading.park(owner, refusal, self.store, self.effects);
            }
            self.leading.wait(owner, self.store);
            return Some(Contribution::default());
        }
        if self.is_frozen(owner) {
            self.leading.wait(owner, self.store);
            return None;
        }
        let given =
            Given { settings, store: self.store, allocator: &self.leading.allocator, aliases: &self.leading.aliases };
        let wanted = desired(owner, given);
        if let Owner::Service(key) = owner {
            self.leading.node_bound.note(key, service_needs(key, given));
        }
        let unmet = wanted.as_ref().ok().and_then(|wanted| self.leading.unmet(wanted, self.now));
        let wanted = unmet.map_or(wanted, Err);
        match (refusal.as_ref(), &wanted) {
            (Some(refusal), _) | (None, Err(refusal)) => {
                let refusal = refusal.clone();
                self.leading.park(owner, refusal, self.store, self.effects);
                self.leading.wait(owner, self.store);
            }
            (None, Ok(Contribution { refusal: Some(refusal), .. })) => {
                self.leading.park(owner, refusal.clone(), self.store, self.effects);
            }
            (None, Ok(_)) => drop(self.leading.parked.remove(owner)),
        }
        // What another object of the same name left is no last good state of this one.
        wanted.ok().or_else(|| (!self.has_rows_of_its_own(owner)).then(Contribution::default))
    }

    /// The node of a pod that shall have a port, if that node has no switch to put it on.
    fn unwired_node_of(&self, owner: &Owner) -> Option<Name> {
        let Owner::Pod(key) = owner else { return None };
        let name = self.store.pod(key)?.wants_port()?;
        (!self.has_rows_of_its_own(&Owner::Node(name.clone()))).then(|| name.clone())
    }

    /// Whether a pod's port stays as it is, because its node's rows do: the node is parked, and what it says of itself
    /// cannot be used.
    fn is_frozen(&self, owner: &Owner) -> bool {
        let Owner::Pod(key) = owner else { return false };
        let Some(pod) = self.store.pod(key) else { return false };
        let Some(node) = pod.wants_port().and_then(|node| self.store.node(node)) else { return false };
        // Nearly no node is: the rest is not looked at then.
        let parked = self.leading.parked.contains_key(&Owner::Node(node.name.clone()))
            && (self.leading.allocator.node(&node.name).is_none() || holder_of_chassis(node, self.store).is_some());
        parked && self.has_port(owner, pod)
    }

    fn has_rows_of_its_own(&self, owner: &Owner) -> bool {
        match owner {
            Owner::Node(name) => self.store.node(name).is_some_and(|node| has_switch(self.leading, node)),
            Owner::Pod(key) => self.store.pod(key).is_none_or(|pod| self.has_port(owner, pod)),
            _ => true,
        }
    }

    /// Whether a pod, this very one, has a port.
    fn has_port(&self, owner: &Owner, pod: &PodFacts) -> bool {
        let port = RowId { table: LogicalSwitchPort::TABLE, uuid: seed::port_of(pod, &self.leading.aliases) };
        self.leading.ledger.entry(owner).is_some_and(|entry| entry.rows().contains(&port))
    }

    fn settle(&mut self, owner: &Owner, snapshot: &Snapshot) -> Result<(), Refusal> {
        let Self { leading, store, now, .. } = self;
        match owner {
            Owner::Node(name) => {
                let Some(node) = store.node(name) else {
                    leading.allocator.release_node(name);
                    leading.progress.forget_wiring(name);
                    return Ok(());
                };
                if !has_switch(leading, node)
                    && let Err(refusal) = check_node(node, store)
                {
                    // It cannot have a network: then it takes nothing from others either.
                    leading.allocator.release_former_node(node);
                    return Err(refusal);
                }
                let known = seed::known_node(node, snapshot, &leading.aliases);
                let settled = leading.allocator.settle_node(node, &known);
                if settled.is_ok() {
                    for key in leading.waiting.remove(name).unwrap_or_default() {
                        leading.queue.push(Owner::Pod(key), *now);
                    }
                }
                settled
            }
            Owner::Pod(key) => {
                let Some(pod) = store.pod(key) else {
                    leading.allocator.release_pod(key);
                    return Ok(());
                };
                let known = match leading.allocator.pod(key) {
                    None => seed::known_port(pod, snapshot, &leading.aliases),
                    Some(_) => None,
                };
                if leading.allocator.settle_pod(pod, known.as_ref())? == PodState::Waiting {
                    leading.wait(owner, store);
                }
                Ok(())
            }
            Owner::Namespace(_) | Owner::Policy(_) | Owner::AdminPolicy(_) | Owner::BaselinePolicy(_) => {
                selectors::trouble(owner, store)
            }
            // What they have follows from their objects alone.
            Owner::Cluster | Owner::Selector(_) | Owner::Service(_) | Owner::Adopted => Ok(()),
        }
    }
}

/// Whether a node, this very one, has a switch.
fn has_switch(leading: &Leading, node: &NodeFacts) -> bool {
    let switch = seed::switch_of(node, &leading.aliases);
    leading.ledger.entry(&Owner::Node(node.name.clone())).is_some_and(|entry| entry.rows().contains(&switch))
}

impl Leading {
    /// What was disturbed and is put right with these turns: every row, and the owners among them.
    fn take_disturbed(&mut self, turns: &[Turn]) -> Disturbed {
        let owners = turns.iter().filter_map(|turn| self.disturbed.owners.take(&turn.owner)).collect();
        let Disturbed { rows, foreign, .. } = &mut self.disturbed;
        Disturbed { owners, rows: std::mem::take(rows), foreign: std::mem::take(foreign) }
    }

    /// A row that was inserted into what somebody else deleted in the same moment is gone again, and no change tells of
    /// it: its owner has another turn.
    fn look_for_lost_rows(&mut self, snapshot: &Snapshot, now: Duration) {
        let Self { in_flight, ledger, queue, disturbed, .. } = self;
        for (owner, _) in in_flight.iter().flat_map(|batch| &batch.before) {
            let rows = ledger.entry(owner).map(Entry::rows).unwrap_or_default();
            if rows.iter().any(|id| crate::plan::row(snapshot, *id).is_none()) {
                queue.push(owner.clone(), now);
                disturbed.owners.insert(owner.clone());
            }
        }
    }

    /// A pod waits for something of its node.
    fn wait(&mut self, owner: &Owner, store: &crate::store::Store) {
        if let Owner::Pod(key) = owner
            && let Some(node) = store.pod(key).and_then(|pod| pod.node.clone())
        {
            self.waiting.entry(node).or_default().insert(key.clone());
        }
    }

    /// Takes those out of a batch who refer to rows that are not there, and puts the ledger back as it was.
    fn set_aside(
        &mut self,
        turns: &mut Vec<Turn>,
        before: Vec<(Owner, Entry)>,
        missing: &BTreeSet<RowId>,
    ) -> Vec<Owner> {
        let refers = |owner: &Owner| {
            let entry = self.ledger.entry(owner);
            entry.is_some_and(|entry| entry.members().iter().any(|member| missing.contains(&member.column.row)))
        };
        let aside: Vec<Owner> = turns.iter().map(|turn| turn.owner.clone()).filter(refers).collect();
        for (owner, entry) in before.into_iter().rev() {
            self.ledger.restore(&owner, entry);
        }
        let kept = |turn: &Turn| !aside.contains(&turn.owner);
        turns.retain(kept);
        aside
    }
}
