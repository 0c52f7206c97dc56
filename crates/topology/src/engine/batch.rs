//! Batches: allocate for the owners whose turn it is, compute their rows, and write the differences in one transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use objects::{Name, NodeFacts, PodFacts};
use ovn_schema::TableRow;
use ovn_schema::northbound::LogicalSwitchPort;
use ovsdb::replica::Snapshot;
use ovsdb::transaction::Transaction;

use super::effect::{Effect, Measure, Stage};
use super::queue::Turn;
use super::record::Record;
use super::repair::{self, Drift, Repairs};
use super::{BATCH, Engine, Leading};
use super::{seed, selectors};
use crate::allocation::{Allocatable, PodState};
use crate::contribution::Contribution;
use crate::desired::{Inputs, check_node, desired, holder_of_chassis, service_needs};
use crate::identity::{Owner, RowId};
use crate::ledger::{Entry, Touched};
use crate::plan::plan;
use crate::refusal::Refusal;

/// A batch whose transaction is in flight.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    turns: Vec<Turn>,
    /// The ledger entries to restore if it is not committed.
    before: Vec<(Owner, Entry)>,
    /// Whether it raises `nb_cfg`, to learn when all nodes have applied it.
    raises_nb_cfg: bool,
    /// Owners of the batch whose rows stay as they are.
    unchanged: BTreeSet<Owner>,
    /// Quarantined items whose keys it removes from the database.
    freed: Vec<Allocatable>,
    /// Allocatable items that it removes from the database and adds to it.
    record: Record,
    /// Differences that another client caused and this batch undoes.
    drift: Drift,
    /// The rows that it therefore restores.
    repairs: Repairs,
    /// Owners with all their rows once it is committed; only tracked while another controller's rows exist.
    done: BTreeSet<Owner>,
    /// Rows of another controller that it removes.
    replaced: BTreeSet<RowId>,
}

/// What the driver has to do next.
#[derive(Debug)]
pub enum Next {
    /// Commit this, then call `committed`, `refused` or `abandoned`.
    Commit(Transaction),
    /// Some owners needed no write; call `next` again for the others.
    Again,
    /// Nothing to do until the next event or deadline.
    Idle,
}

