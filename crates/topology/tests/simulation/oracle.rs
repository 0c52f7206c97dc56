//! The oracle: at the end the database is what the objects require, however it came about.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::operation::Operation;
use ovsdb::transaction::Transaction;
use ovsdb::uuid::Uuid;
use topology::engine::Next;
use topology::identity::Owner;
use topology::refusal::Refusal;

use crate::scenario::Scenario;
use crate::support::api::KINDS;
use crate::support::controller::{Controller, MAX_STEPS};
use crate::support::database::{Follower, GLOBAL, Nb};
use crate::support::faults::Fault;
use crate::support::test_cluster::is_expected;

/// Whether a transaction only raises `nb_cfg`.
fn only_raises_nb_cfg(transaction: &Transaction) -> bool {
    let raises = |operation: &Operation| match operation {
        Operation::Mutate { table, mutations, .. } => {
            table == "NB_Global" && mutations.iter().all(|mutation| mutation.column == "nb_cfg")
        }
        _ => false,
    };
    transaction.operations().iter().all(raises)
}

impl Scenario {
    /// Checks the final state against a restarted controller, the objects and a recomputation from scratch.
    pub(crate) fn check_oracle(&mut self, leader: usize) {
        let held = self.nb.rows();
        // A restart writes nothing.
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
        // A new controller cannot know what an unparsable Service claimed before.
        let broken = |(owner, refusal): (&Owner, &Refusal)| matches!(owner, Owner::Service(_)) && !is_expected(refusal);
        let unreadable = self.controllers[leader].engine.parked().any(broken);
        let damaged = by_hand && parked || unreadable;
        engine.progress(self.nb.progress(), self.nb.southbound, self.now);
        let waits = engine.store().nodes().any(|node| node.network_unavailable == Some(true));
        let mut steps = 0;
        loop {
            assert!(steps < MAX_STEPS, "the engine is not idle after {MAX_STEPS} steps");
            steps += 1;
            match engine.next(&again.snapshot(), self.now) {
                // Parked objects keep the rows that the database has: rows deleted by another client are not restored.
                Next::Commit(_) if damaged => return,
                // The next leader raises nb_cfg again for a node whose network is not confirmed yet.
                Next::Commit(transaction) if waits && only_raises_nb_cfg(&transaction) => {
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
        // The leader's and the new controller's committed allocations are equal.
        let ports: BTreeSet<String> =
            held.values().filter_map(|values| values.get("name").map(ToString::to_string)).collect();
        let allocations = |engine: &topology::Engine| -> BTreeMap<String, String> {
            let committed = engine.allocator().unwrap().pods().filter(|(key, _)| ports.contains(&key.port_name()));
            committed.map(|(key, own)| (key.to_string(), format!("{own:?}"))).collect()
        };
        assert_eq!(allocations(&engine), allocations(&self.controllers[leader].engine));
        self.check_ports(&engine, &held);
        self.check_effects(&engine, leader);
        // Every policy has a condition for its newest generation.
        for policy in engine.store().admin_policies(false).chain(engine.store().admin_policies(true)) {
            let said = policy.condition.as_ref().unwrap_or_else(|| panic!("{} has no condition", policy.key.name));
            assert_eq!((said.ready, said.generation), (policy.broken.is_none(), policy.generation), "{policy:?}");
        }
        if engine.parked().all(|(_, refusal)| is_expected(refusal)) {
            self.check_from_scratch(&held);
        }
        let foreign = held
            .iter()
            .filter(|(_, values)| values.get("name").is_some_and(|name| name.to_string().starts_with("foreign")));
        assert_eq!(foreign.count(), 2, "rows of another client were changed");
    }

    /// Effects outside the database were completed, however often they failed.
    fn check_effects(&self, engine: &topology::Engine, leader: usize) {
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

    /// Exactly the pods that need a port have one, with the addresses of their annotation.
    fn check_ports(&self, engine: &topology::Engine, held: &BTreeMap<(String, Uuid), ovsdb::operation::RowValues>) {
        let ports: BTreeSet<String> = held
            .iter()
            .filter(|((table, _), values)| {
                table == "Logical_Switch_Port" && values["external_ids"].get_str("pod").is_some()
            })
            .map(|(_, values)| values["name"].to_string())
            .collect();
        let parked = engine.parked().filter(|(_, refusal)| !is_expected(refusal));
        let parked: BTreeSet<String> = parked.map(|(owner, _)| owner.name()).collect();
        for pod in engine.store().pods() {
            let name = pod.key.port_name();
            let node = pod.wants_port().and_then(|node| engine.store().node(node));
            let sound =
                node.is_some_and(|node| !parked.contains(&*node.name)) && !parked.contains(&pod.key.to_string());
            if pod.wants_port().is_none() {
                assert!(!ports.contains(&name), "{name} must not have a port");
            } else if sound {
                assert!(ports.contains(&name), "{name} has no port");
                // Annotation and recorded condition are the allocation, whatever others wrote.
                let own = engine.allocator().and_then(|allocator| allocator.pod(&pod.key));
                let recorded = pod.network.as_ref().is_some_and(|network| own.is_some_and(|own| own.is(network)));
                assert!(recorded && pod.is_recorded(), "{name}: {:?} {:?}, given {own:?}", pod.network, pod.annotation);
            }
        }
        let pods: BTreeSet<String> = engine.store().pods().map(|pod| pod.key.port_name()).collect();
        assert!(ports.is_subset(&pods), "ports without pods");
    }

    /// A controller with an empty database writes the same rows.
    fn check_from_scratch(&mut self, held: &BTreeMap<(String, Uuid), ovsdb::operation::RowValues>) {
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
        // The empty row of a chassis that no node uses.
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
