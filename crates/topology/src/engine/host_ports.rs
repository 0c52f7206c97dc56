//! Host ports: which pods to requeue when one is claimed, released, or taken by a Service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use netmodel::Family;
use objects::{PodFacts, PodKey};

use super::Engine;
use crate::desired::host_addresses;
use crate::identity::Owner;
use crate::services::Claim;
use crate::store::{HostPortKey, host_port_keys};

impl Engine {
    /// The addresses of a node changed.
    pub(super) fn queue_host_ports_of(&mut self, node: &str, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        let has_host_ports = |key: &PodKey| self.store.pod(key).is_some_and(|pod| !pod.host_ports().is_empty());
        for key in self.store.pods_on(node).filter(|key| has_host_ports(key)) {
            leading.queue.push(Owner::Pod(key.clone()), now);
        }
    }

    /// A pod was added or changed.
    pub(super) fn host_ports_changed(&mut self, before: Option<&PodFacts>, key: &PodKey, now: Duration) {
        let host_port_keys = before.into_iter().chain(self.store.pod(key)).flat_map(host_port_keys).collect();
        self.queue_other_claimants(key, &host_port_keys, now);
    }

    /// Requeues the other pods that claim these host ports: they may get or lose them.
    pub(super) fn queue_other_claimants(
        &mut self,
        own: &PodKey,
        host_port_keys: &BTreeSet<HostPortKey>,
        now: Duration,
    ) {
        let Some(leading) = &mut self.leading else { return };
        for rival in host_port_keys
            .iter()
            .flat_map(|host_port| self.store.host_port_claimants(host_port))
            .filter(|key| &***key != own)
        {
            leading.queue.push(Owner::Pod(rival.clone()), now);
        }
    }

    /// Requeues pods with host ports that a Service claims or released: Services take precedence.
    pub(super) fn queue_host_ports_claimed(&mut self, claimed: &BTreeSet<Claim>, now: Duration) {
        let Some(leading) = &mut self.leading else { return };
        for Claim { address, port, protocol } in claimed {
            for key in self.store.host_port_claimants_on_any_node(*port, *protocol) {
                let node = self.store.pod(key).and_then(|pod| pod.node.as_ref()).and_then(|node| self.store.node(node));
                let has = |own: IpAddr| node.is_some_and(|node| host_addresses(node, Family::of(own)).contains(&own));
                if address.is_none_or(has) {
                    leading.queue.push(Owner::Pod(key.clone()), now);
                }
            }
        }
    }
}