impl Engine {
    /// Whether a transaction is in flight.
    pub fn in_flight(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.in_flight.is_some())
    }

    /// The next transaction. The snapshot must contain everything that was committed.
    pub fn next(&mut self, snapshot: &Snapshot, now: Duration) -> Next {
        self.tick(now);
        let Some(leading) = &mut self.leading else { return Next::Idle };
        if leading.in_flight.is_some() {
            return Next::Idle;
        }
        let turns = leading.queue.take(leading.limit, !leading.one_by_one);
        let had_turns = !turns.is_empty();
        let mut transaction = self.changes(turns, snapshot, now);
        let Some(leading) = &mut self.leading else { return Next::Idle };
        leading.progress.remove_variables(&mut transaction, &leading.ledger, &self.store, snapshot);
        let changes = !transaction.is_empty();
        let Some(batch) = &mut leading.in_flight else { return Next::Idle };
        let quarantine = leading.allocator.quarantine();
        let leaves =
            batch.record.loses() || changes && batch.turns.iter().any(|turn| quarantine.leaves_with(&turn.owner));
        let must = leading.progress.must_raise(leaves || quarantine.must_raise(), now);
        batch.raises_nb_cfg = must || changes && leading.progress.may_sample(now);
        batch.freed = quarantine.freed().take(BATCH).collect();
        let raise = batch.raises_nb_cfg.then(|| leading.progress.raise(snapshot));
        batch.record.keep(&mut transaction, &batch.freed, raise, snapshot);
        if transaction.is_empty() {
            self.finish(snapshot, now);
            if had_turns {
                return Next::Again;
            }
            if let Some(since) = self.leading.as_mut().and_then(|leading| leading.resync_since.take()) {
                self.effects.push(Effect::Measured(Measure::Sync(now.saturating_sub(since))));
            }
            return Next::Idle;
        }
        Next::Commit(transaction)
    }

    /// The differences of the owners whose turn it is; marks the batch as in flight.
    fn changes(&mut self, mut turns: Vec<Turn>, snapshot: &Snapshot, now: Duration) -> Transaction {
        let drift = self.leading.as_mut().map(|leading| leading.take_drift(&turns)).unwrap_or_default();
        // Owners that wait and have no rows of their own yet: rows of a former object of the same name are removed meanwhile.
        let mut cleared: BTreeSet<Owner> = BTreeSet::new();
        loop {
            let Some(leading) = &mut self.leading else { return Transaction::new() };
            let mut touched = Touched::default();
            let mut before = Vec::with_capacity(turns.len());
            let mut unchanged = BTreeSet::new();
            let (mut done, mut replaced) = (BTreeSet::new(), BTreeSet::new());
            for Turn { owner, .. } in &turns {
                if *owner == Owner::Adopted {
                    // It is the last turn: owners that replace these rows in this transaction had theirs.
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
                    unchanged.insert(owner.clone());
                }
                if let Some(contribution) = contribution {
                    let refused = leading.parked.contains_key(owner) && contribution.refusal.is_none();
                    if !leading.leftovers.is_empty() && !refused && !leading.is_waiting(owner, &self.store) {
                        done.insert(owner.clone());
                    }
                    let was = leading.ledger.put(owner, contribution, &mut touched);
                    if self.store.is_lingering(owner) {
                        // The ports that it was kept for are gone.
                        for words in self.store.release(owner) {
                            leading.queue.push(Owner::Selector(words), now);
                        }
                    }
                    leading.requeue_unused(&was, &self.store, now);
                    let came = was.rows().is_empty();
                    before.push((owner.clone(), was));
                    if let Owner::Selector(words) = owner {
                        leading.sync_members(words, came, &self.store, &mut touched, &mut before);
                        leading.requeue_waiting(words, &self.store, now);
                    }
                }
            }
            drift.touch(&leading.ledger, snapshot, &mut touched);
            let plan = plan(&touched, &leading.ledger, snapshot);
            if plan.missing.is_empty() {
                leading.members_synced(&turns);
                // No write, as in the resync of an unchanged cluster: nothing is lost or gained.
                let record = match plan.transaction.is_empty() {
                    true => Record::default(),
                    false => Record::of(&touched, &before, snapshot),
                };
                let repairs = repair::repairs(&drift.foreign, &touched, &plan.transaction, snapshot);
                let (raises_nb_cfg, freed) = (false, Vec::new());
                let batch =
                    Batch { turns, before, unchanged, raises_nb_cfg, freed, record, drift, repairs, done, replaced };
                leading.in_flight = Some(batch);
                return plan.transaction;
            }
            // An owner refers to a missing row, because that row's owner is parked: it waits.
            let waiting = leading.defer(&mut turns, before, &plan.missing);
            if waiting.is_empty() {
                // No owner of the batch refers to it: retrying would not help.
                turns.clear();
            }
            for owner in waiting {
                if leading.queue.postpone(&owner) {
                    continue;
                }
                let message = format!("{owner} needs rows of a parked object: see the Events of its node");
                leading.park(&owner, Refusal::new("WaitingForParked", message), &self.store, &mut self.effects);
                leading.wait_for_node(&owner, &self.store);
                let context = Context { leading, store: &self.store, effects: &mut self.effects, now };
                if !context.has_rows_of_its_own(&owner) && leading.ledger.entry(&owner).is_some() {
                    cleared.insert(owner.clone());
                    turns.push(Turn { owner, since: now });
                }
            }
        }
    }

    /// The transaction was committed, and the snapshot contains it.
    pub fn committed(&mut self, snapshot: &Snapshot, now: Duration) {
        if let Some(leading) = &mut self.leading {
            leading.limit = (leading.limit * 2).min(self.batch);
            leading.one_by_one = false;
            let oldest = leading.in_flight.iter().flat_map(|batch| &batch.turns).map(|turn| turn.since).min();
            if let Some(oldest) = oldest {
                let took = now.saturating_sub(oldest);
                self.effects.push(Effect::Measured(Measure::Propagation(Stage::Northbound, took)));
            }
            leading.find_lost_rows(snapshot, now);
        }
        self.finish(snapshot, now);
    }

    fn finish(&mut self, snapshot: &Snapshot, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let Some(batch) = leading.in_flight.take() else { return };
        let quarantine = leading.allocator.quarantine_mut();
        // An unchanged owner keeps its rows, and what is allocated with them.
        for turn in batch.turns.iter().filter(|turn| !batch.unchanged.contains(&turn.owner)) {
            quarantine.committed(&turn.owner);
        }
        quarantine.forget_freed(&batch.freed);
        batch.record.committed(quarantine);
        self.effects.extend(repair::effects(batch.repairs, &self.store));
        if batch.raises_nb_cfg {
            let number = leading.progress.raised(snapshot, now);
            leading.allocator.quarantine_mut().raised(number);
        }
        leading.replaced(batch.done, &batch.replaced, &mut self.effects, now);
        // A policy that was deleted with its namespace is removed with the last of its ports.
        if batch.turns.iter().any(|turn| matches!(turn.owner, Owner::Pod(_))) {
            for owner in self.store.lingering() {
                leading.queue.push(owner.clone(), now);
            }
        }
        for turn in &batch.turns {
            self.follow_up(&turn.owner);
        }
    }

    /// The server refused the transaction: nothing was written. The named owner is parked and the rest retried; without a
    /// name, smaller batches find the offending owner.
    pub fn refused(&mut self, owner: Option<&str>, why: &str, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let Some(batch) = leading.in_flight.take() else { return };
        let alone = batch.turns.len() == 1;
        leading.limit = (batch.turns.len() / 2).max(1);
        leading.one_by_one = owner.is_none();
        leading.drift.add(batch.drift);
        leading.members_not_synced(&batch.turns);
        for (owner, entry) in batch.before.into_iter().rev() {
            leading.ledger.restore(&owner, entry);
        }
        for Turn { owner: turn, since } in batch.turns {
            if alone || owner.is_some_and(|owner| owner == turn.to_string()) {
                let message = format!("northbound database rejected the change: {why}; existing rows are kept");
                leading.park(&turn, Refusal::new("DatabaseRefused", message), &self.store, &mut self.effects);
            } else {
                leading.queue.push(turn, since.min(now));
            }
        }
    }

    /// The transaction was not committed and never will be: all its owners are retried.
    pub fn abandoned(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        let Some(batch) = leading.in_flight.take() else { return };
        leading.drift.add(batch.drift);
        leading.members_not_synced(&batch.turns);
        for (owner, entry) in batch.before.into_iter().rev() {
            leading.ledger.restore(&owner, entry);
        }
        for Turn { owner, since } in batch.turns {
            leading.queue.push(owner, since);
        }
    }

    /// Another client changed rows of ours: their owners are requeued, and the rows' contents compared.
    pub fn drifted(&mut self, owners: BTreeSet<Owner>, rows: BTreeSet<RowId>, now: Duration) {
        self.requeue_drifted(Drift { owners, foreign: rows.clone(), rows }, now);
    }

    /// Rows that we have written may also have been changed by another client: as [`Engine::drifted`], without a report.
    pub fn maybe_drifted(&mut self, owners: BTreeSet<Owner>, rows: BTreeSet<RowId>, now: Duration) {
        self.requeue_drifted(Drift { owners, rows, foreign: BTreeSet::new() }, now);
    }

    fn requeue_drifted(&mut self, drift: Drift, now: Duration) {
        if let Some(leading) = &mut self.leading {
            for owner in &drift.owners {
                leading.queue.push(owner.clone(), now);
            }
            leading.drift.add(drift);
        }
    }
}

