//! The run of one seed: objects change, controllers work, faults are injected; at the end the oracle checks everything.

use std::collections::BTreeSet;
use std::time::Duration;

use objects::ObjectKind;
use ovsdb::operation::Condition;
use ovsdb::schema::DatabaseSchema;
use ovsdb::transaction::Transaction;
use serde_json::{Value, json};
use topology::ClusterSettings;

use crate::support::api::{Api, KINDS, Key};
use crate::support::controller::Controller;
use crate::support::database::{Chassis, GLOBAL, Nb};
use crate::support::faults::{Fault, Faults};
use crate::support::pods;
use crate::support::policies;
use crate::support::rng::Rng;
use crate::support::services;

const NODES: usize = 5;
pub(crate) const NAMESPACES: [&str; 3] = ["blue", "green", "red"];
const PODS: usize = 12;

pub(crate) struct Scenario {
    pub(crate) settings: ClusterSettings,
    pub(crate) api: Api,
    pub(crate) nb: Nb,
    pub(crate) controllers: Vec<Controller>,
    late_copies: Vec<Transaction>,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) now: Duration,
    incarnations: u64,
    pub(crate) events: usize,
    chassis_names: usize,
}

fn settings(rng: &mut Rng) -> ClusterSettings {
    let cluster: &[&str] = match rng.below(4) {
        0 => &["fd01::/60/64"],
        1 => &["10.128.0.0/26/28", "10.200.0.0/27/28", "fd01::/60/64"],
        // Few addresses, so that they are exhausted and reused.
        _ => &["10.128.0.0/25/28"],
    };
    let mut settings = ClusterSettings::new(
        cluster.iter().map(|text| text.parse().unwrap()).collect(),
        vec!["172.30.0.0/16".parse().unwrap()],
    );
    settings.multicast = rng.percent(40);
    settings.snat_per_pod = rng.percent(40);
    settings.check().unwrap();
    settings
}

impl Scenario {
    pub(crate) fn new(schema: &DatabaseSchema, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        let nb = Nb::new(schema, seed);
        let mut scenario = Self {
            controllers: (1..=2).map(|incarnation| Controller::new(&settings, &nb, incarnation)).collect(),
            settings,
            api: Api::default(),
            nb,
            late_copies: Vec::new(),
            rng,
            faults: Faults::default(),
            now: Duration::ZERO,
            incarnations: 2,
            events: 0,
            chassis_names: 0,
        };
        for name in NAMESPACES {
            scenario.api.create(ObjectKind::Namespace, "", name, json!({"metadata": {}}));
        }
        for _ in 0..3 {
            scenario.new_node();
        }
        scenario
    }

    pub(crate) fn run(&mut self, steps: usize) {
        for controller in 0..2 {
            self.list(controller);
        }
        self.controllers[0].take_over(&mut self.nb);
        let restart_at = self.rng.below(steps);
        for step in 0..steps {
            if std::env::var("SIMULATION_TRACE").is_ok() {
                eprintln!("== step {step} at {:?}", self.now);
            }
            self.now += Duration::from_millis(self.rng.below(400) as u64);
            if step == restart_at {
                self.restart();
            }
            self.change_something();
            for _ in 0..self.rng.below(6) {
                self.advance();
            }
            if self.rng.percent(4) {
                self.inject_fault();
            }
        }
        self.settle();
    }

    fn list(&mut self, controller: usize) {
        for kind in KINDS {
            self.controllers[controller].list(&self.api, kind, self.now);
        }
    }

