//! The oracle: what the database holds in the end is what the objects ask for, whichever way it came about.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::operation::Operation;
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;
use topology::engine::Next;
use topology::identity::Owner;
use topology::refusal::Refusal;

use crate::story::Story;
use crate::support::api::KINDS;
use crate::support::controller::{Controller, TURNS};
use crate::support::database::{Follower, GLOBAL, Nb};
use crate::support::faults::Fault;
use crate::support::quiet::follows;

/// Whether a transaction changes nothing but `nb_cfg`.
fn only_asks(transaction: &Transaction) -> bool {
    let raises = |operation: &Operation| match operation {
        Operation::Mutate { table, mutations, .. } => {
            table == "NB_Global" && mutations.iter().all(|mutation| mutation.column == "nb_cfg")
        }
        _ => false,
    };
    transaction.operations().iter().all(raises)
}

impl Story {
    /// The oracle.
    pub(crate) fn judge(&mut self, leader: usize) {
        let held = self.nb.rows();
        // A restart over all this writes nothing.
        let mut again = Follower::new(&self.nb);
        again.follow(&self.nb, usize::MAX);
        let mut engine = topology::Engine::new(self.settings.clone());
        let mut fresh = Controller::new(&self.settings, &self.nb, 9999);
        for kind in KINDS {
            fresh.list(&self.api, kind, self.now);
        }
        std::mem::swap(&mut engine, &mut fresh.engine);
        engine.promote(&again.snapshot(), false, self.now).unwrap();
        let by_hand = self.faults.count.contains_key(&Fault::RowsChangedByHand);
        let as_it_stands =
            |owner: &Owner| matches!(owner, Owner::Node(_) | Owner::AdminPolicy(_) | Owner::BaselinePolicy(_));
        let kept = |(owner, refusal): (&Owner, &Refusal)| as_it_stands(owner) && refusal.reason != "PriorityShared";
        let parked = self.controllers[leader].engine.parked().any(kept);
        // What one that cannot be read has claimed, nobody knows who was not there.
        let broken = |(owner, refusal): (&Owner, &Refusal)| matches!(owner, Owner::Service(_)) && !follows(refusal);
        let unreadable = self.controllers[leader].engine.parked().any(broken);
        let damaged = by_hand && parked || unreadable;
        engine.progress(self.nb.progress(), self.nb.southbound, self.now);
        let waits = engine.store().nodes().any(|node| node.network_unavailable == Some(true));
        let mut turns = 0;
        loop {
            assert!(turns < TURNS, "the engine is not idle after {TURNS} turns");
            turns += 1;
            match engine.next(&again.snapshot(), self.now) {
                // What is parked stands as the database has it: what was taken from it by hand stays away.
                Next::Commit(_) if damaged => return,
                // A node whose network is not confirmed yet has to be asked again by whoever leads next.
                Next::Commit(transaction) if waits && only_asks(&transaction) => {
                    engine.committed(&again.snapshot(), self.now);
                }
                Next::Commit(transaction) => panic!(
                    "a restart writes {:#?}\nin {:#?}, leader: {:#?}",
                    transaction.operations(),
                    self.nb.database.row("NB_Global", GLOBAL),
                    self.controllers[leader].engine.allocator().map(topology::allocation::Allocator::quarantine)
                ),
                Next::Again => {}
                Next::Idle => break,
            }
        }
        // The leader's own mind and the fresh one agree on who has what, as far as it ever was committed.
        let ports: BTreeSet<String> =
            held.values().filter_map(|values| values.get("name").map(ToString::to_string)).collect();
        let allocations = |engine: &topology::Engine| -> BTreeMap<String, String> {
            let committed = engine.allocator().unwrap().pods().filter(|(key, _)| ports.contains(&key.port_name()));
            committed.map(|(key, own)| (key.to_string(), format!("{own:?}"))).collect()
        };
        assert_eq!(allocations(&engine), allocations(&self.controllers[leader].engine));
        self.judge_ports(&engine, &held);
        self.judge_effects(&engine, leader);
        // Every policy says of its newest spec whether it is in force.
        for policy in engine.store().admin_policies(false).chain(engine.store().admin_policies(true)) {
            let said = policy.condition.as_ref().unwrap_or_else(|| panic!("{} says nothing", policy.key.name));
            assert_eq!((said.ready, said.generation), (policy.broken.is_none(), policy.generation), "{policy:?}");
        }
        if engine.parked().all(|(_, refusal)| follows(refusal)) {
            self.judge_from_nothing(&held);
        }
        let foreign = held
            .iter()
            .filter(|(_, values)| values.get("name").is_some_and(|name| name.to_string().starts_with("foreign")));
        assert_eq!(foreign.count(), 2, "somebody else's rows were touched");
    }