/// What the turn of an owner needs.
struct Context<'a> {
    leading: &'a mut Leading,
    store: &'a crate::store::Store,
    effects: &'a mut Vec<Effect>,
    now: Duration,
}

impl Context<'_> {
    /// Allocates for an owner and computes its contribution; none if its rows stay as they are.
    fn contribution(
        &mut self,
        owner: &Owner,
        settings: &crate::settings::ClusterSettings,
        snapshot: &Snapshot,
    ) -> Option<Contribution> {
        let mut refusal = self.allocate(owner, snapshot).err();
        if self.leading.keeps_rows(owner, self.store) {
            if let Some(refusal) = refusal {
                self.leading.park(owner, refusal, self.store, self.effects);
            }
            return None;
        }
        if let Some(node) = self.unconnected_node_of(owner) {
            if refusal.is_none() && self.leading.parked.contains_key(&Owner::Node(node.clone())) {
                let message = format!("node {node} has no network: see its Events");
                refusal = Some(Refusal::new("NodeWithoutNetwork", message));
            }
            if let Some(refusal) = refusal {
                self.leading.park(owner, refusal, self.store, self.effects);
            }
            self.leading.wait_for_node(owner, self.store);
            return Some(Contribution::default());
        }
        if self.is_frozen(owner) {
            self.leading.wait_for_node(owner, self.store);
            return None;
        }
        let inputs =
            Inputs { settings, store: self.store, allocator: &self.leading.allocator, aliases: &self.leading.aliases };
        let wanted = desired(owner, inputs);
        if let Owner::Service(key) = owner {
            self.leading.node_bound.note(key, service_needs(key, inputs));
        }
        let missing_selectors =
            wanted.as_ref().ok().and_then(|wanted| self.leading.missing_selectors(wanted, self.now));
        let wanted = missing_selectors.map_or(wanted, Err);
        match (refusal.as_ref(), &wanted) {
            (Some(refusal), _) | (None, Err(refusal)) => {
                let refusal = refusal.clone();
                self.leading.park(owner, refusal, self.store, self.effects);
                self.leading.wait_for_node(owner, self.store);
            }
            (None, Ok(Contribution { refusal: Some(refusal), .. })) => {
                self.leading.park(owner, refusal.clone(), self.store, self.effects);
            }
            (None, Ok(_)) => drop(self.leading.parked.remove(owner)),
        }
        // Rows of another object of the same name are not a last valid state of this one.
        wanted.ok().or_else(|| (!self.has_rows_of_its_own(owner)).then(Contribution::default))
    }

    /// The node of a pod that needs a port, if that node has no switch.
    fn unconnected_node_of(&self, owner: &Owner) -> Option<Name> {
        let Owner::Pod(key) = owner else { return None };
        let name = self.store.pod(key)?.wants_port()?;
        (!self.has_rows_of_its_own(&Owner::Node(name.clone()))).then(|| name.clone())
    }

    /// Whether a pod's port stays as it is because its node's rows do: the node is parked, and its facts cannot be used.
    fn is_frozen(&self, owner: &Owner) -> bool {
        let Owner::Pod(key) = owner else { return false };
        let Some(pod) = self.store.pod(key) else { return false };
        let Some(node) = pod.wants_port().and_then(|node| self.store.node(node)) else { return false };
        // Cheap check first: hardly any node is parked.
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

    /// Whether the pod with this UID has a port.
    fn has_port(&self, owner: &Owner, pod: &PodFacts) -> bool {
        let port = RowId { table: LogicalSwitchPort::TABLE, uuid: seed::port_of(pod, &self.leading.aliases) };
        self.leading.ledger.entry(owner).is_some_and(|entry| entry.rows().contains(&port))
    }

    fn allocate(&mut self, owner: &Owner, snapshot: &Snapshot) -> Result<(), Refusal> {
        let Self { leading, store, now, .. } = self;
        match owner {
            Owner::Node(name) => {
                let Some(node) = store.node(name) else {
                    leading.allocator.release_node(name);
                    leading.progress.forget_node(name);
                    return Ok(());
                };
                if !has_switch(leading, node)
                    && let Err(refusal) = check_node(node, store)
                {
                    // It cannot have a network, so it holds no allocation either.
                    leading.allocator.release_former_node(node);
                    return Err(refusal);
                }
                let known = seed::known_node(node, snapshot, &leading.aliases);
                let allocated = leading.allocator.allocate_node(node, &known);
                if allocated.is_ok() {
                    for key in leading.waiting.remove(name).unwrap_or_default() {
                        leading.queue.push(Owner::Pod(key), *now);
                    }
                }
                allocated
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
                if leading.allocator.allocate_pod(pod, known.as_ref())? == PodState::Waiting {
                    leading.wait_for_node(owner, store);
                }
                Ok(())
            }
            Owner::Namespace(_) | Owner::Policy(_) | Owner::AdminPolicy(_) | Owner::BaselinePolicy(_) => {
                selectors::check_policy(owner, store)
            }
            // Nothing to allocate.
            Owner::Cluster | Owner::Selector(_) | Owner::Service(_) | Owner::Adopted => Ok(()),
        }
    }
}

