//! way: whether there is a way from one end to another, whatever rules say.

use std::net::IpAddr;

use objects::{NodeFacts, PodFacts, PodKey};

use super::cases::{FAMILY, Labels};
use super::ends::{End, Place};
use super::{CannotTell, Destination, Flight, Judge, Packet, Step, Who, family, step};
use crate::trace::Exit;

const UNSERVED: &str = "no Service has this address and port: connections are refused";

impl<'a> Judge<'a> {
    /// The packets from one to the other, with nothing between them.
    pub(super) fn direct(
        &self,
        sources: &[Place<'a>],
        targets: &[Place<'a>],
        to: &Destination,
        told: &[Step],
    ) -> Result<Vec<Flight<'a>>, CannotTell> {
        let mut flights = Vec::new();
        for source in sources {
            for target in targets.iter().filter(|target| target.end.address.is_ipv6() == source.end.address.is_ipv6()) {
                let mut chain = told.to_vec();
                let way = self.way(&source.end, &target.end, &mut chain)?;
                let mut labels = Labels::default();
                labels[FAMILY] = Some(family(target.end.address.is_ipv6()));
                for door in self.doors(to).iter().copied() {
                    let packet = Packet { from: source.end, to: target.end, protocol: door.protocol, port: door.first };
                    // What a pod sends to itself never leaves it, and meets no rule.
                    let ruled = (source.end.address != target.end.address).then_some(packet);
                    let (labels, chain) = (labels.clone(), chain.clone());
                    flights.push(Flight { labels, door, chain, way, leaves: ruled, arrives: ruled });
                }
            }
        }
        Ok(flights)
    }

    /// Whether there is a way.
    pub(super) fn way(&self, from: &End<'a>, to: &End<'a>, chain: &mut Vec<Step>) -> Result<bool, CannotTell> {
        if from.address == to.address {
            let object = match to.who {
                Who::Pod(pod) => format!("Pod {}", pod.key),
                Who::Node(node) => format!("Node {}", node.name),
                Who::Outside => to.address.to_string(),
            };
            chain.push(step(object, "status.podIPs", "what it sends to itself never leaves it"));
            return Ok(true);
        }
        match (from.who, to.who) {
            (Who::Pod(from), Who::Pod(pod)) => Ok(self.pod_to_pod(from, pod, to.address, chain)),
            (Who::Pod(from), Who::Node(node)) => Ok(self.pod_to_node(from, node, to.address, chain)),
            (Who::Pod(from), Who::Outside) => Ok(self.pod_to_outside(from, to.address, chain)),
            (Who::Node(from), Who::Pod(_)) => {
                let says = format!("the host reaches every pod of the cluster by its port k8s-{}", from.name);
                chain.push(step(format!("Node {}", from.name), "k8s.ovn.org/node-subnets", says));
                Ok(true)
            }
            (Who::Outside, Who::Pod(pod)) => Ok(self.outside_to_pod(pod, to.address, chain)),
            (Who::Node(_), Who::Outside) if self.is_unserved(to.address) => {
                chain.push(step(to.address.to_string(), "service-cidrs", UNSERVED));
                Ok(false)
            }
            (Who::Node(_) | Who::Outside, Who::Node(_) | Who::Outside) => {
                let (from, to) = (name_of(from), name_of(to));
                Err(CannotTell(format!("{from} to {to} does not pass the cluster's network: nothing here decides it")))
            }
        }
    }

    fn pod_to_pod(&self, from: &PodFacts, pod: &PodFacts, address: IpAddr, chain: &mut Vec<Step>) -> bool {
        let to = &pod.key;
        let path = self.network.borrow_mut().reach(self.given, &from.key, to, address.is_ipv6());
        let Some(path) = path else {
            let says = format!("{address} cannot be reached from there");
            chain.push(step(format!("Pod {to}"), "k8s.ovn.org/pod-networks", says));
            return false;
        };
        let node = pod.node.clone().unwrap_or_else(|| "".into());
        let subnet = self.given.allocator.node(&node).and_then(|own| own.subnet_of(address));
        let subnet = subnet.map(|subnet| subnet.to_string()).unwrap_or_default();
        let says = if path.routed {
            format!("{subnet} is behind ovn_cluster_router, on switch {node}")
        } else {
            format!("both are on its switch, {subnet}")
        };
        chain.push(step(format!("Node {node}"), "k8s.ovn.org/node-subnets", says));
        true
    }

    fn pod_to_node(&self, from: &PodFacts, to: &NodeFacts, address: IpAddr, chain: &mut Vec<Step>) -> bool {
        let object = format!("Node {}", to.name);
        let inside = self.given.settings.cluster_of(address.is_ipv6()).any(|own| own.contains(address));
        if inside {
            let says = format!("{address} is the host itself, behind port k8s-{}", to.name);
            chain.push(step(object, "k8s.ovn.org/node-subnets", says));
            return true;
        }
        if from.node.as_ref() == Some(&to.name) {
            let says = format!("{address} is the pod's own host, behind port k8s-{}", to.name);
            chain.push(step(object, "k8s.ovn.org/host-cidrs", says));
            return true;
        }
        chain.push(step(object, "k8s.ovn.org/host-cidrs", format!("it has the address {address}")));
        self.exit(&from.key, address, chain).is_some()
    }

    /// Whether nobody but a Service could have an address: such packets are rejected on their node.
    fn is_unserved(&self, address: IpAddr) -> bool {
        self.given.settings.services.iter().any(|services| services.contains(address))
    }

    fn pod_to_outside(&self, from: &PodFacts, to: IpAddr, chain: &mut Vec<Step>) -> bool {
        let settings = self.given.settings;
        let nobody = if settings.cluster_of(to.is_ipv6()).any(|own| own.contains(to)) {
            Some(("cluster-subnets", "it is an address of the cluster that no pod has"))
        } else if self.is_unserved(to) {
            Some(("service-cidrs", UNSERVED))
        } else {
            None
        };
        if let Some((field, says)) = nobody {
            chain.push(step(to.to_string(), field, says));
            return false;
        }
        self.exit(&from.key, to, chain).is_some()
    }

    /// How a pod's packets to an address outside leave the cluster, if they do; which is told.
    pub(super) fn exit(&self, from: &PodKey, to: IpAddr, chain: &mut Vec<Step>) -> Option<Exit> {
        let node = self.given.store.pod(from).and_then(|pod| pod.node.clone()).unwrap_or_else(|| "".into());
        let exit = self.network.borrow_mut().leaves(self.given, from, to);
        let says = match &exit {
            Some(Exit::Gateway { router, source, next_hops }) => {
                let hops: Vec<String> = next_hops.iter().map(ToString::to_string).collect();
                format!("leaves by {router} as {source}, to {}", hops.join(" or "))
            }
            Some(Exit::Host { port }) => format!("leaves by {port} and the host's own routing"),
            None => "the node has no gateway for it".to_owned(),
        };
        chain.push(step(format!("Node {node}"), "k8s.ovn.org/l3-gateway-config", says));
        exit
    }

    fn outside_to_pod(&self, to: &PodFacts, address: IpAddr, chain: &mut Vec<Step>) -> bool {
        let node = to.node.clone().unwrap_or_else(|| "".into());
        let gateway = self.given.store.node(&node).and_then(|node| node.gateway.valid()?.as_ref());
        let has = gateway
            .is_some_and(|gateway| gateway.addresses.iter().any(|own| own.address().is_ipv6() == address.is_ipv6()));
        let says = if has {
            format!("GR_{node} takes in what others route to {address}, with the sender's own address")
        } else {
            "the node has no gateway by which anything comes in".to_owned()
        };
        chain.push(step(format!("Node {node}"), "k8s.ovn.org/l3-gateway-config", says));
        has
    }
}

fn name_of(end: &End<'_>) -> String {
    match end.who {
        Who::Pod(pod) => format!("Pod {}", pod.key),
        Who::Node(node) => format!("Node {}", node.name),
        Who::Outside => end.address.to_string(),
    }
}
