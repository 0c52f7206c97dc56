//! service: its addresses become entries of load balancers, which the nodes' switches and gateway routers have by groups.
//!
//! ```text
//!  ServiceFacts + SliceFacts ──▶ one Load_Balancer for each protocol and kind ──▶ clusterLBGroup, …Switch…, …Router…
//!                            ──▶ where nodes differ: `^variables`, with a value in each node's Chassis_Template_Var
//! ```
//!
//! So the number of rows does not grow with nodes. Every chassis has a value for every variable: ovn-controller warns of
//! flows whose variables have none. Where only endpoints of a node count and it has none, clients from outside are sent to an
//! address that bridges drop. Pods are refused: the address is one of two variables, with and without endpoints, of which
//! each chassis has one that no packet matches.

#[cfg(test)]
mod kube_proxy_tests;
mod ranges;
#[cfg(test)]
// What is written down on the spot is passed as it is.
#[allow(clippy::needless_pass_by_value)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ovn_schema::Feature;
use ovn_schema::StringMap;
use ovn_schema::northbound::{ChassisTemplateVar, LoadBalancer, LoadBalancerGroup};

use self::ranges::Guarded;
use super::Given;
use super::balancer::{self, socket};
use super::cluster::{CLUSTER_GROUP, ROUTER_GROUP, SWITCH_GROUP};
use super::template::{self, address_variable, family, host_addresses, host_local_variable, unused};
use crate::contribution::{Contribution, Draft};
use crate::identity::{ObjectKey, Owner, hashed_name};
use crate::objects::{NodeFacts, Protocol, ServiceFacts, ServicePort, ServiceSpec};
use crate::refusal::Refusal;
use crate::services::{Choice, Decision, Endpoints, Inputs, Served, Target, Vip, decide, places};
use crate::settings::Masquerade;

/// What the names of a Service's variables begin with; they say whose a variable is.
pub(crate) fn variable_prefix(service: &ObjectKey) -> String {
    hashed_name(&format!("service {service}"))
}

/// Which changes of nodes concern a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Any node's.
    pub(crate) each_node: bool,
    /// How many addresses nodes have at most.
    pub(crate) node_ports: bool,
}

/// Which changes of nodes concern a Service.
pub(crate) fn needs(key: &ObjectKey, given: Given<'_>) -> Needs {
    let Some(spec) = given.store.service(key).and_then(|service| service.spec.as_ref()) else {
        return Needs { each_node: false, node_ports: false };
    };
    let inside = |address: IpAddr| given.settings.cluster_of(address.is_ipv6()).any(|pods| pods.contains(address));
    let mut endpoints = given.store.slices_of(key).flat_map(|slice| slice.spec.endpoints.iter());
    let differ = endpoints.any(|endpoint| endpoint.hints.is_some() || !inside(endpoint.address));
    Needs {
        each_node: spec.internal_local || spec.external_local || differ,
        node_ports: spec.ports.iter().any(|port| port.node_port.is_some()),
    }
}

/// Where a load balancer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Everywhere,
    Switches,
    Routers,
}

impl Place {
    fn group(self) -> &'static str {
        match self {
            Self::Everywhere => CLUSTER_GROUP,
            Self::Switches => SWITCH_GROUP,
            Self::Routers => ROUTER_GROUP,
        }
    }
}

/// One load balancer among a Service's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    protocol: Protocol,
    place: Place,
    /// The family, where variables are used: such a load balancer has one only.
    template: Option<bool>,
    /// The client's address is kept, because the endpoints are on the very node.
    keeps_source: bool,
}

impl Kind {
    /// What follows the Service's name.
    fn name(self) -> String {
        let place = match (self.place, self.template) {
            (Place::Everywhere, None) => "cluster",
            (Place::Everywhere, Some(_)) => "node_router+switch",
            (Place::Switches, _) => "node_switch",
            (Place::Routers, _) => "node_router",
        };
        let local = if self.keeps_source { "_local" } else { "" };
        let template = self.template.map(|v6| format!("_template_{}", family(v6))).unwrap_or_default();
        format!("{}_{place}{local}{template}", self.protocol.name())
    }
}

pub(super) fn desired(key: &ObjectKey, given: Given<'_>) -> Result<Contribution, Refusal> {
    let Some(service) = given.store.service(key) else { return Ok(Contribution::default()) };
    if let Some(why) = &service.broken {
        return Err(Refusal::new("ServiceRefused", format!("{why}; what it had stays until that is corrected")));
    }
    let Some(spec) = &service.spec else { return Ok(Contribution::default()) };
    for slice in given.store.slices_of(key) {
        if let Some(why) = &slice.broken {
            let message =
                format!("EndpointSlice {}: {why}; the endpoints stay until that is corrected", slice.key.name);
            return Err(Refusal::new("EndpointSliceRefused", message));
        }
    }
    if !given.settings.features.has(Feature::LoadBalancerGroups) {
        let message = "the northbound database has no load-balancer groups: Services need a newer OVN (22.03)";
        return Err(Refusal::new("ServicesUnsupported", message));
    }
    let owner = Owner::Service(service.key.clone());
    let draft = Draft::new(&owner, &service.uid, given.aliases);
    let prefix = variable_prefix(key);
    let mut maker = Maker { service, spec, given, draft, balancers: BTreeMap::new(), guarded: BTreeMap::new(), prefix };
    let Decision { ports, refusals } = decide(service, Inputs { settings: given.settings, store: given.store });
    if let Some(refusal) = Refusal::of_all(refusals) {
        maker.draft.refuse(refusal);
    }
    for served in &ports {
        for one in &served.vips {
            maker.vip(*one, served.port, &served.endpoints);
            if let Some(address) = one.vip.address().filter(|_| one.guarded) {
                maker.guarded.entry((address, served.port.protocol)).or_default().insert(served.port.port);
            }
        }
    }
    Ok(maker.finish())
}

