//! Allocation for nodes: a subnet of each family, and a node ID.

use netmodel::{AddressPool, Family, Prefix, SubnetClaimError};
use objects::{Annotated, Name, NodeFacts};

use super::{Allocatable, Allocator, NodeAllocation};
use crate::identity::Owner;
use crate::refusal::Refusal;

/// A node's subnets and node ID in the database, for where its annotations lack them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNode {
    /// In no particular order.
    pub subnets: Vec<Prefix>,
    /// None until the node has one.
    pub id: Option<u32>,
}

const BAD_SUBNETS: &str = "NodeSubnetsRefused";
const BAD_ID: &str = "NodeIdRefused";

impl Allocator {
    /// Allocates subnets and a node ID, or says why not. An existing allocation stays, whatever the annotations say later.
    pub fn allocate_node(&mut self, node: &NodeFacts, known: &KnownNode) -> Result<(), Refusal> {
        self.release_former_node(node);
        if let Some(allocation) = self.nodes.get(&node.name) {
            // A subnet that the annotation lacks was added by us: the cluster became dual-stack.
            let has = |wanted: &Prefix| allocation.subnets().any(|subnet| subnet == *wanted);
            let changed = node.subnets.valid().filter(|wanted| !wanted.iter().all(has));
            let Some(wanted) = changed else { return self.check_annotations(node) };
            if allocation.taken() > 0 {
                let subnets: Vec<String> = allocation.subnets().map(|subnet| subnet.to_string()).collect();
                return Err(Refusal::new(
                    BAD_SUBNETS,
                    format!(
                        "annotation k8s.ovn.org/node-subnets was changed to {}, but pods have addresses of {}: drain the \
                         node first, or revert the annotation",
                        list(wanted),
                        subnets.join(", ")
                    ),
                ));
            }
            let had = KnownNode { subnets: allocation.subnets().collect(), id: Some(allocation.id) };
            self.release_node(&node.name);
            return self.assign_node(node, known).inspect_err(|_| self.restore_node(node, &had));
        }
        self.assign_node(node, known)
    }

    /// Restores a node's allocation from its rows, the last valid state, whatever its annotations say by now; annotations
    /// complete it. Nothing new is allocated before all existing allocations are restored.
    pub(crate) fn restore_node(&mut self, node: &NodeFacts, known: &KnownNode) {
        let Some((subnets, id)) = self.recorded(node, known) else { return };
        let mut claimed: Vec<Prefix> = Vec::new();
        for subnet in subnets {
            if self.claim_subnet(&node.name, subnet).is_err() {
                return self.return_subnets(&claimed);
            }
            claimed.push(subnet);
        }
        match self.claim_id(&node.name, id) {
            Ok(()) => self.install_node(node, claimed, id),
            Err(_) => self.return_subnets(&claimed),
        }
    }

    /// A subnet of each family and a node ID, if rows and annotations together have all of them.
    pub(crate) fn recorded(&self, node: &NodeFacts, known: &KnownNode) -> Option<(Vec<Prefix>, u32)> {
        let annotated = node.subnets.valid().map(Vec::as_slice).unwrap_or_default();
        let families = Family::BOTH.into_iter().filter(|family| self.subnets[family.index()].is_some());
        let subnet = |family| known.subnets.iter().chain(annotated).copied().find(|subnet| subnet.family() == family);
        Some((families.map(subnet).collect::<Option<_>>()?, known.id.or(node.id.valid().copied())?))
    }

