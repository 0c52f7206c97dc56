//! Whether there is a route from one end to another, before policies.

use std::net::IpAddr;

use netmodel::Family;
use objects::{NodeFacts, PodFacts, PodKey};

use super::cases::{FAMILY, Labels};
use super::ends::End;
use super::{Destination, Evaluator, Holder, Packet, PacketPath, Step, Undetermined, step};
use crate::trace::Exit;

const UNSERVED: &str = "no Service has this address and port: connections are refused";

impl<'a> Evaluator<'a> {
    /// Paths of packets that no load balancer redirects.
    pub(super) fn direct_paths(
        &self,
        sources: &[End<'a>],
        targets: &[End<'a>],
        to: &Destination,
        prior: &[Step],
    ) -> Result<Vec<PacketPath<'a>>, Undetermined> {
        let mut paths = Vec::new();
        for source in sources {
            for target in targets.iter().filter(|target| Family::of(target.address) == Family::of(source.address)) {
                let mut chain = prior.to_vec();
                let has_route = self.route(source, target, &mut chain)?;
                let mut labels = Labels::default();
                labels[FAMILY] = Some(Family::of(target.address).to_string());
                for ports in self.port_ranges(to).iter().copied() {
                    let packet = Packet { from: *source, to: *target, protocol: ports.protocol, port: ports.first };
                    // Packets of a pod to itself do not leave it: no policy applies.
                    let ruled = (source.address != target.address).then_some(packet);
                    let (labels, chain) = (labels.clone(), chain.clone());
                    paths.push(PacketPath { labels, ports, chain, has_route, leaves: ruled, arrives: ruled });
                }
            }
        }
        Ok(paths)
    }

    /// Whether there is a route; the last step of `chain` says which.
    pub(super) fn route(&self, from: &End<'a>, to: &End<'a>, chain: &mut Vec<Step>) -> Result<bool, Undetermined> {
        if from.address == to.address {
            let object = match to.holder {
                Holder::Pod(pod) => format!("Pod {}", pod.key),
                Holder::Node(node) => format!("Node {}", node.name),
                Holder::Outside => to.address.to_string(),
            };
            chain.push(step(object, "status.podIPs", "packets to itself do not leave it"));
            return Ok(true);
        }
        match (from.holder, to.holder) {
            (Holder::Pod(from), Holder::Pod(pod)) => Ok(self.pod_to_pod(from, pod, to.address, chain)),
            (Holder::Pod(from), Holder::Node(node)) => Ok(self.pod_to_node(from, node, to.address, chain)),
            (Holder::Pod(from), Holder::Outside) => Ok(self.pod_to_outside(from, to.address, chain)),
            (Holder::Node(from), Holder::Pod(_)) => {
                let says = format!("the host reaches pods through its management port k8s-{}", from.name);
                chain.push(step(format!("Node {}", from.name), "k8s.ovn.org/node-subnets", says));
                Ok(true)
            }
            (Holder::Outside, Holder::Pod(pod)) => Ok(self.outside_to_pod(pod, to.address, chain)),
            (Holder::Node(_), Holder::Outside) if self.is_unserved(to.address) => {
                chain.push(step(to.address.to_string(), "service-cidrs", UNSERVED));
                Ok(false)
            }
            (Holder::Node(_) | Holder::Outside, Holder::Node(_) | Holder::Outside) => {
                let (from, to) = (name_of(from), name_of(to));
                Err(Undetermined(format!("{from} to {to} does not pass the cluster's network: it cannot be evaluated")))
            }
        }
    }

    fn pod_to_pod(&self, from: &PodFacts, pod: &PodFacts, address: IpAddr, chain: &mut Vec<Step>) -> bool {
        let to = &pod.key;
        let path = self.network.borrow_mut().reach(self.inputs, &from.key, to, Family::of(address));
        let Some(path) = path else {
            let says = format!("no route to {address}");
            chain.push(step(format!("Pod {to}"), "k8s.ovn.org/pod-networks", says));
            return false;
        };
        let node = pod.node.clone().unwrap_or_else(|| "".into());
        let subnet = self.inputs.allocator.node(&node).and_then(|own| own.subnet_of(address));
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
        let inside = self.inputs.settings.cluster_of(Family::of(address)).any(|own| own.contains(address));
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

    /// Whether an address is in a Service network but of no Service: packets to it are rejected on the sender's node.
    fn is_unserved(&self, address: IpAddr) -> bool {
        self.inputs.settings.services.iter().any(|services| services.contains(address))
    }

    fn pod_to_outside(&self, from: &PodFacts, to: IpAddr, chain: &mut Vec<Step>) -> bool {
        let settings = self.inputs.settings;
        let unreachable = if settings.cluster_of(Family::of(to)).any(|own| own.contains(to)) {
            Some(("cluster-subnets", "no pod has this address"))
        } else if self.is_unserved(to) {
            Some(("service-cidrs", UNSERVED))
        } else {
            None
        };
        if let Some((field, says)) = unreachable {
            chain.push(step(to.to_string(), field, says));
            return false;
        }
        self.exit(&from.key, to, chain).is_some()
    }

    /// How a pod's packets to an outside address leave the cluster; the reason is added to `chain`.
    pub(super) fn exit(&self, from: &PodKey, to: IpAddr, chain: &mut Vec<Step>) -> Option<Exit> {
        let node = self.inputs.store.pod(from).and_then(|pod| pod.node.clone()).unwrap_or_else(|| "".into());
        let exit = self.network.borrow_mut().egress(self.inputs, from, to);
        let says = match &exit {
            Some(Exit::Gateway { router, source, next_hops }) => {
                let hops: Vec<String> = next_hops.iter().map(ToString::to_string).collect();
                format!("leaves through {router} with source {source}, next hop {}", hops.join(" or "))
            }
            Some(Exit::Host { port }) => format!("leaves through {port} and the host's routing table"),
            None => "the node has no gateway for it".to_owned(),
        };
        chain.push(step(format!("Node {node}"), "k8s.ovn.org/l3-gateway-config", says));
        exit
    }

    fn outside_to_pod(&self, to: &PodFacts, address: IpAddr, chain: &mut Vec<Step>) -> bool {
        let node = to.node.clone().unwrap_or_else(|| "".into());
        let gateway = self.inputs.store.node(&node).and_then(|node| node.gateway.valid()?.as_ref());
        let has = gateway.is_some_and(|gateway| {
            gateway.addresses.iter().any(|own| Family::of(own.address()) == Family::of(address))
        });
        let says = if has {
            format!("GR_{node} forwards packets to {address} and keeps their source")
        } else {
            "the node has no gateway for incoming packets".to_owned()
        };
        chain.push(step(format!("Node {node}"), "k8s.ovn.org/l3-gateway-config", says));
        has
    }
}

fn name_of(end: &End<'_>) -> String {
    match end.holder {
        Holder::Pod(pod) => format!("Pod {}", pod.key),
        Holder::Node(node) => format!("Node {}", node.name),
        Holder::Outside => end.address.to_string(),
    }
}
