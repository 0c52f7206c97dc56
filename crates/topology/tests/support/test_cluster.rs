//! A cluster without faults: one simulated controller that runs until idle.

use std::time::Duration;

use objects::ObjectKind;
use ovsdb::schema::DatabaseSchema;
use serde_json::json;
use topology::ClusterSettings;
use topology::refusal::Refusal;

use crate::support::api::{Api, KINDS, Key};
use crate::support::controller::Controller;
use crate::support::database::{Chassis, Nb};
use crate::support::faults::Faults;
use crate::support::rng::Rng;

/// Whether a refusal follows from the objects alone while the rest of the object works: a contested address, a shared
/// priority, an invalid limit.
pub(crate) fn is_expected(refusal: &Refusal) -> bool {
    ["AddressTaken", "AddressRefused", "PriorityShared", "BandwidthRefused", "HostPortRefused"]
        .contains(&refusal.reason)
}

pub(crate) struct TestCluster {
    pub(crate) settings: ClusterSettings,
    pub(crate) api: Api,
    pub(crate) nb: Nb,
    pub(crate) controller: Controller,
    now: Duration,
    incarnations: u64,
    rng: Rng,
    pub(crate) faults: Faults,
}

impl TestCluster {
    pub(crate) fn new(schema: &DatabaseSchema, settings: ClusterSettings) -> Self {
        settings.check().unwrap();
        let nb = Nb::new(schema, 1);
        let mut world = Self {
            controller: Controller::new(&settings, &nb, 1),
            settings,
            api: Api::default(),
            nb,
            now: Duration::ZERO,
            incarnations: 1,
            rng: Rng::new(1),
            faults: Faults { ended: true, ..Faults::default() },
        };
        world.begin();
        world
    }

    /// The controller lists everything and takes over.
    fn begin(&mut self) {
        for kind in KINDS {
            self.list(kind);
        }
        self.controller.take_over(&mut self.nb);
    }

    /// Replaces the controller by a new one.
    pub(crate) fn restart(&mut self) {
        self.incarnations += 1;
        self.controller = Controller::new(&self.settings, &self.nb, self.incarnations);
        self.begin();
    }

    /// The same objects with an empty database.
    pub(crate) fn with_empty_database(self, schema: &DatabaseSchema) -> Self {
        let mut world = Self::new(schema, self.settings);
        world.api = self.api;
        world.nb.chassis = self.nb.chassis;
        world.restart();
        world
    }

    /// Lists a kind again.
    pub(crate) fn list(&mut self, kind: ObjectKind) {
        self.controller.list(&self.api, kind, self.now);
    }

    /// Writes the agent's chassis and gateway annotations of a node.
    pub(crate) fn annotate_node(&mut self, name: &str, mode: &str, last: u8) {
        let chassis = format!("chassis-{name}");
        let (seen, nb_cfg) = (self.nb.log.len(), self.nb.nb_cfg());
        self.nb.chassis.entry(chassis.clone()).or_insert(Chassis { nb_cfg, seen, stuck: false });
        let gateway = json!({"default": {"mode": mode, "interface-id": format!("br-ex_{name}"),
            "mac-address": "52:54:00:00:00:01", "ip-addresses": [format!("192.0.2.{last}/24")], "next-hops": ["192.0.2.1"]}});
        let key: Key = (ObjectKind::Node, String::new(), name.to_owned());
        self.api.change(&key, |node| {
            let annotations = &mut node["metadata"]["annotations"];
            annotations["k8s.ovn.org/node-chassis-id"] = json!(chassis);
            annotations["k8s.ovn.org/l3-gateway-config"] = json!(gateway.to_string());
            annotations["k8s.ovn.org/host-cidrs"] = json!(format!("[\"192.0.2.{last}/24\"]"));
        });
    }

    /// One round of chassis and controller; returns whether anything happened.
    pub(crate) fn round(&mut self) -> bool {
        self.round_seeing(&KINDS)
    }

    /// One round in which only events of these kinds are observed.
    pub(crate) fn round_seeing(&mut self, kinds: &[ObjectKind]) -> bool {
        self.now += Duration::from_secs(11);
        let names: Vec<String> = self.nb.chassis.keys().cloned().collect();
        for name in names {
            self.nb.catch_up(&name);
        }
        let Self { controller, api, nb, rng, faults, now, .. } = self;
        controller.watch_kinds(api, kinds, usize::MAX, *now, rng, faults);
        controller.follow(nb, usize::MAX, *now);
        let patched = controller.patch(api, *now, rng, faults);
        let stepped = controller.step(nb, &mut Vec::new(), *now, rng, faults);
        !controller.has_no_calls()
            || patched
            || stepped
            || controller.engine.backlog() > 0
            || controller.engine.deadline().is_some()
    }

    /// Runs rounds until nothing happens.
    pub(crate) fn run_until_idle(&mut self) {
        let mut rounds = 0;
        while self.round() {
            rounds += 1;
            assert!(rounds < 20_000, "not idle after 20,000 rounds");
        }
    }
}
