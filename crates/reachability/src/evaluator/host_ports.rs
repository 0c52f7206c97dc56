//! host ports: what is sent to a port of a node that leads to a pod goes to that pod; its rules see who sent it.

use std::net::{IpAddr, SocketAddr};

use objects::{NodeFacts, PodFacts};
use topology::desired::{host_addresses, host_port_target};
use topology::store::HostPortKey;

use super::cases::{ADDRESS, Door, FAMILY, Labels, TARGET};
use super::ends::{End, Place, management_address};
use super::{Destination, Flight, Judge, Packet, Party, Step, Who, family, is_single, step};
use crate::trace::Exit;

const FIELD: &str = "spec.containers.ports.hostPort";

/// A port of a node, and what it leads to.
#[derive(Clone, Copy)]
struct Led<'a> {
    node: &'a NodeFacts,
    own: SocketAddr,
    pod: &'a PodFacts,
    target: SocketAddr,
}

impl<'a> Judge<'a> {
    /// The packets to ports of a node that lead to pods; none if it is not such a port that is asked for.
    pub(super) fn to_host_port(
        &self,
        sources: &[Place<'a>],
        to: &Destination,
        told: &[Step],
    ) -> Option<Vec<Flight<'a>>> {
        let led: Vec<Led<'a>> = self.addressed(to).into_iter().filter_map(|address| self.led(address, to)).collect();
        if led.is_empty() {
            return None;
        }
        let mut flights = Vec::new();
        for led in led {
            for source in sources.iter().filter(|source| source.end.address.is_ipv6() == led.own.is_ipv6()) {
                flights.push(self.to_led(source, led, to, told));
            }
        }
        Some(flights)
    }

    /// The addresses of a node that are asked for.
    fn addressed(&self, to: &Destination) -> Vec<IpAddr> {
        match &to.party {
            Party::Network(prefix) if is_single(*prefix) => vec![prefix.network()],
            Party::Node(name) => {
                let node = self.given.store.node(name);
                let families = self.given.settings.families();
                families.filter_map(|v6| host_addresses(node?, v6).first().copied()).collect()
            }
            Party::Pod(_) | Party::Service(_) | Party::Network(_) => Vec::new(),
        }
    }

    fn led(&self, address: IpAddr, to: &Destination) -> Option<Led<'a>> {
        let Who::Node(node) = self.holders.end(address).who else { return None };
        let own = SocketAddr::new(address, to.port?);
        let host_port = HostPortKey { port: own.port(), protocol: to.protocol, node: node.name.clone() };
        self.given.store.host_port_claimants(&host_port).find_map(|key| {
            let pod = self.given.store.pod(key)?;
            let target = host_port_target(key, own, to.protocol, self.given)?;
            Some(Led { node, own, pod, target })
        })
    }

    fn to_led(&self, source: &Place<'a>, led: Led<'a>, to: &Destination, told: &[Step]) -> Flight<'a> {
        let Led { node, own, pod, target } = led;
        let mut labels = Labels::default();
        labels[FAMILY] = Some(family(own.is_ipv6()));
        labels[ADDRESS] = Some(format!("by {own}"));
        labels[TARGET] = Some(format!("Pod {}", pod.key));
        let mut chain = told.to_vec();
        let says = format!("{own}/{} of node {} leads to {target}", to.protocol.word(), node.name);
        chain.push(step(format!("Pod {}", pod.key), FIELD, says));
        let door = Door::single(to.protocol, own.port());
        let end = End { who: Who::Pod(pod), address: target.ip() };
        let packet = |from| Packet { from, to: end, protocol: to.protocol, port: target.port() };
        let outside = |address| End { who: Who::Outside, address };
        let first = |node: &NodeFacts| host_addresses(node, own.is_ipv6()).first().copied();
        let (mut way, mut leaves) = (true, None);
        let from = match source.end.who {
            // Its own switch leads it there.
            Who::Pod(client) if client.node == pod.node => {
                way = self.way(&source.end, &end, &mut chain).unwrap_or(false);
                let ruled = (source.end.address != end.address).then(|| packet(source.end));
                return Flight { labels, door, chain, way, leaves: ruled, arrives: ruled };
            }
            Who::Pod(client) => {
                let host = End { who: Who::Node(node), address: own.ip() };
                leaves = Some(Packet { from: source.end, to: host, protocol: to.protocol, port: own.port() });
                let exit = self.exit(&client.key, own.ip(), &mut chain);
                way = exit.is_some();
                match exit {
                    Some(Exit::Gateway { source, .. }) => outside(source),
                    _ => {
                        let host = client.node.as_ref().and_then(|node| self.given.store.node(node)).and_then(first);
                        outside(host.unwrap_or(source.end.address))
                    }
                }
            }
            Who::Node(host) if host.name == node.name => {
                let address = management_address(&node.name, own.is_ipv6(), self.given);
                End { who: source.end.who, address: address.unwrap_or(source.end.address) }
            }
            Who::Node(host) => outside(first(host).unwrap_or(source.end.address)),
            Who::Outside => source.end,
        };
        Flight { labels, door, chain, way, leaves, arrives: Some(packet(from)) }
    }
}
