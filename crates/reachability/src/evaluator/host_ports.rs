//! Host ports: packets to a port of a node that leads to a pod. Policies of the pod see the client's address.

use std::net::{IpAddr, SocketAddr};

use netmodel::Family;
use objects::{NodeFacts, PodFacts};
use topology::desired::{host_addresses, host_port_target};
use topology::store::HostPortKey;

use super::cases::{ADDRESS, FAMILY, Labels, PortRange, TARGET};
use super::ends::{End, management_address};
use super::{Destination, Evaluator, Holder, Packet, PacketPath, Party, Step, is_single, step};
use crate::trace::Exit;

const FIELD: &str = "spec.containers.ports.hostPort";

/// A host port and the pod that it leads to.
#[derive(Clone, Copy)]
struct HostPortTarget<'a> {
    node: &'a NodeFacts,
    own: SocketAddr,
    pod: &'a PodFacts,
    target: SocketAddr,
}

impl<'a> Evaluator<'a> {
    /// Paths of packets to host ports; None if the destination is not a host port.
    pub(super) fn to_host_port(
        &self,
        sources: &[End<'a>],
        to: &Destination,
        prior: &[Step],
    ) -> Option<Vec<PacketPath<'a>>> {
        let host_port: Vec<HostPortTarget<'a>> =
            self.node_addresses(to).into_iter().filter_map(|address| self.host_port_at(address, to)).collect();
        if host_port.is_empty() {
            return None;
        }
        let mut paths = Vec::new();
        for host_port in host_port {
            for source in sources.iter().filter(|source| Family::of(source.address) == Family::of(host_port.own.ip())) {
                paths.push(self.path_to_host_port(source, host_port, to, prior));
            }
        }
        Some(paths)
    }

    /// The addresses of the destination that a node may have.
    fn node_addresses(&self, to: &Destination) -> Vec<IpAddr> {
        match &to.party {
            Party::Network(prefix) if is_single(*prefix) => vec![prefix.network()],
            Party::Node(name) => {
                let node = self.inputs.store.node(name);
                let families = self.inputs.settings.families();
                families.filter_map(|family| host_addresses(node?, family).first().copied()).collect()
            }
            Party::Pod(_) | Party::Service(_) | Party::Network(_) => Vec::new(),
        }
    }

    fn host_port_at(&self, address: IpAddr, to: &Destination) -> Option<HostPortTarget<'a>> {
        let Holder::Node(node) = self.addresses.end(address).holder else { return None };
        let own = SocketAddr::new(address, to.port?);
        let host_port = HostPortKey { port: own.port(), protocol: to.protocol, node: node.name.clone() };
        self.inputs.store.host_port_claimants(&host_port).find_map(|key| {
            let pod = self.inputs.store.pod(key)?;
            let target = host_port_target(key, own, to.protocol, self.inputs)?;
            Some(HostPortTarget { node, own, pod, target })
        })
    }

    fn path_to_host_port(
        &self,
        source: &End<'a>,
        host_port: HostPortTarget<'a>,
        to: &Destination,
        prior: &[Step],
    ) -> PacketPath<'a> {
        let HostPortTarget { node, own, pod, target } = host_port;
        let mut labels = Labels::default();
        labels[FAMILY] = Some(Family::of(own.ip()).to_string());
        labels[ADDRESS] = Some(format!("by {own}"));
        labels[TARGET] = Some(format!("Pod {}", pod.key));
        let mut chain = prior.to_vec();
        let says = format!("{own}/{} of node {} leads to {target}", to.protocol.ovn_name(), node.name);
        chain.push(step(format!("Pod {}", pod.key), FIELD, says));
        let ports = PortRange::single(to.protocol, own.port());
        let end = End { holder: Holder::Pod(pod), address: target.ip() };
        let packet = |from| Packet { from, to: end, protocol: to.protocol, port: target.port() };
        let outside = |address| End { holder: Holder::Outside, address };
        let first = |node: &NodeFacts| host_addresses(node, Family::of(own.ip())).first().copied();
        let (mut has_route, mut leaves) = (true, None);
        let from = match source.holder {
            // Load-balanced by the switch of the node.
            Holder::Pod(client) if client.node == pod.node => {
                has_route = self.route(source, &end, &mut chain).unwrap_or(false);
                let ruled = (source.address != end.address).then(|| packet(*source));
                return PacketPath { labels, ports, chain, has_route, leaves: ruled, arrives: ruled };
            }
            Holder::Pod(client) => {
                let host = End { holder: Holder::Node(node), address: own.ip() };
                leaves = Some(Packet { from: *source, to: host, protocol: to.protocol, port: own.port() });
                let exit = self.exit(&client.key, own.ip(), &mut chain);
                has_route = exit.is_some();
                match exit {
                    Some(Exit::Gateway { source, .. }) => outside(source),
                    _ => {
                        let host = client.node.as_ref().and_then(|node| self.inputs.store.node(node)).and_then(first);
                        outside(host.unwrap_or(source.address))
                    }
                }
            }
            Holder::Node(host) if host.name == node.name => {
                let address = management_address(&node.name, Family::of(own.ip()), self.inputs);
                End { holder: source.holder, address: address.unwrap_or(source.address) }
            }
            Holder::Node(host) => outside(first(host).unwrap_or(source.address)),
            Holder::Outside => *source,
        };
        PacketPath { labels, ports, chain, has_route, leaves, arrives: Some(packet(from)) }
    }
}
