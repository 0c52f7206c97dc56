//! What the light chassis have to do next, told by the tables and nothing else: no I/O here.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{SystemTime, UNIX_EPOCH};

use ovn_schema::TableRow;
use ovn_schema::southbound::{Chassis, ChassisPrivate, PortBinding, SbGlobal};
use ovsdb::operation::Condition;
use ovsdb::replica::{Changes, RowView, Snapshot};
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;

use super::rows::{
    CHASSIS, PORTS, Private, REQUESTED_CHASSIS, announce, binding, chassis_rows, echo, option, optional_uuid,
    private_rows,
};
use super::{ChassisSpec, check};
use crate::error::{Error, Result};

#[derive(Debug)]
struct Member {
    spec: ChassisSpec,
    paused: bool,
    /// Whether its rows are ours: what was there before we came may have another address.
    announced: bool,
    /// Its row, once it has one.
    row: Option<Uuid>,
}

/// All chassis, and what is known of their ports.
#[derive(Debug)]
pub(super) struct Fleet {
    members: BTreeMap<String, Member>,
    hostnames: HashMap<String, String>,
    rows: HashMap<Uuid, String>,
    /// Ports to look at.
    changed: BTreeSet<Uuid>,
    /// Look at every port: chassis came, went or woke up.
    everything: bool,
    /// Those whose rows are in the transaction that was made last.
    announcing: Vec<String>,
    claimed: HashSet<Uuid>,
}

impl Fleet {
    pub(super) fn new(chassis: &[ChassisSpec]) -> Result<Self> {
        let mut fleet = Self {
            members: BTreeMap::new(),
            hostnames: HashMap::new(),
            rows: HashMap::new(),
            changed: BTreeSet::new(),
            everything: true,
            announcing: Vec::new(),
            claimed: HashSet::new(),
        };
        fleet.add(chassis)?;
        Ok(fleet)
    }

    pub(super) fn add(&mut self, chassis: &[ChassisSpec]) -> Result<()> {
        check(self.members.values().map(|member| &member.spec).chain(chassis))?;
        for spec in chassis {
            self.hostnames.insert(spec.hostname.clone(), spec.name.clone());
            let member = Member { spec: spec.clone(), paused: false, announced: false, row: None };
            self.members.insert(spec.name.clone(), member);
        }
        self.everything = true;
        Ok(())
    }

    pub(super) fn set_paused(&mut self, name: &str, paused: bool) -> Result<()> {
        let member = self.members.get_mut(name).ok_or_else(|| unknown(name))?;
        member.paused = paused;
        self.everything = true;
        Ok(())
    }

    pub(super) fn forget(&mut self, name: &str) -> Result<()> {
        let member = self.members.remove(name).ok_or_else(|| unknown(name))?;
        self.hostnames.retain(|_, of| *of != member.spec.name);
        self.everything = true;
        Ok(())
    }

    pub(super) fn forget_all(&mut self) -> Vec<String> {
        self.hostnames.clear();
        std::mem::take(&mut self.members).into_keys().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// How many lack their rows and will make them.
    pub(super) fn missing(&self) -> usize {
        self.members.values().filter(|member| !(member.paused || member.announced && member.row.is_some())).count()
    }

    /// How many ports are bound to one of ours and up.
    pub(super) fn claimed(&self) -> usize {
        self.claimed.len()
    }

    /// The last transaction did not happen, or nobody knows: everything is looked at again.
    pub(super) fn doubt(&mut self) {
        self.everything = true;
        for name in self.announcing.drain(..) {
            if let Some(member) = self.members.get_mut(&name) {
                member.announced = false;
            }
        }
    }

    /// Remembers what has to be looked at.
    pub(super) fn absorb(&mut self, changes: &Changes) {
        for change in &changes.changes {
            match change.table {
                PORTS => {
                    self.changed.insert(change.uuid);
                }
                CHASSIS => self.everything = true,
                _ => {}
            }
        }
    }

    /// The next transaction; an empty one if there is nothing to do. It is made of what the tables say, so that one
    /// that failed, or whose answer was lost, is made again as far as it is still needed.
    pub(super) fn next(&mut self, snapshot: &Snapshot) -> Transaction {
        let mut transaction = Transaction::new();
        // Before the first session there are no tables; what they lack then says nothing.
        let Some(global) = snapshot.table(SbGlobal::TABLE).and_then(|table| table.iter().next()) else {
            return transaction;
        };
        let privates = private_rows(snapshot);
        self.register(snapshot, &privates, &mut transaction);
        if !transaction.is_empty() {
            return transaction;
        }
        self.bind(snapshot, &mut transaction);
        // In the same transaction as the ports of this version, which the same snapshot shows: never before them.
        if let Some(nb_cfg) = global.integer(SbGlobal::nb_cfg.name()) {
            self.echo(nb_cfg, &privates, &mut transaction);
        }
        transaction
    }

    /// Makes the rows of chassis that have none, all in one.
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

    /// Claims ports that are wanted here, and lets go of those that are not any more.
    fn bind(&mut self, snapshot: &Snapshot, transaction: &mut Transaction) {
        let Some(ports) = snapshot.table(PortBinding::TABLE) else { return };
        let changed = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.everything) {
            self.claimed.clear();
            for port in ports.iter() {
                self.consider(&port, transaction);
            }
            return;
        }
        for uuid in changed {
            match ports.get(uuid) {
                Some(port) => self.consider(&port, transaction),
                None => {
                    self.claimed.remove(&uuid);
                }
            }
        }
    }

    fn consider(&mut self, port: &RowView<'_>, transaction: &mut Transaction) {
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
            // Those of others are bound by more than one row says, or by nobody.
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

    /// The member that a port is requested for: as northd resolved it, else by name or host name.
    fn requested(&self, port: &RowView<'_>) -> Option<&Member> {
        if let Some(row) = optional_uuid(port, REQUESTED_CHASSIS) {
            return self.members.get(self.rows.get(&row)?);
        }
        let option = option(port, "requested-chassis")?;
        // Of several, during a migration, the first is the one that has it.
        let name = option.split(',').next().unwrap_or_default();
        self.members.get(name).or_else(|| self.members.get(self.hostnames.get(name)?))
    }

    /// Tells that everything up to this version is done.
    fn echo(&self, nb_cfg: i64, privates: &HashMap<String, Private>, transaction: &mut Transaction) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        for member in self.members.values().filter(|member| !member.paused && member.row.is_some()) {
            let Some(private) = privates.get(&member.spec.name).filter(|private| private.nb_cfg != nb_cfg) else {
                continue;
            };
            transaction.update(ChassisPrivate::TABLE, vec![Condition::uuid(private.uuid)], echo(nb_cfg, now));
        }
    }

    /// Deletes the rows of chassis by name. The ends of their tunnels go with them: nothing refers to those any more.
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