    /// What was to be done outside the database was done, however often it failed.
    fn judge_effects(&self, engine: &topology::Engine, leader: usize) {
        let parked: BTreeSet<String> = engine.parked().map(|(owner, _)| owner.name()).collect();
        for node in engine.store().nodes().filter(|node| !parked.contains(&*node.name)) {
            let alive = node.chassis.as_ref().is_some_and(|chassis| self.nb.chassis.contains_key(&**chassis));
            assert!(!alive || node.network_unavailable != Some(true), "{} is still unavailable", node.name);
        }
        for name in &self.controllers[leader].unwanted {
            let has_node = engine.store().nodes().any(|node| node.chassis.as_deref() == Some(name));
            assert!(has_node || !self.nb.chassis.contains_key(name), "chassis {name} was not removed");
        }
    }

    /// Every pod that shall have a port has one, with the addresses that stand on it; nobody else has.
    fn judge_ports(&self, engine: &topology::Engine, held: &BTreeMap<(String, Uuid), ovsdb::operation::RowValues>) {
        let ports: BTreeSet<String> = held
            .iter()
            .filter(|((table, _), values)| {
                table == "Logical_Switch_Port" && values["external_ids"].get_str("pod").is_some()
            })
            .map(|(_, values)| values["name"].to_string())
            .collect();
        let parked = engine.parked().filter(|(_, refusal)| !follows(refusal));
        let parked: BTreeSet<String> = parked.map(|(owner, _)| owner.name()).collect();
        for pod in engine.store().pods() {
            let name = pod.key.port_name();
            let node = pod.wants_port().and_then(|node| engine.store().node(node));
            let sound =
                node.is_some_and(|node| !parked.contains(&*node.name)) && !parked.contains(&pod.key.to_string());
            if pod.wants_port().is_none() {
                assert!(!ports.contains(&name), "{name} has a port and shall have none");
            } else if sound {
                assert!(ports.contains(&name), "{name} has no port");
                // Whatever was written on it meanwhile: the record and the annotation are what it was given.
                let own = engine.allocator().and_then(|allocator| allocator.pod(&pod.key));
                let recorded = pod.network.as_ref().is_some_and(|network| own.is_some_and(|own| own.is(network)));
                assert!(recorded && pod.is_recorded(), "{name}: {:?} {:?}, given {own:?}", pod.network, pod.mirror);
            }
        }
        let pods: BTreeSet<String> = engine.store().pods().map(|pod| pod.key.port_name()).collect();
        assert!(ports.is_subset(&pods), "ports without pods");
    }

    /// The same objects, given to a controller with an empty database, make the same network.
    fn judge_from_nothing(&mut self, held: &BTreeMap<(String, Uuid), ovsdb::operation::RowValues>) {
        let mut nb = Nb::new(self.nb.database.schema(), 1);
        let mut controller = Controller::new(&self.settings, &nb, 1);
        for kind in KINDS {
            controller.list(&self.api, kind, self.now);
        }
        controller.take_over(&mut nb);
        for _ in 0..500 {
            controller.follow(&nb, usize::MAX, self.now);
            controller.step(&mut nb, &mut Vec::new(), self.now, &mut self.rng, &mut self.faults);
        }
        let scratch = nb.rows();
        // What is left of a chassis that no node has.
        let left = |table: &str, values: &ovsdb::operation::RowValues| {
            table == "Chassis_Template_Var" && values["variables"].is_empty()
        };
        let held: BTreeMap<_, _> = held.iter().filter(|((table, _), values)| !left(table, values)).collect();
        for (key, values) in &held {
            assert_eq!(scratch.get(*key), Some(*values), "{key:?}: from scratch (left) against the database (right)");
        }
        assert_eq!(scratch.len(), held.len());
    }
}
