//! A simulated northbound database with northd and chassis: fenced commits, a log that replicas follow at their own pace,
//! and invariants of every committed state.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::datum::Datum;
use ovsdb::memory::{Database, RowChange};
use ovsdb::replica::{Replica, Snapshot};
use ovsdb::schema::DatabaseSchema;
use ovsdb::sequence::SequenceCell;
use ovsdb::transaction::{Row, Transaction};
use ovsdb::uuid::Uuid;
use topology::identity::{OWNER_NAME, OWNER_TYPE, Owner, RowId};
use topology::plan::{TABLES, table_name};

pub(crate) const GLOBAL: Uuid = Uuid::from_bytes([7; 16]);
const SEQUENCE: &str = "sequence";

pub(crate) fn cell() -> SequenceCell {
    let (table, column, key) = ("NB_Global".into(), "external_ids".into(), SEQUENCE.into());
    SequenceCell { table, uuid: GLOBAL, column, key }
}

pub(crate) struct Nb {
    pub(crate) database: Database,
    pub(crate) log: Vec<Vec<RowChange>>,
    /// Indices of commits by another client.
    by_hand: BTreeSet<usize>,
    /// Another client changed rows: some invariants cannot hold any more.
    pub(crate) damaged: bool,
    /// By address: the commit that removed its last port, and the port's owner.
    removed: BTreeMap<String, (usize, String)>,
    holders: BTreeMap<String, String>,
    pub(crate) chassis: BTreeMap<String, Chassis>,
    /// The `nb_cfg` that northd has copied.
    pub(crate) southbound: i64,
    /// Chassis of existing, ready nodes.
    pub(crate) working: BTreeSet<String>,
    /// Chassis that the committing controller still considers not ready; each of them had the newest state when it
    /// became ready.
    pub(crate) believed_not_ready: BTreeSet<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Chassis {
    pub(crate) nb_cfg: i64,
    /// The commit that its flows reflect.
    pub(crate) seen: usize,
    pub(crate) stuck: bool,
}

impl Nb {
    pub(crate) fn new(schema: &DatabaseSchema, seed: u64) -> Self {
        let mut nb = Self {
            database: Database::with_seed(schema.clone(), seed),
            log: Vec::new(),
            by_hand: BTreeSet::new(),
            damaged: false,
            removed: BTreeMap::new(),
            holders: BTreeMap::new(),
            chassis: BTreeMap::new(),
            southbound: 0,
            working: BTreeSet::new(),
            believed_not_ready: BTreeSet::new(),
        };
        let mut begin = Transaction::new();
        begin.insert_with_uuid("NB_Global", GLOBAL, Row::new());
        // Rows of another client, which must not change.
        let port = Uuid::from_bytes([9; 16]);
        begin.insert_with_uuid("Logical_Switch_Port", port, Row::new().text("name", "foreign-port"));
        let switch = Row::new().text("name", "foreign").set("ports", ovsdb::datum::Atom::Uuid(port));
        begin.insert_with_uuid("Logical_Switch", Uuid::from_bytes([8; 16]), switch);
        nb.apply(&begin).unwrap();
        nb
    }

    /// Commits a transaction and logs it; an error has the operation's index, its owner and the message.
    pub(crate) fn apply(&mut self, transaction: &Transaction) -> Result<(), (Option<usize>, Option<String>, String)> {
        let (answer, changes) = self.database.transact_with_changes(&BTreeSet::new(), transaction.operations());
        transaction.read_reply(answer).map_err(|refusal| {
            (refusal.position, refusal.owner.as_ref().map(ToString::to_string), refusal.to_string())
        })?;
        if !changes.is_empty() {
            self.check(&changes);
            self.log.push(changes);
        }
        Ok(())
    }

    /// A transaction of another client.
    pub(crate) fn change_externally(&mut self, transaction: &Transaction) {
        let commit = self.log.len();
        if std::env::var("SIMULATION_TRACE").is_ok() {
            eprintln!("-- by hand (log {commit}): {}", serde_json::to_string(transaction.operations()).unwrap());
        }
        self.damaged = true;
        self.apply(transaction).unwrap();
        if self.log.len() > commit {
            self.by_hand.insert(commit);
            // The controller cannot quarantine addresses of rows that another client removed.
            self.removed.retain(|_, (removed, _)| *removed != commit);
        }
    }

    /// After the database was lost, removed addresses are unknown.
    pub(crate) fn forget_removals(&mut self) {
        self.removed.clear();
    }

    pub(crate) fn sequence(&self) -> Option<String> {
        self.global("external_ids").and_then(|ids| ids.get_str(SEQUENCE))
    }