    /// One random step of a controller, or of a chassis.
    fn advance(&mut self) {
        let which = self.rng.below(2);
        let controller = &mut self.controllers[which];
        match self.rng.below(6) {
            0 => controller.watch(&self.api, 1 + self.rng.below(8), self.now, &mut self.rng, &mut self.faults),
            1 => {
                // A lagging replica shows old states.
                let most = if self.rng.percent(25) { 1 } else { usize::MAX };
                if most == 1 {
                    self.faults.inject(Fault::StaleReplica, &mut self.rng);
                }
                controller.follow(&self.nb, most, self.now);
            }
            2 => {
                controller.patch(&mut self.api, self.now, &mut self.rng, &mut self.faults);
            }
            3 => {
                let names: Vec<String> = self.nb.chassis.keys().cloned().collect();
                if let Some(name) = self.rng.pick(&names) {
                    self.nb.catch_up(name);
                }
            }
            _ => {
                controller.watch(&self.api, usize::MAX, self.now, &mut self.rng, &mut self.faults);
                controller.step(&mut self.nb, &mut self.late_copies, self.now, &mut self.rng, &mut self.faults);
            }
        }
        if !self.late_copies.is_empty() && self.rng.percent(10) && !self.faults.ended {
            // A lost request arrives late.
            let copy = self.late_copies.remove(self.rng.below(self.late_copies.len()));
            self.faults.inject(Fault::LateCopy, &mut self.rng);
            drop(self.nb.apply(&copy));
        }
    }

    fn restart(&mut self) {
        self.faults.inject(Fault::Restart, &mut self.rng);
        let which = self.rng.below(2);
        self.incarnations += 1;
        let new = Controller::new(&self.settings, &self.nb, self.incarnations);
        let old = std::mem::replace(&mut self.controllers[which], new);
        let led = was_leading(&old.engine);
        self.controllers[which].inherit(old);
        self.list(which);
        if led {
            self.controllers[which].take_over(&mut self.nb);
        }
    }

    fn inject_fault(&mut self) {
        match self.rng.below(6) {
            5 => self.change_rows_by_hand(),
            0 => self.restart(),
            1 => {
                // The other controller takes over, and the first does not know.
                self.faults.inject(Fault::TwoLeaders, &mut self.rng);
                let which = usize::from(self.controllers[0].leads());
                self.controllers[which].take_over(&mut self.nb);
            }
            2 => {
                self.faults.inject(Fault::WatchExpired, &mut self.rng);
                let (which, kind) = (self.rng.below(2), *self.rng.pick(&KINDS).unwrap());
                self.controllers[which].list(&self.api, kind, self.now);
            }
            3 => {
                self.faults.inject(Fault::StuckChassis, &mut self.rng);
                let stuck = self.rng.percent(60);
                let names: Vec<String> = self.nb.chassis.keys().cloned().collect();
                if let Some(name) = self.rng.pick(&names) {
                    self.nb.chassis.get_mut(name).unwrap().stuck = stuck;
                }
            }
            _ if self.rng.percent(15) => {
                // The database is lost; the leader finds its sequence gone, and takes over again.
                self.faults.inject(Fault::DatabaseEmptied, &mut self.rng);
                let mut empty = Transaction::new();
                let roots = ["Logical_Switch", "Logical_Router", "Address_Set", "Port_Group", "Copp", "Meter"];
                let more = ["Load_Balancer_Group", "Static_MAC_Binding", "Load_Balancer", "Chassis_Template_Var"];
                for table in roots.into_iter().chain(more) {
                    let foreign = Condition::new("_uuid", ovsdb::operation::Function::NotEqual, foreign_switch());
                    empty.delete(table, vec![foreign]);
                }
                let none = ovsdb::datum::Datum::map([]);
                let row = ovsdb::transaction::Row::new().set("external_ids", none);
                // A new database counts nb_cfg from 0; the chassis do not.
                let row = row.set("nb_cfg", ovsdb::datum::Atom::Integer(0));
                empty.update("NB_Global", vec![Condition::uuid(GLOBAL)], row);
                self.nb.change_externally(&empty);
                // The list of quarantined addresses is lost with the database (decision 24).
                self.nb.forget_removals();
            }
            _ => {}
        }
    }

