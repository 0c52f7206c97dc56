//! Computes the next transaction of the light chassis from the tables alone: no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use ovn_schema::TableRow;
use ovn_schema::southbound::{Chassis, ChassisPrivate, PortBinding, SbGlobal};
use ovsdb::operation::Condition;
use ovsdb::replica::{Changes, RowView, Snapshot};
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;

use super::rows::{
    CHASSIS, PORTS, Private, REQUESTED_CHASSIS, acknowledge, announce, binding, chassis_rows, option, optional_uuid,
    private_rows,
};
use super::{ChassisSpec, check};
use crate::error::{Error, Result};

#[derive(Debug)]
struct Member {
    spec: ChassisSpec,
    paused: bool,
    /// Whether this process wrote its rows: rows of an earlier run may have another address.
    announced: bool,
    row: Option<Uuid>,
}

/// All chassis, and the ports that they claimed.
#[derive(Debug)]
pub(super) struct ChassisSet {
    members: BTreeMap<String, Member>,
    hostnames: HashMap<String, String>,
    rows: HashMap<Uuid, String>,
    /// Ports to check.
    changed: BTreeSet<Uuid>,
    /// Check every port: a chassis was added, removed or resumed.
    rescan: bool,
    /// Chassis whose rows are in the latest transaction.
    announcing: Vec<String>,
    claimed: HashSet<Uuid>,
}

impl ChassisSet {
    pub(super) fn new(chassis: &[ChassisSpec]) -> Result<Self> {
        let mut chassis_set = Self {
            members: BTreeMap::new(),
            hostnames: HashMap::new(),
            rows: HashMap::new(),
            changed: BTreeSet::new(),
            rescan: true,
            announcing: Vec::new(),
            claimed: HashSet::new(),
        };
        chassis_set.add(chassis)?;
        Ok(chassis_set)
    }

    pub(super) fn add(&mut self, chassis: &[ChassisSpec]) -> Result<()> {
        check(self.members.values().map(|member| &member.spec).chain(chassis))?;
        for spec in chassis {
            self.hostnames.insert(spec.hostname.clone(), spec.name.clone());
            let member = Member { spec: spec.clone(), paused: false, announced: false, row: None };
            self.members.insert(spec.name.clone(), member);
        }
        self.rescan = true;
        Ok(())
    }

    pub(super) fn set_paused(&mut self, name: &str, paused: bool) -> Result<()> {
        let member = self.members.get_mut(name).ok_or_else(|| unknown(name))?;
        member.paused = paused;
        self.rescan = true;
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        let member = self.members.remove(name).ok_or_else(|| unknown(name))?;
        self.hostnames.retain(|_, of| *of != member.spec.name);
        self.rescan = true;
        Ok(())
    }

    pub(super) fn remove_all(&mut self) -> Vec<String> {
        self.hostnames.clear();
        std::mem::take(&mut self.members).into_keys().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// How many are not registered yet (paused ones do not count).
    pub(super) fn missing(&self) -> usize {
        self.members.values().filter(|member| !(member.paused || member.announced && member.row.is_some())).count()
    }

    /// How many ports are bound to one of these chassis and up.
    pub(super) fn claimed(&self) -> usize {
        self.claimed.len()
    }

    /// The latest transaction failed or is in doubt: check everything again.
    pub(super) fn retry_all(&mut self) {
        self.rescan = true;
        for name in self.announcing.drain(..) {
            if let Some(member) = self.members.get_mut(&name) {
                member.announced = false;
            }
        }
    }

    /// Notes which ports to check.
    pub(super) fn note_changes(&mut self, changes: &Changes) {
        for change in &changes.changes {
            match change.table {
                PORTS => {
                    self.changed.insert(change.uuid);
                }
                CHASSIS => self.rescan = true,
                _ => {}
            }
        }
    }

    /// The next transaction; empty if there is nothing to do. Computed from the tables, so that after a failure or a
    /// lost reply only what is still missing is retried.
    pub(super) fn next(&mut self, snapshot: &Snapshot) -> Transaction {
        let mut transaction = Transaction::new();
        // Before the first session there are no tables.
        let Some(global) = snapshot.table(SbGlobal::TABLE).and_then(|table| table.iter().next()) else {
            return transaction;
        };
        let privates = private_rows(snapshot);
        self.register(snapshot, &privates, &mut transaction);
        if !transaction.is_empty() {
            return transaction;
        }
        self.bind(snapshot, &mut transaction);
        // In the same transaction as the ports of this snapshot: never acknowledged before they are claimed.
        if let Some(nb_cfg) = global.integer(SbGlobal::nb_cfg.name()) {
            self.acknowledge(nb_cfg, &privates, &mut transaction);
        }
        transaction
    }

    /// Registers all chassis that have no rows.
    fn register(&mut self, snapshot: &Snapshot, privates: &HashMap<String, Private>, transaction: &mut Transaction) {
        let rows = chassis_rows(snapshot);
        self.rows.clear();
        self.announcing.clear();
        for (number, member) in self.members.values_mut().enumerate() {
            let name = &member.spec.name;
            let private = privates.get(name);
            member.row =
                rows.get(name).copied().filter(|row| private.and_then(|private| private.chassis) == Some(*row));
            if let (true, Some(row)) = (member.announced, member.row) {
                self.rows.insert(row, name.clone());
                continue;
            }
            if member.paused {
                continue;
            }
            for (table, old) in [
                (Chassis::TABLE, rows.get(name).copied()),
                (ChassisPrivate::TABLE, private.map(|private| private.uuid)),
            ] {
                if let Some(old) = old {
                    transaction.delete(table, vec![Condition::uuid(old)]);
                }
            }
            announce(&member.spec, number, transaction);
            member.announced = true;
            self.announcing.push(name.clone());
        }
    }

    /// Claims requested ports, and releases those that are not requested any more.
    fn bind(&mut self, snapshot: &Snapshot, transaction: &mut Transaction) {
        let Some(ports) = snapshot.table(PortBinding::TABLE) else { return };
        let changed = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.rescan) {
            self.claimed.clear();
            for port in ports.iter() {
                self.update_port(&port, transaction);
            }
            return;
        }
        for uuid in changed {
            match ports.get(uuid) {
                Some(port) => self.update_port(&port, transaction),
                None => {
                    self.claimed.remove(&uuid);
                }
            }
        }
    }

