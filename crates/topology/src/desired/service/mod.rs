//! Service: load balancers, which the nodes' switches and gateway routers reference by groups.
//!
//! ```text
//!  ServiceFacts + SliceFacts ──▶ one Load_Balancer for each protocol and kind ──▶ clusterLBGroup, …Switch…, …Router…
//!                            ──▶ where nodes differ: `^variables`, with a value in each node's Chassis_Template_Var
//! ```
//!
//! So the number of rows does not grow with nodes. Every chassis has a value for every variable: ovn-controller warns of
//! flows whose variables have none. With a `Local` traffic policy and no endpoint on the node, clients from outside are sent
//! to an address that bridges drop, and pods are rejected: the address is one of two variables, with and without endpoints,
//! and on each chassis one of them matches no packet.

#[cfg(test)]
mod kube_proxy_tests;
mod ranges;
#[cfg(test)]
// What is written down on the spot is passed as it is.
#[allow(clippy::needless_pass_by_value)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netmodel::{Family, Masquerade};
use objects::{NodeFacts, ObjectKey, Protocol, ServiceFacts, ServicePort, ServiceSpec};
use ovn_schema::Feature;
use ovn_schema::StringMap;
use ovn_schema::northbound::{ChassisTemplateVar, LoadBalancer, LoadBalancerGroup};

use self::ranges::Guarded;
use super::Inputs;
use super::balancer::{self, socket};
use super::cluster::{CLUSTER_GROUP, ROUTER_GROUP, SWITCH_GROUP};
use super::template::{self, address_variable, host_addresses, host_local_variable};
use crate::contribution::{Contribution, Draft};
use crate::identity::{Owner, hashed_name};
use crate::refusal::Refusal;
use crate::services::{self, Decision, EndpointSelection, Endpoints, ServedVip, Target, Vip, affinity_slots, decide};

/// Prefix of a Service's variables; identifies the owner of a variable.
pub(crate) fn variable_prefix(service: &ObjectKey) -> String {
    hashed_name(&format!("service {service}"))
}

/// Which changes of nodes requeue a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Any change of any node: rows of this Service name nodes.
    pub(crate) each_node: bool,
    /// Changes of the largest number of addresses of a node.
    pub(crate) node_ports: bool,
}

/// Which changes of nodes requeue a Service.
pub(crate) fn needs(key: &ObjectKey, inputs: Inputs<'_>) -> Needs {
    let Some(spec) = inputs.store.service(key).and_then(|service| service.spec.as_ref()) else {
        return Needs { each_node: false, node_ports: false };
    };
    let inside = |address: IpAddr| inputs.settings.cluster_of(Family::of(address)).any(|pods| pods.contains(address));
    let mut endpoints = inputs.store.slices_of(key).flat_map(|slice| slice.spec.endpoints.iter());
    let differ = endpoints.any(|endpoint| endpoint.hints.is_some() || !inside(endpoint.address));
    Needs {
        each_node: spec.internal_local || spec.external_local || differ,
        node_ports: spec.ports.iter().any(|port| port.node_port.is_some()),
    }
}

/// Which datapaths have a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Placement {
    Everywhere,
    Switches,
    Routers,
}

impl Placement {
    fn group(self) -> &'static str {
        match self {
            Self::Everywhere => CLUSTER_GROUP,
            Self::Switches => SWITCH_GROUP,
            Self::Routers => ROUTER_GROUP,
        }
    }
}

/// Identifies one load balancer of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    protocol: Protocol,
    place: Placement,
    /// The family if it uses variables: such a load balancer has only one.
    template: Option<Family>,
    /// Keeps the client's address: all endpoints are on the node.
    preserves_source: bool,
}

impl Kind {
    /// Suffix of the row's name, and its row key.
    fn name(self) -> String {
        let place = match (self.place, self.template) {
            (Placement::Everywhere, None) => "cluster",
            (Placement::Everywhere, Some(_)) => "node_router+switch",
            (Placement::Switches, _) => "node_switch",
            (Placement::Routers, _) => "node_router",
        };
        let local = if self.preserves_source { "_local" } else { "" };
        let template = self.template.map(|family| format!("_template_{family}")).unwrap_or_default();
        format!("{}_{place}{local}{template}", self.protocol.name())
    }
}