    fn global(&self, column: &str) -> Option<Datum> {
        self.database.row("NB_Global", GLOBAL)?.get(column).cloned()
    }

    pub(crate) fn nb_cfg(&self) -> i64 {
        match self.global("nb_cfg") {
            Some(Datum::One(ovsdb::datum::Atom::Integer(number))) => number,
            _ => 0,
        }
    }

    /// Invariants of every committed state.
    fn check(&mut self, changes: &[RowChange]) {
        let commit = self.log.len();
        let mut inserted: Vec<(String, String)> = Vec::new();
        for change in changes.iter().filter(|change| change.table == "Logical_Switch_Port") {
            let holder = |values: &ovsdb::operation::RowValues| -> Option<(Vec<String>, String)> {
                let uid = values.get("options")?.get_str("iface-id-ver")?;
                let words = values.get("addresses")?.atoms().next()?.to_string();
                Some((words.split(' ').skip(1).map(String::from).collect(), uid))
            };
            let (before, after) = (change.before.as_ref().and_then(holder), change.after.as_ref().and_then(holder));
            if before == after {
                continue;
            }
            for (address, uid) in
                before.into_iter().flat_map(|(all, uid)| all.into_iter().map(move |one| (one, uid.clone())))
            {
                if self.holders.get(&address) == Some(&uid) {
                    self.holders.remove(&address);
                    self.removed.insert(address, (commit, uid));
                }
            }
            for (address, uid) in
                after.into_iter().flat_map(|(all, uid)| all.into_iter().map(move |one| (one, uid.clone())))
            {
                inserted.push((address, uid));
            }
        }
        for (address, uid) in inserted {
            if let Some(other) = self.holders.insert(address.clone(), uid.clone()) {
                assert_eq!(other, uid, "{address} is allocated twice");
            }
            let Some((removed, former)) = self.removed.get(&address) else { continue };
            if *former == uid {
                continue;
            }
            let counts = |name: &String| self.working.contains(name) && !self.believed_not_ready.contains(name);
            for (name, chassis) in self.chassis.iter().filter(|(name, _)| counts(name)) {
                assert!(
                    chassis.seen > *removed,
                    "{address} of {former} went to {uid} in commit {commit}; it was removed in {removed}, and {name} has \
                     seen {} only",
                    chassis.seen
                );
            }
        }
        if !self.damaged {
            self.check_names(changes);
        }
        // The server only clears weak references.
        for change in changes.iter().filter(|change| change.table == "Port_Group") {
            let ports = change.after.as_ref().and_then(|values| values.get("ports"));
            for port in ports.iter().flat_map(|ports| ports.atoms()) {
                let ovsdb::datum::Atom::Uuid(uuid) = port else { panic!("{port}") };
                assert!(self.database.row("Logical_Switch_Port", uuid).is_some(), "a port group has a deleted port");
            }
        }
    }

    /// No ACL names a missing group or set.
    fn check_names(&self, changes: &[RowChange]) {
        let text = |values: &ovsdb::operation::RowValues, column: &str| values.get(column).map(ToString::to_string);
        let concerns = |change: &&RowChange| match change.table.as_str() {
            "ACL" => change.after.is_some(),
            "Port_Group" | "Address_Set" => change.after.is_none(),
            _ => false,
        };
        if !changes.iter().any(|change| concerns(&change)) {
            return;
        }
        let rows = || self.database.tables();
        let named = rows().filter(|(table, ..)| ["Port_Group", "Address_Set"].contains(table));
        let there: BTreeSet<String> = named.filter_map(|(_, _, values)| text(&values, "name")).collect();
        for (_, uuid, values) in rows().filter(|(table, ..)| *table == "ACL") {
            let matching = text(&values, "match").unwrap_or_default();
            for name in topology::selector::named_in(&matching) {
                assert!(there.contains(name), "ACL {uuid} names {name}, which does not exist: {matching}");
            }
        }
    }