    fn update_port(&mut self, port: &RowView<'_>, transaction: &mut Transaction) {
        let bound = optional_uuid(port, PortBinding::chassis.name());
        let holder = bound.and_then(|row| self.rows.get(&row));
        let up = port.boolean(PortBinding::up.name()) == Some(true);
        if holder.is_some() && up {
            self.claimed.insert(port.uuid);
        } else {
            self.claimed.remove(&port.uuid);
        }
        let kind = port.text(PortBinding::kind.name()).unwrap_or_default();
        let wanted = match kind.as_str() {
            "" => self.requested(port),
            "l3gateway" => option(port, "l3gateway-chassis").and_then(|name| self.members.get(&name)),
            // Other types are not bound by a single row, or not bound at all.
            _ => return,
        };
        let values = match wanted {
            Some(Member { paused: false, row: Some(row), .. }) if bound != Some(*row) || !up => {
                binding(Some(*row), true)
            }
            None if holder.and_then(|name| self.members.get(name)).is_some_and(|member| !member.paused) => {
                binding(None, false)
            }
            _ => return,
        };
        transaction.update(PortBinding::TABLE, vec![Condition::uuid(port.uuid)], values);
    }

    /// The chassis that a port is requested for: as resolved by northd, else by name or host name.
    fn requested(&self, port: &RowView<'_>) -> Option<&Member> {
        if let Some(row) = optional_uuid(port, REQUESTED_CHASSIS) {
            return self.members.get(self.rows.get(&row)?);
        }
        let option = option(port, "requested-chassis")?;
        // During a live migration there are several; the first one has the port.
        let name = option.split(',').next().unwrap_or_default();
        self.members.get(name).or_else(|| self.members.get(self.hostnames.get(name)?))
    }

    /// Acknowledges nb_cfg.
    fn acknowledge(&self, nb_cfg: i64, privates: &HashMap<String, Private>, transaction: &mut Transaction) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        for member in self.members.values().filter(|member| !member.paused && member.row.is_some()) {
            let Some(private) = privates.get(&member.spec.name).filter(|private| private.nb_cfg != nb_cfg) else {
                continue;
            };
            transaction.update(ChassisPrivate::TABLE, vec![Condition::uuid(private.uuid)], acknowledge(nb_cfg, now));
        }
    }

    /// Deletes the rows of chassis by name. Their Encap rows are garbage-collected.
    pub(super) fn deletion(snapshot: &Snapshot, names: &[String]) -> Transaction {
        let (rows, privates) = (chassis_rows(snapshot), private_rows(snapshot));
        let mut transaction = Transaction::new();
        for name in names {
            if let Some(private) = privates.get(name) {
                transaction.delete(ChassisPrivate::TABLE, vec![Condition::uuid(private.uuid)]);
            }
            if let Some(row) = rows.get(name) {
                transaction.delete(Chassis::TABLE, vec![Condition::uuid(*row)]);
            }
        }
        transaction
    }
}

fn unknown(name: &str) -> Error {
    Error::Invalid(format!("no light chassis is named {name:?}"))
}