    fn assign_node(&mut self, node: &NodeFacts, known: &KnownNode) -> Result<(), Refusal> {
        let subnets = self.choose_subnets(node, known)?;
        match self.choose_id(node, known) {
            Ok(id) => self.install_node(node, subnets, id),
            Err(refusal) => {
                self.return_subnets(&subnets);
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn install_node(&mut self, node: &NodeFacts, subnets: Vec<Prefix>, id: u32) {
        for subnet in &subnets {
            self.quarantine.reclaim(Allocatable::Subnet(*subnet));
        }
        let pools = subnets.into_iter().map(|subnet| {
            let mut pool = AddressPool::new(subnet);
            for address in self.quarantine.addresses_in(subnet) {
                pool.quarantine(address);
            }
            pool
        });
        let allocation = NodeAllocation { uid: node.uid.clone(), id, pools: pools.collect() };
        self.nodes.insert(node.name.clone(), allocation);
    }

    /// Releases the allocation of another machine of the same name.
    pub(crate) fn release_former_node(&mut self, node: &NodeFacts) {
        if self.nodes.get(&node.name).is_some_and(|allocation| allocation.uid != node.uid) {
            self.release_node(&node.name);
        }
    }

    /// Releases a node's allocation, and those of its pods.
    pub fn release_node(&mut self, name: &str) {
        let Some((name, allocation)) = self.nodes.remove_entry(name) else { return };
        let owner = Owner::Node(name.clone());
        let pods: Vec<_> = self.pods.iter().filter(|(_, pod)| pod.node == name).map(|(key, _)| key.clone()).collect();
        for key in pods {
            if let Some(pod) = self.pods.remove(&key) {
                self.custom_macs.remove(&(name.clone(), pod.mac));
                for address in pod.addresses() {
                    // The pod's port is removed with the node's switch.
                    self.quarantine.add(Allocatable::Address(address), pod.uid.clone(), name.clone(), &owner);
                }
            }
        }
        for subnet in allocation.subnets() {
            self.subnet_pool(subnet).map(|pool| pool.quarantine(subnet));
            self.quarantine.add(Allocatable::Subnet(subnet), name.clone(), name.clone(), &owner);
        }
        self.quarantine.add(Allocatable::NodeId(allocation.id), name.clone(), name.clone(), &owner);
    }

    fn subnet_pool(&mut self, subnet: Prefix) -> Option<&mut netmodel::SubnetPool> {
        self.subnets[subnet.family().index()].as_mut()
    }

    /// An error if a node's annotations contradict its allocation.
    fn check_annotations(&self, node: &NodeFacts) -> Result<(), Refusal> {
        for (reason, broken) in [(BAD_SUBNETS, node.subnets.broken()), (BAD_ID, node.id.broken())] {
            if let Some(why) = broken {
                return Err(Refusal::new(reason, format!("{why}: correct the annotation, or remove it")));
            }
        }
        let (Some(wanted), Some(allocation)) = (node.id.valid(), self.nodes.get(&node.name)) else { return Ok(()) };
        if *wanted == allocation.id {
            return Ok(());
        }
        Err(Refusal::new(
            BAD_ID,
            format!(
                "annotation k8s.ovn.org/node-id was changed to {wanted}, but the node ID is {}: revert the annotation",
                allocation.id
            ),
        ))
    }

    fn choose_subnets(&mut self, node: &NodeFacts, known: &KnownNode) -> Result<Vec<Prefix>, Refusal> {
        let annotated = match &node.subnets {
            Annotated::Valid(subnets) => Some(subnets),
            Annotated::Broken(why) => {
                return Err(Refusal::new(BAD_SUBNETS, format!("{why}: correct the annotation, or remove it")));
            }
            Annotated::Absent => None,
        };
        let mut chosen: Vec<Prefix> = Vec::new();
        for subnet in annotated.into_iter().flatten() {
            let claimed = if chosen.iter().any(|other| other.family() == subnet.family()) {
                Err("it is a second subnet of one address family".to_owned())
            } else {
                self.claim_subnet(&node.name, *subnet)
            };
            if let Err(why) = claimed {
                self.return_subnets(&chosen);
                return Err(Refusal::new(
                    BAD_SUBNETS,
                    format!(
                        "annotation k8s.ovn.org/node-subnets: {subnet}: {why}: if the setting cluster-subnets was changed, set \
                         it back; otherwise correct the annotation, or remove it, which allocates another subnet and requires \
                         that its pods are recreated"
                    ),
                ));
            }
            chosen.push(*subnet);
        }
        for family in Family::BOTH {
            if self.subnets[family.index()].is_none() || chosen.iter().any(|subnet| subnet.family() == family) {
                continue;
            }
            let was = known.subnets.iter().copied().find(|subnet| subnet.family() == family);
            let known = was.filter(|subnet| self.claim_subnet(&node.name, *subnet).is_ok());
            let subnet = known.or_else(|| self.quarantined_subnet(&node.name, family));
            let subnet = subnet.or_else(|| self.subnets[family.index()].as_mut()?.allocate());
            let Some(subnet) = subnet else {
                self.return_subnets(&chosen);
                return Err(Refusal::new(
                    "NodeSubnetsExhausted",
                    format!("no {family} subnet is left in cluster-subnets: add a network there, or remove nodes"),
                ));
            };
            chosen.push(subnet);
        }
        chosen.sort_by_key(|subnet| subnet.family());
        Ok(chosen)
    }

    /// Returns subnets that were claimed for a node that cannot get the rest: free or quarantined, as before.
    fn return_subnets(&mut self, subnets: &[Prefix]) {
        for subnet in subnets.iter().copied() {
            let quarantined = self.quarantine.get(Allocatable::Subnet(subnet)).is_some();
            if let Some(pool) = self.subnet_pool(subnet) {
                let _ = if quarantined { pool.quarantine(subnet) } else { pool.release(subnet) };
            }
        }
    }

    /// Claims a subnet; a quarantined one can be reclaimed by the node that had it.
    fn claim_subnet(&mut self, node: &str, subnet: Prefix) -> Result<(), String> {
        if subnet.size() < 4 {
            return Err("it is too small for the addresses of the node's router and of its host".to_owned());
        }
        let entry = self.quarantine.get(Allocatable::Subnet(subnet)).map(|entry| &*entry.owner == node);
        let pool = self.subnets[subnet.family().index()].as_mut();
        let pool = pool.ok_or_else(|| "cluster-subnets has no network of that address family".to_owned())?;
        if entry == Some(true) && pool.reclaim(subnet) {
            return Ok(());
        }
        pool.claim(subnet).map_err(|error| match error {
            SubnetClaimError::Overlaps { with, .. } => {
                let holder = self.nodes.iter().find(|(_, other)| other.subnets().any(|subnet| subnet == with));
                match holder {
                    Some((name, _)) => format!("it overlaps {with} of node {name}"),
                    None => format!("it overlaps {with}, which is in use"),
                }
            }
            other => other.to_string(),
        })
    }

    /// Reclaims the quarantined subnet of a node of the same name: its pods may still exist.
    fn quarantined_subnet(&mut self, node: &str, family: Family) -> Option<Prefix> {
        let subnet = self.quarantine.subnet_of(node, family)?;
        self.claim_subnet(node, subnet).ok()?;
        Some(subnet)
    }

    fn choose_id(&mut self, node: &NodeFacts, known: &KnownNode) -> Result<u32, Refusal> {
        if let Annotated::Broken(why) = &node.id {
            return Err(Refusal::new(BAD_ID, format!("{why}: correct the annotation, or remove it")));
        }
        if let Some(wanted) = node.id.valid() {
            return self.claim_id(&node.name, *wanted).map(|()| *wanted).map_err(|why| {
                let message =
                    format!("annotation k8s.ovn.org/node-id: {why}: remove it, and another node ID is allocated");
                Refusal::new(BAD_ID, message)
            });
        }
        let was = known.id.filter(|id| self.claim_id(&node.name, *id).is_ok());
        was.or_else(|| self.ids.allocate()).ok_or_else(|| {
            Refusal::new(
                "NodeIdsExhausted",
                "no node ID is free: v4-join-subnet or v6-join-subnet is too small for the number of nodes: remove nodes, or use a larger join network",
            )
        })
    }

    fn claim_id(&mut self, node: &Name, id: u32) -> Result<(), String> {
        if self.quarantine.get(Allocatable::NodeId(id)).is_some_and(|entry| entry.owner == *node) {
            self.quarantine.reclaim(Allocatable::NodeId(id));
            return Ok(());
        }
        self.ids.claim(id).map_err(|error| {
            let holder = self.nodes.iter().find(|(_, other)| other.id == id);
            holder.map_or_else(|| error.to_string(), |(name, _)| format!("{id} is the node ID of node {name}"))
        })
    }
}

fn list(subnets: &[Prefix]) -> String {
    let texts: Vec<String> = subnets.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
