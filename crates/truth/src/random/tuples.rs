//! Random questions.

use super::rng::Rng;
use super::vocabulary::{PORTS, STRANGERS, UNSERVED};
use crate::address::Family;
use crate::cluster::Cluster;
use crate::end::Place;
use crate::objects::{Pod, Protocol};
use crate::verdict::Verdict;

/// One question: may this pass?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuple {
    /// Who sends.
    pub from: Place,
    /// Who shall get it.
    pub to: Place,
    /// The protocol.
    pub protocol: Protocol,
    /// The destination's port.
    pub port: u16,
    /// The family.
    pub family: Family,
}

impl Tuple {
    /// This crate's own answer.
    pub fn verdict(&self, cluster: &Cluster) -> Verdict {
        cluster.verdict(&self.from, &self.to, self.protocol, self.port, self.family)
    }
}

/// One question about a Service: who may answer?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTuple {
    /// Who sends.
    pub from: Place,
    /// Namespace and name of the Service.
    pub service: (String, String),
    /// The protocol.
    pub protocol: Protocol,
    /// The Service's port.
    pub port: u16,
    /// The family.
    pub family: Family,
}

/// Random questions to a cluster. One end is a pod on the cluster's network, or no policy would be asked.
pub fn tuples(cluster: &Cluster, rng: &mut Rng, count: usize) -> Vec<Tuple> {
    let pods: Vec<&Pod> = cluster.pods.iter().filter(|pod| pod.on_network()).collect();
    if pods.is_empty() {
        return Vec::new();
    }
    let one = |rng: &mut Rng| {
        let pod = *rng.pick(&pods);
        let families: Vec<Family> = pod.addresses().map(Family::of).collect();
        let family = *rng.pick(&families);
        let other = other_end(cluster, rng, &pods, family);
        let protocol = *rng.pick(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Sctp]);
        let (from, to) = if rng.percent(50) { (place(pod), other) } else { (other, place(pod)) };
        Tuple { port: port(cluster, rng, &to, protocol), from, to, protocol, family }
    };
    (0..count).map(|_| one(rng)).collect()
}

/// Random questions about the Services of a cluster, some about ports that they have not.
pub fn service_tuples(cluster: &Cluster, rng: &mut Rng, count: usize) -> Vec<ServiceTuple> {
    let pods: Vec<&Pod> = cluster.pods.iter().filter(|pod| pod.on_network()).collect();
    if pods.is_empty() || cluster.services.is_empty() {
        return Vec::new();
    }
    let one = |rng: &mut Rng| {
        let pod = *rng.pick(&pods);
        let families: Vec<Family> = pod.addresses().map(Family::of).collect();
        let service = rng.pick(&cluster.services);
        let offered = rng.pick(&service.spec.ports);
        ServiceTuple {
            from: place(pod),
            service: (service.metadata.namespace.clone(), service.metadata.name.clone()),
            protocol: if rng.percent(95) { offered.protocol } else { Protocol::Tcp },
            port: if rng.percent(95) { offered.port } else { *rng.pick(PORTS) },
            family: *rng.pick(&families),
        }
    };
    (0..count).map(|_| one(rng)).collect()
}

fn place(pod: &Pod) -> Place {
    Place::pod(&pod.metadata.namespace, &pod.metadata.name)
}

/// Mostly another pod; a node, a pod on a node's network, or an address outside.
fn other_end(cluster: &Cluster, rng: &mut Rng, pods: &[&Pod], family: Family) -> Place {
    let hosts: Vec<&Pod> = cluster.pods.iter().filter(|pod| !pod.on_network() && !pod.completed()).collect();
    match rng.below(100) {
        0..6 if !cluster.nodes.is_empty() => Place::node(&rng.pick(&cluster.nodes).metadata.name),
        6..10 if !hosts.is_empty() => place(rng.pick::<&Pod>(&hosts)),
        10..13 => {
            // An address that the API server may give to a Service, and did not.
            let unserved = UNSERVED.iter().filter_map(|text| text.parse().ok());
            let mut unserved = unserved.filter(|address| Family::of(*address) == family);
            unserved
                .find(|address| cluster.is_service_address(*address))
                .map_or_else(|| place(rng.pick::<&Pod>(pods)), Place::External)
        }
        13..25 => {
            let strangers = STRANGERS.iter().filter_map(|text| text.parse().ok());
            let strangers: Vec<_> = strangers.filter(|address| Family::of(*address) == family).collect();
            Place::External(*rng.pick(&strangers))
        }
        _ => place(rng.pick::<&Pod>(pods)),
    }
}

/// A port that the destination has, where it has one, or any.
fn port(cluster: &Cluster, rng: &mut Rng, to: &Place, protocol: Protocol) -> u16 {
    let own: Vec<u16> = match to {
        Place::Pod { namespace, name } => cluster
            .pod(namespace, name)
            .into_iter()
            .flat_map(Pod::ports)
            .filter_map(|(offered, number)| (offered == protocol).then_some(number))
            .collect(),
        Place::Node(_) | Place::External(_) => Vec::new(),
    };
    if !own.is_empty() && rng.percent(50) { *rng.pick(&own) } else { *rng.pick(PORTS) }
}
