//! Acknowledgements: `nb_cfg` is raised with a change, northd copies it to the southbound database, and each chassis copies
//! it when its flows are installed. This ends quarantines, shows that a node's network works, and measures propagation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backoff::Backoff;
use objects::Name;
use ovn_schema::TableRow;
use ovn_schema::northbound::{ChassisTemplateVar, GatewayChassis};
use ovsdb::operation::Condition;
use ovsdb::replica::{RowView, Snapshot};
use ovsdb::transaction::Transaction;

use super::effect::{Effect, Measure, ObjectRef, Stage};
use super::node_network::NetworkStatus;
use super::{Engine, seed};
use crate::identity::{Owner, RowId};
use crate::ledger::{Entry, Ledger};
use crate::plan::owner_of;
use crate::store::Store;

/// How often `nb_cfg` is raised for the propagation histogram alone.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// An acknowledgement that takes longer does not keep `nb_cfg` from being raised again: a node may be dead.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from losing its node to the removal of a chassis: a node that comes back meanwhile keeps it.
const CHASSIS_GRACE: Duration = Duration::from_secs(30);
/// First and longest delay before a failed chassis removal is retried.
const REMOVAL_RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Values above were not counted up to, but written by another client; they are ignored.
const MAX_NB_CFG: i64 = i64::MAX / 2;

/// What northd and the chassis have acknowledged, and what waits for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// `nb_cfg` of each chassis; none until the southbound database was read.
    chassis: Option<BTreeMap<Box<str>, i64>>,
    /// `nb_cfg` as northd copied it to the southbound database.
    southbound: i64,
    request: Option<Request>,
    /// The oldest value that northd or a chassis has not acknowledged, and since when. Later ones may be pending too.
    unacknowledged: Option<(i64, Duration)>,
    /// The oldest value that northd has not copied, and since when.
    northd_behind: Option<(i64, Duration)>,
    last_raised: Option<Duration>,
    /// Nodes with `NetworkUnavailable=True`, and the value whose acknowledgement shows that their network works.
    awaiting_network: BTreeMap<Name, Option<i64>>,
    /// Chassis without a node, and when they are removed.
    removals: BTreeMap<Box<str>, Duration>,
    /// Failed attempts, by chassis.
    failed_removals: BTreeMap<Box<str>, u32>,
    /// Chassis without a node whose template variables still exist, and when to check whether they are gone; no time if
    /// they existed at the last check.
    orphans: BTreeMap<Box<str>, Option<Duration>>,
    /// Chassis that are gone for good: their template variables are removed.
    gone: BTreeSet<Box<str>>,
}

/// A raise of `nb_cfg` that is not acknowledged by all yet.
#[derive(Debug, Clone)]
struct Request {
    number: i64,
    at: Duration,
    /// Whether northd has copied it.
    southbound: bool,
}

/// Chassis that the rows of nodes name and the nodes do not: they changed while no controller led.
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

