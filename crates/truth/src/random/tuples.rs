//! Random queries.

use super::rng::Rng;
use super::vocabulary::{PORTS, STRANGERS, UNSERVED};
use crate::address::Family;
use crate::cluster::Cluster;
use crate::end::TrafficEnd;
use crate::objects::{Pod, Protocol};
use crate::verdict::Verdict;

/// A query: may this packet pass?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuple {
    /// The end that sends the first packet.
    pub from: TrafficEnd,
    /// The end that the packet is for.
    pub to: TrafficEnd,
    /// Also decides which ports are compared.
    pub protocol: Protocol,
    /// The destination's port.
    pub port: u16,
    /// Both ends use their address of this family.
    pub family: Family,
}

impl Tuple {
    /// The documented result, which the product's must equal.
    pub fn verdict(&self, cluster: &Cluster) -> Verdict {
        cluster.verdict(&self.from, &self.to, self.protocol, self.port, self.family)
    }
}

/// A query about a Service: which endpoints may answer?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTuple {
    /// The end that sends the first packet.
    pub from: TrafficEnd,
    /// Namespace and name of the Service.
    pub service: (String, String),
    /// Of the Service's port.
    pub protocol: Protocol,
    /// `port` of the Service, not that of the pods.
    pub port: u16,
    /// Both ends use their address of this family.
    pub family: Family,
}

/// Random queries. One end is a pod on the cluster network, so that policies apply.
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

/// Random queries about a cluster's Services, some for ports that they do not have.
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

fn place(pod: &Pod) -> TrafficEnd {
    TrafficEnd::pod(&pod.metadata.namespace, &pod.metadata.name)
}

/// Mostly another pod; else a node, a host-network pod, an unserved service address, or an address outside.
fn other_end(cluster: &Cluster, rng: &mut Rng, pods: &[&Pod], family: Family) -> TrafficEnd {
    let hosts: Vec<&Pod> = cluster.pods.iter().filter(|pod| !pod.on_network() && !pod.completed()).collect();
    match rng.below(100) {
        0..6 if !cluster.nodes.is_empty() => TrafficEnd::node(&rng.pick(&cluster.nodes).metadata.name),
        6..10 if !hosts.is_empty() => place(rng.pick::<&Pod>(&hosts)),
        10..13 => {
            // An unallocated address of a service range.
            let unserved = UNSERVED.iter().filter_map(|text| text.parse().ok());
            let mut unserved = unserved.filter(|address| Family::of(*address) == family);
            unserved
                .find(|address| cluster.is_service_address(*address))
                .map_or_else(|| place(rng.pick::<&Pod>(pods)), TrafficEnd::External)
        }
        13..25 => {
            let strangers = STRANGERS.iter().filter_map(|text| text.parse().ok());
            let strangers: Vec<_> = strangers.filter(|address| Family::of(*address) == family).collect();
            TrafficEnd::External(*rng.pick(&strangers))
        }
        _ => place(rng.pick::<&Pod>(pods)),
    }
}

/// In half of the cases a port of the destination, else a random one.
fn port(cluster: &Cluster, rng: &mut Rng, to: &TrafficEnd, protocol: Protocol) -> u16 {
    let own: Vec<u16> = match to {
        TrafficEnd::Pod { namespace, name } => cluster
            .pod(namespace, name)
            .into_iter()
            .flat_map(Pod::ports)
            .filter_map(|(offered, number)| (offered == protocol).then_some(number))
            .collect(),
        TrafficEnd::Node(_) | TrafficEnd::External(_) => Vec::new(),
    };
    if !own.is_empty() && rng.percent(50) { *rng.pick(&own) } else { *rng.pick(PORTS) }
}