pub(super) fn desired(key: &ObjectKey, inputs: Inputs<'_>) -> Result<Contribution, Refusal> {
    let Some(service) = inputs.store.service(key) else { return Ok(Contribution::default()) };
    if let Some(why) = &service.broken {
        return Err(Refusal::new(
            "ServiceRefused",
            format!("{why}; the last valid load balancers stay until this is corrected"),
        ));
    }
    let Some(spec) = &service.spec else { return Ok(Contribution::default()) };
    for slice in inputs.store.slices_of(key) {
        if let Some(why) = &slice.broken {
            let message = format!(
                "EndpointSlice {}: {why}; the last valid endpoints stay until this is corrected",
                slice.key.name
            );
            return Err(Refusal::new("EndpointSliceRefused", message));
        }
    }
    if !inputs.settings.features.has(Feature::LoadBalancerGroups) {
        let message = "the northbound database has no load-balancer groups: Services need OVN 22.03 or newer";
        return Err(Refusal::new("ServicesUnsupported", message));
    }
    let owner = Owner::Service(service.key.clone());
    let draft = Draft::new(&owner, &service.uid, inputs.aliases);
    let prefix = variable_prefix(key);
    let mut builder =
        Builder { service, spec, inputs, draft, balancers: BTreeMap::new(), guarded: BTreeMap::new(), prefix };
    let Decision { ports, refusals } =
        decide(service, services::ServiceInputs { settings: inputs.settings, store: inputs.store });
    if let Some(refusal) = Refusal::merge(refusals) {
        builder.draft.refuse(refusal);
    }
    for served in &ports {
        for one in &served.vips {
            builder.vip(*one, served.port, &served.endpoints);
            if let Some(address) = one.vip.address().filter(|_| one.source_ranges_apply) {
                builder.guarded.entry((address, served.port.protocol)).or_default().insert(served.port.port);
            }
        }
    }
    Ok(builder.finish())
}

struct Builder<'a> {
    service: &'a ServiceFacts,
    spec: &'a ServiceSpec,
    inputs: Inputs<'a>,
    draft: Draft<'a>,
    balancers: BTreeMap<Kind, StringMap>,
    /// Ports that only `loadBalancerSourceRanges` may use, by address and protocol.
    guarded: Guarded,
    prefix: String,
}