/// Chassis that have template variables and no node, and whether their node is gone or has another chassis. A node that
/// merely lacks its annotation at the moment does not count as replaced.
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
    /// Whether the next transaction must raise `nb_cfg`: a quarantine or a node waits for the acknowledgement.
    pub(super) fn must_raise(&self, quarantined: bool, now: Duration) -> bool {
        self.may_raise(now) && (quarantined || self.awaiting_network.values().any(Option::is_none))
    }

    /// Whether the next transaction may raise it for the histogram.
    pub(super) fn may_sample(&self, now: Duration) -> bool {
        self.may_raise(now) && self.last_raised.is_none_or(|last| now >= last + SAMPLE_INTERVAL)
    }

    /// The new value must be above all acknowledged ones, so they must be known.
    fn may_raise(&self, now: Duration) -> bool {
        self.chassis.is_some() && self.request.as_ref().is_none_or(|request| now >= request.at + ACK_TIMEOUT)
    }

    /// When to check again if nothing happens before.
    pub(super) fn deadline(&self, quarantined: bool) -> Option<Duration> {
        let waits = quarantined || self.awaiting_network.values().any(Option::is_none);
        let again = self.request.as_ref().filter(|_| waits).map(|request| request.at + ACK_TIMEOUT);
        let chassis = self.removals.values().chain(self.orphans.values().flatten());
        again.into_iter().chain(chassis.copied()).min()
    }

    /// Reports the node's network as available once its chassis acknowledges the next value.
    pub(super) fn await_node_network(&mut self, node: &Name) {
        self.awaiting_network.entry(node.clone()).or_default();
    }

    pub(super) fn forget_node(&mut self, node: &str) {
        self.awaiting_network.remove(node);
    }

    pub(super) fn schedule_removal(&mut self, name: Box<str>, now: Duration) {
        self.removals.insert(name, now + CHASSIS_GRACE);
    }

    /// A chassis has template variables and no node.
    pub(super) fn watch_orphan(&mut self, name: Box<str>, now: Duration) {
        self.orphans.insert(name, Some(now + CHASSIS_GRACE));
    }

    /// Finds chassis without a node that are gone. One that is alive registers again a moment after its removal, so only
    /// one that stays away counts.
    fn check_orphans(&mut self, store: &Store, now: Duration) {
        let Self { chassis, orphans, gone, .. } = self;
        orphans.retain(|name, due| {
            let there = chassis.as_ref().is_none_or(|chassis| chassis.contains_key(name));
            match due {
                Some(due) if *due > now => return true,
                _ if there => *due = None,
                None => *due = Some(now + CHASSIS_GRACE),
                Some(_) => {
                    gone.insert(name.clone());
                    return false;
                }
            }
            !has_node(store, name)
        });
    }

    /// Removes the template variables of chassis that are gone. Not before: an ovn-controller (25.03) that sees the row of
    /// its chassis go and come back fails an assertion.
    pub(super) fn remove_variables(
        &mut self,
        transaction: &mut Transaction,
        ledger: &Ledger,
        store: &Store,
        snapshot: &Snapshot,
    ) {
        if self.gone.is_empty() {
            return;
        }
        let table = snapshot.table(ChassisTemplateVar::TABLE);
        let rows: Vec<_> = table.into_iter().flat_map(ovsdb::replica::Table::iter).collect();
        self.gone.retain(|name| {
            let named = |view: &&RowView<'_>| view.text(ChassisTemplateVar::chassis.name()).as_deref() == Some(name);
            let Some(view) = rows.iter().copied().find(|view| named(&view)) else { return false };
            let Some(owner @ Owner::Node(_)) = owner_of(view) else { return false };
            if has_node(store, name) {
                return false;
            }
            // A row that the ledger lists belongs to a parked node, and stays until the node is reconciled.
            let id = RowId { table: ChassisTemplateVar::TABLE, uuid: view.uuid };
            if !ledger.entry(&owner).is_some_and(|entry| entry.rows().contains(&id)) {
                transaction.without_owner();
                transaction.delete(id.table, vec![Condition::uuid(id.uuid)]);
            }
            true
        });
    }

    /// By how much to raise `nb_cfg`: above every acknowledged value. A northbound database that was recreated or restored
    /// may be behind what the southbound database and the chassis have from before.
    pub(super) fn raise(&self, snapshot: &Snapshot) -> i64 {
        let current = seed::global(snapshot).and_then(|global| global.integer("nb_cfg")).unwrap_or(0);
        let chassis = self.chassis.iter().flat_map(BTreeMap::values).copied();
        let reached = chassis.chain([self.southbound]).filter(|number| *number < MAX_NB_CFG).max().unwrap_or(0);
        reached.saturating_sub(current).saturating_add(1).max(1)
    }

    /// `nb_cfg` was raised by a transaction that the snapshot contains; returns its value.
    pub(super) fn raised(&mut self, snapshot: &Snapshot, now: Duration) -> i64 {
        let number = seed::global(snapshot).and_then(|global| global.integer("nb_cfg")).unwrap_or(0);
        self.request = Some(Request { number, at: now, southbound: false });
        self.unacknowledged.get_or_insert((number, now));
        self.northd_behind.get_or_insert((number, now));
        self.last_raised = Some(now);
        for waiting in self.awaiting_network.values_mut().filter(|waiting| waiting.is_none()) {
            *waiting = Some(number);
        }
        number
    }

    /// The value that northd and all chassis of ready nodes have acknowledged.
    fn acknowledged(&self, store: &Store) -> i64 {
        self.slowest(store).min(self.southbound)
    }

    /// Whether a node's own chassis has acknowledged a value; none if unknown.
    fn reached(&self, store: &Store, node: &str, number: i64) -> Option<bool> {
        let chassis = store.node(node)?.chassis.as_ref()?;
        self.chassis.as_ref()?.get(chassis).map(|reached| *reached >= number)
    }

    /// The lowest acknowledged value of all chassis but those of nodes that are not ready: these have the newest state before
    /// they are ready again. A chassis without a node counts: its node may be new, or recreated.
    fn slowest(&self, store: &Store) -> i64 {
        let not_ready: BTreeSet<&str> =
            store.nodes().filter(|node| !node.ready).filter_map(|node| node.chassis.as_deref()).collect();
        // Nothing known about the chassis: nothing counts as acknowledged.
        let Some(chassis) = &self.chassis else { return i64::MIN };
        let ready = chassis.iter().filter(|(name, _)| !not_ready.contains(&***name));
        ready.map(|(_, reached)| *reached).min().unwrap_or(i64::MAX)
    }
}