    fn new_node(&mut self) {
        let name = format!("n{}", self.rng.below(NODES));
        let mut node = json!({"metadata": {"annotations": {}}});
        if self.rng.percent(50) {
            node["status"]["conditions"] = json!([
                {"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"}]);
        }
        if !self.api.create(ObjectKind::Node, "", &name, node) {
            return;
        }
        if self.rng.percent(80) {
            self.annotate_node(&(ObjectKind::Node, String::new(), name));
        }
    }

    /// Writes the agent's chassis and gateway annotations.
    fn annotate_node(&mut self, key: &Key) {
        self.chassis_names += usize::from(self.rng.percent(30));
        let chassis = format!("chassis-{}-{}", key.2, self.chassis_names);
        let (seen, nb_cfg) = (self.nb.log.len(), self.nb.nb_cfg());
        for controller in &mut self.controllers {
            controller.unwanted.remove(&chassis);
        }
        self.nb.chassis.entry(chassis.clone()).or_insert(Chassis { nb_cfg, seen, stuck: false });
        let mode = *self.rng.pick(&["shared", "local", "disabled"]).unwrap();
        let last = self.rng.below(200) + 2;
        let gateway = json!({"default": {"mode": mode, "interface-id": format!("br-ex_{}", key.2),
            "mac-address": "52:54:00:00:00:01", "ip-addresses": [format!("192.0.2.{last}/24")], "next-hops": ["192.0.2.1"]}});
        self.api.change(key, |node| {
            let annotations = &mut node["metadata"]["annotations"];
            annotations["k8s.ovn.org/node-chassis-id"] = json!(chassis);
            annotations["k8s.ovn.org/l3-gateway-config"] = json!(gateway.to_string());
            annotations["k8s.ovn.org/host-cidrs"] = json!(format!("[\"192.0.2.{last}/24\"]"));
        });
        self.update_working();
    }

    fn update_working(&mut self) {
        let working = |node: &Value| {
            let ready = node["status"]["conditions"][0]["status"] != "False";
            ready.then(|| node["metadata"]["annotations"]["k8s.ovn.org/node-chassis-id"].as_str().map(String::from))?
        };
        let nodes = self.api.objects.iter().filter(|(key, _)| key.0 == ObjectKind::Node);
        let now: BTreeSet<String> = nodes.filter_map(|(_, node)| working(node)).collect();
        for name in now.difference(&self.nb.working.clone()) {
            // A chassis that starts to work has the newest state.
            self.nb.chassis.entry(name.clone()).or_default().stuck = false;
            self.nb.catch_up(name);
        }
        self.nb.working = now;
    }

    fn change_something(&mut self) {
        self.events += 1;
        let nodes = self.api.keys(ObjectKind::Node);
        let pods = self.api.keys(ObjectKind::Pod);
        match self.rng.below(34) {
            0 => self.new_node(),
            20..=25 => self.change_policies(&pods),
            26 | 27 => self.change_admin_policies(),
            1 => {
                if let Some(key) = self.rng.pick(&nodes).cloned() {
                    self.annotate_node(&key);
                }
            }
            2 => {
                if let Some(key) = self.rng.pick(&nodes).cloned() {
                    self.api.delete(&key);
                    if self.rng.percent(60) {
                        self.new_node();
                    }
                    self.update_working();
                }
            }
            3 => {
                if let Some(key) = self.rng.pick(&nodes).cloned() {
                    let ready = if self.rng.percent(50) { "True" } else { "False" };
                    let ready = json!({"type": "Ready", "status": ready});
                    self.api.change(&key, |node| {
                        let network = node["status"]["conditions"][1].clone();
                        let conditions = [ready, network].into_iter().filter(|condition| !condition.is_null());
                        node["status"] = json!({"conditions": conditions.collect::<Vec<_>>()});
                    });
                    self.update_working();
                }
            }
            4 => {
                let name = *self.rng.pick(&NAMESPACES).unwrap();
                let key = (ObjectKind::Namespace, String::new(), name.to_owned());
                let multicast = if self.rng.percent(50) { "true" } else { "false" };
                if self.rng.percent(30) {
                    policies::delete_namespace(&mut self.api, name);
                } else if !self.api.create(ObjectKind::Namespace, "", name, json!({"metadata": {}})) {
                    self.api.change(&key, |namespace| {
                        namespace["metadata"]["annotations"]["k8s.ovn.org/multicast-enabled"] = json!(multicast);
                    });
                }
            }
            5 => self.corrupt_annotation(&nodes, &pods),
            6..=9 => {
                if let Some(key) = self.rng.pick(&pods).cloned() {
                    if self.rng.percent(20) {
                        pods::limit(&mut self.api, &key, self.rng.pick(&["10M", "1.5G", "fast"]).unwrap());
                    } else if self.rng.percent(40) {
                        self.api.change(&key, |pod| pod["status"]["phase"] = json!("Succeeded"));
                    } else {
                        self.api.delete(&key);
                    }
                }
            }
            27..=32 => self.change_services(),
            _ => self.new_pod(),
        }
    }