/// Whether the node with this UID has a switch.
fn has_switch(leading: &Leading, node: &NodeFacts) -> bool {
    let switch = seed::switch_of(node, &leading.aliases);
    leading.ledger.entry(&Owner::Node(node.name.clone())).is_some_and(|entry| entry.rows().contains(&switch))
}

impl Leading {
    /// The drift that these turns repair: all rows, and the owners among the turns.
    fn take_drift(&mut self, turns: &[Turn]) -> Drift {
        let owners = turns.iter().filter_map(|turn| self.drift.owners.take(&turn.owner)).collect();
        let Drift { rows, foreign, .. } = &mut self.drift;
        Drift { owners, rows: std::mem::take(rows), foreign: std::mem::take(foreign) }
    }

    /// A row inserted into a parent that another client deleted concurrently is gone again, and no change reports it: its
    /// owner is requeued.
    fn find_lost_rows(&mut self, snapshot: &Snapshot, now: Duration) {
        let Self { in_flight, ledger, queue, drift, .. } = self;
        for (owner, _) in in_flight.iter().flat_map(|batch| &batch.before) {
            let rows = ledger.entry(owner).map(Entry::rows).unwrap_or_default();
            if rows.iter().any(|id| crate::plan::row(snapshot, *id).is_none()) {
                queue.push(owner.clone(), now);
                drift.owners.insert(owner.clone());
            }
        }
    }

    /// Requeues the pod when its node changes or a quarantine there ends.
    fn wait_for_node(&mut self, owner: &Owner, store: &crate::store::Store) {
        if let Owner::Pod(key) = owner
            && let Some(node) = store.pod(key).and_then(|pod| pod.node.clone())
        {
            self.waiting.entry(node).or_default().insert(key.clone());
        }
    }

    /// Removes the owners that refer to missing rows from a batch, and restores the ledger.
    fn defer(&mut self, turns: &mut Vec<Turn>, before: Vec<(Owner, Entry)>, missing: &BTreeSet<RowId>) -> Vec<Owner> {
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