impl Builder<'_> {
    fn vip(&mut self, served: ServedVip, port: &ServicePort, endpoints: &Endpoints<'_>) {
        let ServedVip { vip, for_pods, for_others, preserves_source, .. } = served;
        let on_hosts = endpoints.on_hosts() && !endpoints.is_empty();
        let mut add = |place, choice, router: bool, preserves_source| {
            self.entry(Entry { vip, port, place, choice, router: router && on_hosts, preserves_source }, endpoints);
        };
        if for_pods == for_others && !on_hosts && !preserves_source {
            add(Placement::Everywhere, for_pods, false, false);
        } else {
            add(Placement::Switches, for_pods, false, false);
            add(Placement::Routers, for_others, true, preserves_source);
        }
        if let Vip::NodePort { family, port: number } = vip
            && preserves_source
        {
            self.host_local(port, number, family, endpoints);
        }
    }

    fn entry(&mut self, entry: Entry<'_>, endpoints: &Endpoints<'_>) {
        let Entry { vip, port, place, choice, router, preserves_source } = entry;
        let family = vip.family();
        let plain = choice == EndpointSelection::All && !router;
        let template = (!plain || matches!(vip, Vip::NodePort { .. })).then_some(family);
        let kind = Kind { protocol: port.protocol, place, template, preserves_source };
        if template.is_some() && !self.has_templates(vip) {
            return;
        }
        let backends = if plain {
            written(&self.placed(endpoints.all()))
        } else {
            format!("^{}", self.variable(port, family, choice, router))
        };
        match vip {
            Vip::NodePort { family, port: number } => {
                for n in 0..self.inputs.store.max_addresses(family) {
                    self.put(kind, format!("^{}:{number}", address_variable(n, family)), &backends);
                }
            }
            Vip::Cluster(address) | Vip::External(address) if plain => {
                self.put(kind, socket(address, port.port), &backends);
            }
            Vip::Cluster(address) | Vip::External(address) => {
                let name = address_word(address);
                let words = format!("{}_{}_{}", self.prefix, self.suffix(port, family, choice, router), name);
                self.put(kind, format!("^{words}:{}", port.port), &backends);
                let refuses = choice == EndpointSelection::Local && !preserves_source;
                if refuses {
                    self.put(kind, format!("^{words}_NONE:{}", port.port), "");
                }
                for node in self.inputs.store.nodes() {
                    let some = !refuses || !endpoints.of_node(choice, node).is_empty();
                    let (own, none) =
                        if some { (address, family.unspecified()) } else { (family.unspecified(), address) };
                    self.set(node, &words, &own.to_string());
                    if refuses {
                        self.set(node, &format!("{words}_NONE"), &none.to_string());
                    }
                }
            }
        }
        if !plain {
            self.fill(port, family, choice, router, endpoints);
        }
    }

    /// The host reaches its own endpoints through its switch, at a masquerade address.
    fn host_local(&mut self, port: &ServicePort, number: u16, family: Family, endpoints: &Endpoints<'_>) {
        if self.inputs.settings.masquerade_address(Masquerade::HostLocal, family).is_none() || !self.templates() {
            return;
        }
        let kind = Kind {
            protocol: port.protocol,
            place: Placement::Switches,
            template: Some(family),
            preserves_source: false,
        };
        let backends = format!("^{}", self.variable(port, family, EndpointSelection::Local, false));
        self.put(kind, format!("^{}:{number}", host_local_variable(family)), &backends);
        self.fill(port, family, EndpointSelection::Local, false, endpoints);
    }

    fn templates(&self) -> bool {
        self.inputs.settings.features.has(Feature::LoadBalancerTemplates)
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
                "{what}: the northbound database has no load-balancer templates: this needs OVN 22.12 or newer; what does \
                 not depend on the node works"
            );
            self.draft.refuse(Refusal::new("TemplatesUnsupported", message));
        }
        has
    }

    fn put(&mut self, kind: Kind, vip: String, backends: &str) {
        self.balancers.entry(kind).or_default().insert(vip, backends.to_owned());
    }

    fn suffix(&self, port: &ServicePort, family: Family, choice: EndpointSelection, router: bool) -> String {
        let choice = match choice {
            EndpointSelection::All => "ALL",
            EndpointSelection::Hinted => "NEAR",
            EndpointSelection::Local => "LOCAL",
        };
        let router = if router { "_ROUTER" } else { "" };
        format!("{}_{}_{family}_{choice}{router}", port.protocol.name(), port.port)
    }

    /// Template variable whose value is the endpoints on one node.
    fn variable(&self, port: &ServicePort, family: Family, choice: EndpointSelection, router: bool) -> String {
        format!("{}_{}", self.prefix, self.suffix(port, family, choice, router))
    }

    /// Sets the variable of every node.
    fn fill(
        &mut self,
        port: &ServicePort,
        family: Family,
        choice: EndpointSelection,
        router: bool,
        endpoints: &Endpoints<'_>,
    ) {
        let variable = self.variable(port, family, choice, router);
        let nowhere = self.inputs.settings.masquerade_address(Masquerade::Blackhole, family);
        let nowhere = nowhere.map(|nowhere| socket(nowhere, port.port)).unwrap_or_default();
        for node in self.inputs.store.nodes() {
            let backends = self.of_node(choice, node, router, endpoints);
            self.set(node, &variable, if backends.is_empty() { &nowhere } else { &backends });
        }
    }

    /// The endpoints for clients of a node; with `router`, as its gateway router must write them.
    fn of_node(&self, choice: EndpointSelection, node: &NodeFacts, router: bool, endpoints: &Endpoints<'_>) -> String {
        let mut chosen = self.placed(endpoints.of_node(choice, node));
        if router && endpoints.is_host(node) {
            for (address, _) in &mut chosen {
                let family = Family::of(*address);
                if host_addresses(node, family).contains(address) {
                    *address = self.inputs.settings.masquerade_address(Masquerade::Host, family).unwrap_or(*address);
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
                protocol: Some(kind.protocol.ovn_name().into()),
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

    /// The fields that an endpoint is chosen by. With session affinity only the client's address, so that it keeps its
    /// endpoint. OVN's `affinity_timeout` drops the first packet of each client, and on the userspace datapath all others
    /// (decision 15).
    fn chooses_by(&self) -> BTreeSet<String> {
        if self.has_affinity() { ["ip_dst", "ip_src"].map(String::from).into() } else { BTreeSet::new() }
    }

    fn has_affinity(&self) -> bool {
        self.spec.affinity && self.inputs.settings.features.has(Feature::SessionAffinity)
    }

    /// Endpoints in the order of the load balancer.
    fn placed(&self, endpoints: Vec<Target>) -> Vec<Target> {
        if self.has_affinity() { affinity_slots(&endpoints) } else { endpoints }
    }

    fn options(&self, kind: Kind) -> StringMap {
        let mut options = balancer::options(self.inputs.settings, kind.protocol, kind.preserves_source);
        if let Some(family) = kind.template {
            options.insert("template".into(), "true".into());
            options.insert("address-family".into(), family.to_string().to_lowercase());
        }
        options
    }
}

fn written(targets: &[Target]) -> String {
    let targets: Vec<String> = targets.iter().map(|(address, port)| socket(*address, *port)).collect();
    targets.join(",")
}

/// An address as part of a variable's name.
fn address_word(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "_")
}

/// One address on one kind of datapath.
#[derive(Clone, Copy)]
struct Entry<'a> {
    vip: Vip,
    port: &'a ServicePort,
    place: Placement,
    choice: EndpointSelection,
    router: bool,
    preserves_source: bool,
}