    /// A new pod port is in every group of its policies in the same commit.
    pub(crate) fn check_isolation(&self, engine: &topology::Engine) {
        if self.damaged {
            return;
        }
        let Some(changes) = self.log.last() else { return };
        let came = changes.iter().filter(|change| change.table == "Logical_Switch_Port" && change.before.is_none());
        for change in came {
            let Some(Owner::Pod(key)) = change.after.as_ref().and_then(owner) else { continue };
            let Some(pod) = engine.store().pod(&key) else { continue };
            for (words, selector) in engine.store().selectors_of(pod) {
                if selector.role != topology::selector::Role::Ports {
                    continue;
                }
                let name =
                    Datum::from(ovsdb::datum::Atom::String(topology::selector::group_name(words).as_str().into()));
                let mut groups = self.database.tables().filter(|(table, ..)| *table == "Port_Group");
                let group = groups.find(|(_, _, values)| values.get("name") == Some(&name));
                let ports = group.and_then(|(_, _, values)| values.get("ports").cloned());
                let closed = ports.is_some_and(|ports| ports.contains(&ovsdb::datum::Atom::Uuid(change.uuid)));
                assert!(closed, "the port of {key} is not in the group {words}");
            }
        }
    }

    /// AdminNetworkPolicies have disjoint levels, ordered by priority.
    pub(crate) fn check_order(&self) {
        if self.damaged {
            return;
        }
        let mut blocks: BTreeMap<String, BTreeSet<(i64, i64, i64)>> = BTreeMap::new();
        for (_, _, values) in self.database.tables().filter(|(table, ..)| *table == "ACL") {
            let mark = |key: &str| values["external_ids"].get_str(key);
            let (Some(levels), Some(priority)) = (mark("levels"), mark("priority")) else { continue };
            let (bottom, top) = levels.split_once('-').unwrap();
            let (bottom, top): (i64, i64) = (bottom.parse().unwrap(), top.parse().unwrap());
            let own: i64 = values["priority"].to_string().parse().unwrap();
            assert!((bottom..=top).contains(&own), "{own} is not in {levels}");
            let block = (priority.parse().unwrap(), -top, bottom);
            blocks.entry(mark("k8s.ovn.org/name").unwrap()).or_default().insert(block);
        }
        let all: BTreeSet<(i64, i64, i64)> = blocks.values().flatten().copied().collect();
        assert_eq!(all.len(), blocks.len(), "a policy has two blocks, or two share one: {blocks:?}");
        let mut below = i64::MAX;
        for (priority, top, bottom) in &all {
            assert!(-top < below, "a policy of priority {priority} is too high: {blocks:?}");
            below = *bottom;
        }
    }

    /// A chassis installs the current state, unless it is stuck.
    pub(crate) fn catch_up(&mut self, name: &str) {
        let (number, seen) = (self.nb_cfg(), self.log.len());
        self.southbound = number;
        if let Some(chassis) = self.chassis.get_mut(name).filter(|chassis| !chassis.stuck) {
            chassis.nb_cfg = number;
            chassis.seen = seen;
        }
    }

    pub(crate) fn progress(&self) -> BTreeMap<Box<str>, i64> {
        self.chassis.iter().map(|(name, chassis)| (name.as_str().into(), chassis.nb_cfg)).collect()
    }

    /// All rows but NB_Global.
    pub(crate) fn rows(&self) -> BTreeMap<(String, Uuid), ovsdb::operation::RowValues> {
        let rows = self.database.tables().filter(|(table, ..)| *table != "NB_Global");
        rows.map(|(table, uuid, values)| ((table.to_owned(), uuid), values)).collect()
    }
}

fn owner(values: &ovsdb::operation::RowValues) -> Option<Owner> {
    let marks = values.get("external_ids")?;
    Owner::from_mark(&marks.get_str(OWNER_TYPE)?, &marks.get_str(OWNER_NAME)?)
}

/// A replica that follows the log at its own pace.
pub(crate) struct Follower {
    replica: Replica,
    cursor: usize,
}

impl Follower {
    pub(crate) fn new(nb: &Nb) -> Self {
        Self { replica: Replica::of(nb.database.schema(), &TABLES), cursor: 0 }
    }

    /// Follows the log; returns the owners and rows that another client changed.
    pub(crate) fn follow(&mut self, nb: &Nb, most: usize) -> (BTreeSet<Owner>, BTreeSet<RowId>) {
        let until = self.cursor.saturating_add(most).min(nb.log.len());
        let (mut drifted, mut rows) = (BTreeSet::new(), BTreeSet::new());
        for (changes, commit) in nb.log[self.cursor..until].iter().zip(self.cursor..) {
            self.replica.feed(changes);
            if nb.by_hand.contains(&commit) {
                let values = changes.iter().flat_map(|change| [&change.before, &change.after]).flatten();
                drifted.extend(values.filter_map(owner));
                let named = |change: &RowChange| Some(RowId { table: table_name(&change.table)?, uuid: change.uuid });
                rows.extend(changes.iter().filter_map(named));
            }
        }
        self.cursor = until;
        (drifted, rows)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.replica.snapshot()
    }
}
