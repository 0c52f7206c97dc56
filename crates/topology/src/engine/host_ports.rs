//! Ports of nodes that lead to pods: whom it concerns when one comes, goes, or is a Service's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::Engine;
use crate::desired::host_addresses;
use crate::identity::{Owner, PodKey};
use crate::objects::PodFacts;
use crate::services::Claim;
use crate::store::{Door, doors};

impl Engine {
    /// A node has other addresses.
    pub(super) fn queue_host_ports_of(&mut self, node: &str, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let asks = |key: &PodKey| self.store.pod(key).is_some_and(|pod| !pod.host_ports().is_empty());
        for key in self.store.pods_on(node).filter(|key| asks(key)) {
            leading.queue.push(Owner::Pod(key.clone()), now);
        }
    }

    /// A pod came, or became another.
    pub(super) fn host_ports_changed(&mut self, before: Option<&PodFacts>, key: &PodKey, now: Duration) {
        let doors = before.into_iter().chain(self.store.pod(key)).flat_map(doors).collect();
        self.queue_rivals(key, &doors, now);
    }

    /// Whoever else asks for what one pod has or had may get it now, or lose it.
    pub(super) fn queue_rivals(&mut self, own: &PodKey, doors: &BTreeSet<Door>, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for rival in doors.iter().flat_map(|door| self.store.who_asks_for(door)).filter(|key| &***key != own) {
            leading.queue.push(Owner::Pod(rival.clone()), now);
        }
    }

    /// What a Service claims or claimed comes before what pods ask for.
    pub(super) fn queue_host_ports_claimed(&mut self, claimed: &BTreeSet<Claim>, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for Claim { address, port, protocol } in claimed {
            for key in self.store.who_asks_anywhere(*port, *protocol) {
                let node = self.store.pod(key).and_then(|pod| pod.node.as_ref()).and_then(|node| self.store.node(node));
                let has = |own: IpAddr| node.is_some_and(|node| host_addresses(node, own.is_ipv6()).contains(&own));
                if address.is_none_or(has) {
                    leading.queue.push(Owner::Pod(key.clone()), now);
                }
            }
        }
    }
}