    /// Changes Services and slices; a few become invalid.
    fn change_services(&mut self) {
        let namespace = NAMESPACES[0];
        let (service, slice, like) = (self.rng.below(4) as u8, self.rng.below(6) as u8, self.rng.below(1 << 16) as u16);
        match self.rng.below(12) {
            0 => self.api.delete(&services::service_key(namespace, service)),
            1 => self.api.delete(&services::slice_key(namespace, slice)),
            2 if self.rng.percent(20) => self.api.change(&services::service_key(namespace, service), |object| {
                object["spec"]["ports"][0]["port"] = json!(70_000);
            }),
            7 if self.rng.percent(30) => services::move_api_server(&mut self.api, self.rng.below(3) as u8),
            2..=6 => services::put_service(&mut self.api, namespace, service, like),
            _ => services::put_slice(&mut self.api, namespace, slice, service, like),
        }
    }

    fn new_pod(&mut self) {
        let namespace = *self.rng.pick(&NAMESPACES).unwrap();
        // A pod needs a namespace, though the pod may be seen first.
        self.api.create(ObjectKind::Namespace, "", namespace, json!({"metadata": {}}));
        let name = format!("p{}", self.rng.below(PODS));
        let node = format!("n{}", self.rng.below(NODES));
        let mut pod = json!({"metadata": {}, "spec": {"nodeName": node}, "status": {"phase": "Pending"}});
        pod["metadata"]["labels"] = json!({"app": self.rng.pick(&["a", "b", "c"])});
        let port = 8080 + self.rng.below(3);
        pod["spec"]["containers"] = json!([{"ports": [{"name": "http", "containerPort": port}]}]);
        if self.rng.percent(30) {
            pods::open(&mut pod["spec"]["containers"][0]["ports"][0], self.rng.below(3) as u16, self.rng.below(3));
        }
        match self.rng.below(12) {
            0 => pod["spec"]["hostNetwork"] = json!(true),
            1 => {
                let request = json!([{"name": "default", "ips": [format!("10.128.0.{}", self.rng.below(128))]}]);
                pod["metadata"]["annotations"]["v1.multus-cni.io/default-network"] = json!(request.to_string());
            }
            2 => {
                pod["metadata"]["annotations"]["v1.multus-cni.io/default-network"] = json!("[{\"ips\": 7}]");
            }
            3 => {
                // A tenant claims another pod's addresses, or free ones.
                let others: Vec<Key> = self.api.keys(ObjectKind::Pod);
                pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"] = self.forged(&others);
            }
            _ => {}
        }
        self.api.create(ObjectKind::Pod, namespace, &name, pod);
    }