impl Engine {
    /// Takes `nb_cfg` of every chassis, and of the southbound database.
    pub fn progress(&mut self, chassis: BTreeMap<Box<str>, i64>, southbound: i64, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let progress = &mut leading.progress;
        progress.chassis = Some(chassis);
        progress.southbound = southbound;
        progress.northd_behind = progress.northd_behind.filter(|(number, _)| *number > southbound);
        if let Some(request) = &mut progress.request
            && !request.southbound
            && southbound >= request.number
        {
            request.southbound = true;
            let took = now.saturating_sub(request.at);
            self.effects.push(Effect::Measured(Measure::Propagation(Stage::Southbound, took)));
        }
        if let Some(request) = progress.request.clone()
            && request.southbound
            && progress.slowest(&self.store) >= request.number
        {
            progress.request = None;
            let took = now.saturating_sub(request.at);
            self.effects.push(Effect::Measured(Measure::Propagation(Stage::Nodes, took)));
        }
        let acknowledged = progress.acknowledged(&self.store);
        if progress.unacknowledged.is_some_and(|(number, _)| number <= acknowledged) {
            let open = progress.request.as_ref().filter(|request| request.number > acknowledged);
            progress.unacknowledged = open.map(|request| (request.number, request.at));
        }
        self.check_progress(now);
    }

    /// Since when northd has not copied `nb_cfg` to the southbound database; none if it has.
    pub fn northd_behind_since(&self) -> Option<Duration> {
        self.leading.as_ref()?.progress.northd_behind.map(|(_, since)| since)
    }

    /// Since when northd or the chassis of a ready node has not acknowledged `nb_cfg`; none if all have.
    pub fn nb_cfg_unacknowledged_since(&self) -> Option<Duration> {
        let progress = &self.leading.as_ref()?.progress;
        // A node that is no longer ready does not count.
        let (_, since) = progress.unacknowledged.filter(|(number, _)| *number > progress.acknowledged(&self.store))?;
        Some(since)
    }

    /// Ends quarantines, reports nodes whose network works, and removes chassis without a node.
    pub(super) fn check_progress(&mut self, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let (progress, store) = (&leading.progress, &self.store);
        let slowest = progress.slowest(store);
        let freed = leading.allocator.release_acknowledged(|node, number| {
            slowest >= number && progress.reached(store, node, number).unwrap_or(true)
        });
        for node in freed {
            for key in leading.waiting.remove(&node).unwrap_or_default() {
                leading.queue.push(Owner::Pod(key), now);
            }
            // A subnet or a node ID may be free: nodes without one are retried.
            let parked: Vec<Owner> =
                leading.parked.keys().filter(|owner| matches!(owner, Owner::Node(_))).cloned().collect();
            for owner in parked {
                leading.queue.push(owner, now);
            }
        }
        let connected: Vec<Name> = progress
            .awaiting_network
            .iter()
            .filter(|(node, number)| number.is_some_and(|number| progress.reached(store, node, number) == Some(true)))
            .map(|(node, _)| node.clone())
            .collect();
        for name in connected {
            leading.progress.awaiting_network.remove(&name);
            let Some(node) = self.store.node(&name).filter(|node| node.network_unavailable == Some(true)) else {
                continue;
            };
            let object = ObjectRef { kind: "Node", namespace: None, name: (&*name).into(), uid: node.uid.clone() };
            let message = "the flows of the node's logical network are installed".into();
            let status = NetworkStatus { available: true, reason: "NetworkWired", message };
            leading.node_networks.set(object, status, &mut self.effects);
        }
        let due: Vec<Box<str>> = {
            let removals = leading.progress.removals.iter();
            removals.filter(|(_, due)| **due <= now).map(|(name, _)| name.clone()).collect()
        };
        for name in due {
            leading.progress.removals.remove(&name);
            if has_node(&self.store, &name) {
                leading.progress.failed_removals.remove(&name);
                self.unremoved.remove(&name);
            } else {
                let there = leading.progress.chassis.as_ref().is_none_or(|chassis| chassis.contains_key(&name));
                let due = if there { now + CHASSIS_GRACE } else { now };
                leading.progress.orphans.insert(name.clone(), Some(due));
                self.unremoved.insert(name.clone());
                self.effects.push(Effect::RemoveChassis { name });
            }
        }
        leading.progress.check_orphans(&self.store, now);
    }

    /// Takes the outcome of [`Effect::RemoveChassis`]. A failed removal is retried while no node has the chassis.
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
        let pause = REMOVAL_RETRY.delay(*failed, 1.0);
        *failed += 1;
        progress.removals.insert(name.into(), now + pause);
    }
}