struct Maker<'a> {
    service: &'a ServiceFacts,
    spec: &'a ServiceSpec,
    given: Given<'a>,
    draft: Draft<'a>,
    balancers: BTreeMap<Kind, StringMap>,
    /// Ports of addresses that are for some clients only.
    guarded: Guarded,
    prefix: String,
}

impl Maker<'_> {
    fn vip(&mut self, served: Served, port: &ServicePort, endpoints: &Endpoints<'_>) {
        let Served { vip, switches, routers, keeps_source, .. } = served;
        let on_hosts = endpoints.on_hosts() && !endpoints.is_empty();
        let mut add = |place, choice, router: bool, keeps_source| {
            self.entry(Entry { vip, port, place, choice, router: router && on_hosts, keeps_source }, endpoints);
        };
        if switches == routers && !on_hosts && !keeps_source {
            add(Place::Everywhere, switches, false, false);
        } else {
            add(Place::Switches, switches, false, false);
            add(Place::Routers, routers, true, keeps_source);
        }
        if let Vip::NodePort { v6, port: number } = vip
            && keeps_source
        {
            self.host_local(port, number, v6, endpoints);
        }
    }

    fn entry(&mut self, entry: Entry<'_>, endpoints: &Endpoints<'_>) {
        let Entry { vip, port, place, choice, router, keeps_source } = entry;
        let v6 = vip.is_ipv6();
        let plain = choice == Choice::All && !router;
        let template = (!plain || matches!(vip, Vip::NodePort { .. })).then_some(v6);
        let kind = Kind { protocol: port.protocol, place, template, keeps_source };
        if template.is_some() && !self.has_templates(vip) {
            return;
        }
        let backends = if plain {
            written(&self.placed(endpoints.all()))
        } else {
            format!("^{}", self.variable(port, v6, choice, router))
        };
        match vip {
            Vip::NodePort { v6, port: number } => {
                for n in 0..self.given.store.most_addresses(v6) {
                    self.put(kind, format!("^{}:{number}", address_variable(n, v6)), &backends);
                }
            }
            Vip::Cluster(address) | Vip::External(address) if plain => {
                self.put(kind, socket(address, port.port), &backends);
            }
            Vip::Cluster(address) | Vip::External(address) => {
                let name = address_word(address);
                let words = format!("{}_{}_{}", self.prefix, self.suffix(port, v6, choice, router), name);
                self.put(kind, format!("^{words}:{}", port.port), &backends);
                let refuses = choice == Choice::Local && !keeps_source;
                if refuses {
                    self.put(kind, format!("^{words}_NONE:{}", port.port), "");
                }
                for node in self.given.store.nodes() {
                    let some = !refuses || !endpoints.of_node(choice, node).is_empty();
                    let (own, none) = if some { (address, unused(v6)) } else { (unused(v6), address) };
                    self.set(node, &words, &own.to_string());
                    if refuses {
                        self.set(node, &format!("{words}_NONE"), &none.to_string());
                    }
                }
            }
        }
        if !plain {
            self.fill(port, v6, choice, router, endpoints);
        }
    }

    /// The host itself asks for endpoints of its own under an address of its own, through its switch.
    fn host_local(&mut self, port: &ServicePort, number: u16, v6: bool, endpoints: &Endpoints<'_>) {
        if self.given.settings.masquerade_address(Masquerade::HostLocal, v6).is_none() || !self.templates() {
            return;
        }
        let kind = Kind { protocol: port.protocol, place: Place::Switches, template: Some(v6), keeps_source: false };
        let backends = format!("^{}", self.variable(port, v6, Choice::Local, false));
        self.put(kind, format!("^{}:{number}", host_local_variable(v6)), &backends);
        self.fill(port, v6, Choice::Local, false, endpoints);
    }

    fn templates(&self) -> bool {
        self.given.settings.features.has(Feature::LoadBalancerTemplates)
    }

    fn has_templates(&mut self, vip: Vip) -> bool {
        let has = self.templates();
        if !has {
            let what = match vip {
                Vip::Cluster(_) => "spec.internalTrafficPolicy, or endpoints that differ from node to node",
                Vip::External(_) => "spec.externalTrafficPolicy, or endpoints that differ from node to node",
                Vip::NodePort { .. } => "spec.ports.nodePort",
            };
            let message = format!(
                "{what}: the northbound database has no load-balancer templates: this needs a newer OVN (22.12); what does \
                 not depend on the node works"
            );
            self.draft.refuse(Refusal::new("TemplatesUnsupported", message));
        }
        has
    }

    fn put(&mut self, kind: Kind, vip: String, backends: &str) {
        self.balancers.entry(kind).or_default().insert(vip, backends.to_owned());
    }

    fn suffix(&self, port: &ServicePort, v6: bool, choice: Choice, router: bool) -> String {
        let choice = match choice {
            Choice::All => "ALL",
            Choice::Hinted => "NEAR",
            Choice::Local => "LOCAL",
        };
        let router = if router { "_ROUTER" } else { "" };
        format!("{}_{}_{}_{choice}{router}", port.protocol.name(), port.port, family(v6))
    }

    /// The variable that endpoints are in.
    fn variable(&self, port: &ServicePort, v6: bool, choice: Choice, router: bool) -> String {
        format!("{}_{}", self.prefix, self.suffix(port, v6, choice, router))
    }

    /// The endpoints of each node, as its variable.
    fn fill(&mut self, port: &ServicePort, v6: bool, choice: Choice, router: bool, endpoints: &Endpoints<'_>) {
        let variable = self.variable(port, v6, choice, router);
        let nowhere = self.given.settings.masquerade_address(Masquerade::Nowhere, v6);
        let nowhere = nowhere.map(|nowhere| socket(nowhere, port.port)).unwrap_or_default();
        for node in self.given.store.nodes() {
            let backends = self.of_node(choice, node, router, endpoints);
            self.set(node, &variable, if backends.is_empty() { &nowhere } else { &backends });
        }
    }

    /// What clients of a node get; `router` is what its gateway router has to write.
    fn of_node(&self, choice: Choice, node: &NodeFacts, router: bool, endpoints: &Endpoints<'_>) -> String {
        let mut chosen = self.placed(endpoints.of_node(choice, node));
        if router && endpoints.is_host(node) {
            for (address, _) in &mut chosen {
                let v6 = address.is_ipv6();
                if host_addresses(node, v6).contains(address) {
                    *address = self.given.settings.masquerade_address(Masquerade::Host, v6).unwrap_or(*address);
                }
            }
        }
        written(&chosen)
    }

    fn set(&mut self, node: &NodeFacts, variable: &str, value: &str) {
        if let Some(row) = template::row_of(&self.draft, node) {
            self.draft.pair(ChassisTemplateVar::variables, row, variable, value);
        }
    }

    fn finish(mut self) -> Contribution {
        ranges::guard(&mut self.draft, &self.guarded, &self.spec.source_ranges);
        for (kind, vips) in std::mem::take(&mut self.balancers) {
            let key = &self.service.key;
            let name = kind.name();
            let row = LoadBalancer {
                name: format!("Service_{key}_{name}"),
                vips,
                protocol: Some(kind.protocol.word().into()),
                selection_fields: self.chooses_by(),
                options: self.options(kind),
                external_ids: self
                    .draft
                    .mark(&[("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", &key.to_string())]),
                ..Default::default()
            };
            let group = self.draft.of_cluster::<LoadBalancerGroup>(kind.place.group());
            self.draft.child(LoadBalancerGroup::load_balancer, group, &name, &row);
        }
        self.draft.finish()
    }

    /// What the choice of an endpoint depends on. With session affinity it is the client's address alone: so it stays with
    /// its endpoint as long as that is there. OVN's own `affinity_timeout` drops the first packet of each client, and
    /// the datapath in userspace all that follow (decision 15).
    fn chooses_by(&self) -> BTreeSet<String> {
        if self.has_affinity() { ["ip_dst", "ip_src"].map(String::from).into() } else { BTreeSet::new() }
    }

    fn has_affinity(&self) -> bool {
        self.spec.affinity && self.given.settings.features.has(Feature::SessionAffinity)
    }

    /// Endpoints as the load balancer lists them.
    fn placed(&self, endpoints: Vec<Target>) -> Vec<Target> {
        if self.has_affinity() { places(&endpoints) } else { endpoints }
    }

    fn options(&self, kind: Kind) -> StringMap {
        let mut options = balancer::options(self.given.settings, kind.protocol, kind.keeps_source);
        if let Some(v6) = kind.template {
            options.insert("template".into(), "true".into());
            options.insert("address-family".into(), family(v6).to_lowercase());
        }
        options
    }
}

fn written(targets: &[Target]) -> String {
    let targets: Vec<String> = targets.iter().map(|(address, port)| socket(*address, *port)).collect();
    targets.join(",")
}

/// An address as it stands in a variable's name.
fn address_word(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "_")
}

/// One address, at one place.
#[derive(Clone, Copy)]
struct Entry<'a> {
    vip: Vip,
    port: &'a ServicePort,
    place: Place,
    choice: Choice,
    router: bool,
    keeps_source: bool,
}
