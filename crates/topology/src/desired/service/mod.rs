//! service: its addresses become entries of load balancers, which the nodes' switches and gateway routers have by groups.
//!
//! ```text
//!  ServiceFacts + SliceFacts ──▶ one Load_Balancer for each protocol and kind ──▶ clusterLBGroup, …Switch…, …Router…
//!                            ──▶ where nodes differ: `^variables`, with a value in each node's Chassis_Template_Var
//! ```
//!
//! So the number of rows does not grow with nodes. An address whose endpoints differ from node to node is itself a
//! variable, of two: one that nodes with endpoints have, and one that nodes without have, and which rejects.

mod addresses;
mod endpoints;
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

use self::endpoints::{Choice, Endpoints};
use self::ranges::Guarded;
use super::Given;
use super::balancer::{self, socket};
use super::cluster::{CLUSTER_GROUP, ROUTER_GROUP, SWITCH_GROUP};
use super::template::{self, address_variable, family, host_local_variable, most_addresses};
use crate::contribution::{Contribution, Draft};
use crate::identity::{ObjectKey, Owner, hashed_name};
use crate::objects::{NodeFacts, Protocol, ServiceFacts, ServicePort, ServiceSpec};
use crate::refusal::{InTheWay, Refusal, in_the_way};
use crate::service_index::Claim;
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

/// An address that a Service has.
#[derive(Debug, Clone, Copy)]
enum Vip {
    Cluster(IpAddr),
    External(IpAddr),
    NodePort { v6: bool, port: u16 },
}

impl Vip {
    fn is_ipv6(self) -> bool {
        match self {
            Self::Cluster(address) | Self::External(address) => address.is_ipv6(),
            Self::NodePort { v6, .. } => v6,
        }
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
    for port in &spec.ports {
        for v6 in given.settings.families() {
            maker.port(port, v6);
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
    /// The addresses of a family.
    fn vips(&self, port: &ServicePort, v6: bool) -> Vec<(&'static str, Vip)> {
        let spec = self.spec;
        let cluster = spec.cluster_ips.iter().map(|ip| ("spec.clusterIPs", Vip::Cluster(*ip)));
        let external = spec.external_ips.iter().map(|ip| ("spec.externalIPs", Vip::External(*ip)));
        let ingress = spec.ingress_ips.iter().map(|ip| ("status.loadBalancer.ingress.ip", Vip::External(*ip)));
        let node = port.node_port.map(|port| ("spec.ports.nodePort", Vip::NodePort { v6, port }));
        // A node has ports for the families that the Service has.
        let node = node.filter(|_| spec.cluster_ips.iter().any(|ip| ip.is_ipv6() == v6));
        cluster.chain(external).chain(ingress).chain(node).filter(|(_, vip)| vip.is_ipv6() == v6).collect()
    }

    fn port(&mut self, port: &ServicePort, v6: bool) {
        let vips = self.vips(port, v6);
        if vips.is_empty() {
            return;
        }
        let endpoints = Endpoints::of(&self.service.key, port, v6, self.spec.publish_not_ready, self.given);
        let mut seen: Vec<IpAddr> = Vec::new();
        for (field, vip) in vips {
            if let Vip::Cluster(address) | Vip::External(address) = vip {
                if seen.contains(&address) {
                    continue;
                }
                seen.push(address);
                if let Some(refusal) = addresses::refused(field, address, self.given.settings) {
                    self.draft.refuse(refusal);
                    continue;
                }
            }
            if self.is_taken(field, vip, port) {
                continue;
            }
            self.vip(vip, port, &endpoints);
            if let Vip::Cluster(address) = vip
                && let Some(doubt) = addresses::unknown(field, address, self.given.settings)
            {
                self.draft.refuse(doubt);
            }
            if let Vip::Cluster(address) | Vip::External(address) = vip
                && self.spec.ingress_ips.contains(&address)
            {
                self.guarded.entry((address, port.protocol)).or_default().insert(port.port);
            }
        }
    }

    /// Whether an older Service has what this one asks for: then somebody is told.
    fn is_taken(&mut self, field: &str, vip: Vip, port: &ServicePort) -> bool {
        let (address, number) = match vip {
            Vip::Cluster(address) | Vip::External(address) => (Some(address), port.port),
            Vip::NodePort { port, .. } => (None, port),
        };
        let protocol = port.protocol;
        let mut claimants = self.given.store.claimants(Claim { address, port: number, protocol });
        let Some(holder) = claimants.next().filter(|holder| **holder != self.service.key) else { return false };
        let what = address.map_or_else(|| number.to_string(), |address| socket(address, number));
        let InTheWay { shown, detail } = in_the_way("Service", &holder.namespace, holder, &self.service.key.namespace);
        let message = format!(
            "{field}: {what}/{} is taken by {shown}, which is older: use another, or delete that Service",
            protocol.name()
        );
        self.draft.refuse(Refusal::new("AddressTaken", message).with_detail(detail));
        true
    }

    fn vip(&mut self, vip: Vip, port: &ServicePort, endpoints: &Endpoints<'_>) {
        let hinted = if endpoints.are_hinted() { Choice::Hinted } else { Choice::All };
        let none = endpoints.is_empty();
        let (switches, routers) = match vip {
            _ if none => (Choice::All, Choice::All),
            Vip::Cluster(_) if self.spec.internal_local => (Choice::Local, Choice::Local),
            // Pods are no clients from outside: they get everything, as they would by the cluster's own address.
            Vip::External(_) | Vip::NodePort { .. } if self.spec.external_local => (hinted, Choice::Local),
            _ => (hinted, hinted),
        };
        let keeps_source = routers == Choice::Local && !matches!(vip, Vip::Cluster(_));
        let on_hosts = endpoints.on_hosts() && !none;
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
        let backends = if plain { endpoints.all() } else { format!("^{}", self.variable(port, v6, choice, router)) };
        match vip {
            Vip::NodePort { v6, port: number } => {
                for n in 0..most_addresses(self.given.store, v6) {
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
                if choice == Choice::Local {
                    self.put(kind, format!("^{words}_NONE:{}", port.port), "");
                }
                for node in self.given.store.nodes() {
                    let some = !endpoints.of_node(choice, node, router, self.given).is_empty();
                    let variable = if some { words.clone() } else { format!("{words}_NONE") };
                    self.set(node, &variable, &address.to_string());
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
        for node in self.given.store.nodes() {
            let backends = endpoints.of_node(choice, node, router, self.given);
            if !backends.is_empty() {
                self.set(node, &variable, &backends);
            }
        }
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
        let affinity = self.spec.affinity && self.given.settings.features.has(Feature::SessionAffinity);
        if affinity { ["ip_dst", "ip_src"].map(String::from).into() } else { BTreeSet::new() }
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