    /// A forged annotation: another pod's network, or a free one.
    fn forged(&mut self, pods: &[Key]) -> serde_json::Value {
        let victim = self.rng.pick(pods).and_then(|key| self.api.objects.get(key));
        let network = victim.map(|pod| pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"].clone());
        let last = self.rng.below(128);
        let free = format!(
            "{{\"default\":{{\"mac_address\":\"0a:58:0a:80:00:{last:02x}\",\"ip_addresses\":[\"10.128.0.{last}/26\"]}}}}"
        );
        network.filter(serde_json::Value::is_string).unwrap_or_else(|| json!(free))
    }

    /// Writes an invalid annotation, or removes one.
    fn corrupt_annotation(&mut self, nodes: &[Key], pods: &[Key]) {
        let what = self.rng.below(6);
        let invalid = [
            "not json",
            "{}",
            "{\"default\":{\"mac_address\":\"0a:58:00:00:00:01\",\"ip_addresses\":[\"10.99.0.1/24\"]}}",
        ];
        let invalid = *self.rng.pick(&invalid).unwrap();
        let (targets, annotation) = match what {
            0 | 1 => (pods, "k8s.ovn.org/pod-networks"),
            2 => (nodes, "k8s.ovn.org/node-subnets"),
            3 => (nodes, "k8s.ovn.org/node-id"),
            4 => (nodes, "k8s.ovn.org/l3-gateway-config"),
            _ => (pods, "k8s.ovn.org/pod-networks"),
        };
        let Some(key) = self.rng.pick(targets).cloned() else { return };
        let invalid = if what >= 5 { self.forged(pods) } else { json!(invalid) };
        // Half of them are removals.
        let remove = self.rng.percent(50);
        self.api.change(&key, |object| {
            if remove {
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(annotation);
                }
            } else {
                object["metadata"]["annotations"][annotation] = invalid;
            }
        });
    }

    /// Ends all faults, and runs until idle.
    fn settle(&mut self) {
        self.faults.ended = true;
        for which in 0..2 {
            self.controllers[which].watch(&self.api, usize::MAX, self.now, &mut self.rng, &mut self.faults);
        }
        // Mostly the current leader continues, so that its incremental state is checked; else a controller takes over.
        let current = self.controllers.iter().position(|controller| controller.is_current_leader(&self.nb));
        let current = current.filter(|_| self.rng.percent(70));
        let leader = current.unwrap_or_else(|| self.rng.below(2));
        if current.is_none() {
            self.controllers[leader].take_over(&mut self.nb);
        }
        for round in 0.. {
            assert!(round < 2000, "not idle after 2000 rounds");
            self.now += Duration::from_secs(11);
            let names: Vec<String> = self.nb.chassis.keys().cloned().collect();
            for name in names {
                self.nb.chassis.get_mut(&name).unwrap().stuck = false;
                self.nb.catch_up(&name);
            }
            let mut busy = false;
            for which in 0..2 {
                let controller = &mut self.controllers[which];
                controller.watch(&self.api, usize::MAX, self.now, &mut self.rng, &mut self.faults);
                controller.follow(&self.nb, usize::MAX, self.now);
                busy |= controller.patch(&mut self.api, self.now, &mut self.rng, &mut self.faults);
                if which == leader {
                    busy |=
                        controller.step(&mut self.nb, &mut self.late_copies, self.now, &mut self.rng, &mut self.faults);
                } else if controller.leads() {
                    controller.step(&mut self.nb, &mut self.late_copies, self.now, &mut self.rng, &mut self.faults);
                }
            }
            let controller = &self.controllers[leader];
            if !busy
                && controller.has_no_calls()
                && controller.engine.backlog() == 0
                && controller.engine.deadline().is_none()
            {
                break;
            }
        }
        self.check_oracle(leader);
    }
}

fn was_leading(engine: &topology::Engine) -> bool {
    engine.is_leading()
}

fn foreign_switch() -> ovsdb::datum::Atom {
    ovsdb::datum::Atom::Uuid(ovsdb::uuid::Uuid::from_bytes([8; 16]))
}
