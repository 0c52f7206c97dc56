//! What a pod gets: an address of each of its node's subnets, and a MAC.

use std::net::IpAddr;

use netmodel::{ClaimError, Mac};

use super::{Allocator, NodeAllocation, PodAllocation, Thing};
use crate::identity::{Name, Owner, PodKey};
use crate::objects::{Annotated, NETWORK_ALLOCATED, PodFacts};
use crate::refusal::{InTheWay, Refusal, in_the_way};

/// What the database says that a pod has, where its annotation does not say it: we crashed in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPort {
    /// Its MAC.
    pub mac: Mac,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl KnownPort {
    /// Reads what stands in a port's `addresses`: a MAC, then addresses.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let mac = words.next()?.parse().ok()?;
        let addresses: Option<Vec<IpAddr>> = words.map(|word| word.parse().ok()).collect();
        addresses.filter(|addresses| !addresses.is_empty()).map(|addresses| Self { mac, addresses })
    }
}

/// How a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    /// It shall have no port.
    NoPort,
    /// It has what it needs.
    Settled,
    /// Its node has nothing to give yet, or what it is to have rests.
    Waiting,
}

const BAD_NETWORK: &str = "PodNetworkRefused";
const BAD_REQUEST: &str = "StaticAddressRefused";

/// Why an address could not be claimed.
enum Trouble {
    /// It will be free.
    Resting,
    /// It cannot be had.
    No(Why),
}

/// Why it cannot be had.
#[derive(Debug, PartialEq, Eq)]
struct Why {
    text: String,
    /// What only administrators may read.
    detail: Option<String>,
}

impl Trouble {
    fn no(text: String) -> Self {
        Self::No(Why { text, detail: None })
    }

    /// Another pod has it.
    fn taken(what: &str, holder: &PodKey, pod: &PodFacts) -> Self {
        let InTheWay { shown, detail } = in_the_way("pod", &holder.namespace, holder, &pod.key.namespace);
        Self::No(Why { text: format!("{what} {shown}"), detail })
    }
}

impl Allocator {
    /// Gives a pod what it needs. What it has stays: a refusal may come with a pod that keeps what it has.
    pub(crate) fn settle_pod(&mut self, pod: &PodFacts, known: Option<&KnownPort>) -> Result<PodState, Refusal> {
        let Some(node) = pod.wants_port() else {
            self.release_pod(&pod.key);
            return Ok(PodState::NoPort);
        };
        if self.pods.get(&pod.key).is_some_and(|own| own.uid != pod.uid || own.node != *node) {
            self.release_pod(&pod.key);
        }
        if let Some(own) = self.pods.get(&pod.key) {
            return agree(own, pod).map(|()| PodState::Settled);
        }
        if !self.nodes.contains_key(node) {
            return Ok(PodState::Waiting);
        }
        // What its port has is the last good state: it wins over whatever was written on the pod since.
        if let Some(known) = known
            && self.give(pod, node, &known.addresses, Some(known.mac), false) == Ok(PodState::Settled)
            && let Some(own) = self.pods.get(&pod.key)
        {
            return agree(own, pod).map(|()| PodState::Settled);
        }
        if let Some(network) = &pod.network {
            let addresses: Vec<IpAddr> = network.addresses.iter().map(|address| address.address()).collect();
            return self.give(pod, node, &addresses, Some(network.mac), false).map_err(|Why { text, detail }| {
                let message =
                    format!("status condition {NETWORK_ALLOCATED}: {text}: delete the pod to get new addresses");
                Refusal::new(BAD_NETWORK, message).with_detail(detail)
            });
        }
        match pod.request() {
            Annotated::Broken(why) => {
                Err(Refusal::new(BAD_REQUEST, format!("{why}: correct it and make the pod again")))
            }
            Annotated::Absent => {
                self.give(pod, node, &[], None, true).map_err(|why| Refusal::new("PodAddressesExhausted", why.text))
            }
            Annotated::Valid(request) => {
                self.give(pod, node, &request.addresses, request.mac, true).map_err(|Why { text, detail }| {
                    let annotation = "annotation v1.multus-cni.io/default-network";
                    let message = format!("{annotation}: {text}: ask for another one, or for none");
                    Refusal::new(BAD_REQUEST, message).with_detail(detail)
                })
            }
        }
    }

    /// Takes a pod's addresses back; they rest until its port is off the nodes.
    pub fn release_pod(&mut self, key: &PodKey) {
        let Some((key, own)) = self.pods.remove_entry(key) else { return };
        self.odd_macs.remove(&(own.node.clone(), own.mac));
        let owner = Owner::Pod(key);
        for address in own.addresses() {
            self.rest_address(address, &own, &owner);
        }
    }

    fn rest_address(&mut self, address: IpAddr, own: &PodAllocation, owner: &Owner) {
        for pool in self.nodes.get_mut(&own.node).into_iter().flat_map(|node| &mut node.pools) {
            pool.quarantine(address);
        }
        self.quarantine.rest(Thing::Address(address), own.uid.clone(), own.node.clone(), owner);
    }

    /// Claims these addresses, and free ones of the other subnets if `fill`. All or nothing.
    fn give(
        &mut self,
        pod: &PodFacts,
        node: &Name,
        wanted: &[IpAddr],
        mac: Option<Mac>,
        fill: bool,
    ) -> Result<PodState, Why> {
        let mut given: [Option<IpAddr>; 2] = [None, None];
        let mut trouble = None;
        for address in wanted {
            let place = usize::from(address.is_ipv6());
            if given[place].is_some() {
                trouble = Some(Trouble::no(format!("{address} is a second address of one family")));
            } else if let Err(why) = self.claim_address(pod, node, *address) {
                trouble = Some(why);
            } else {
                given[place] = Some(*address);
                continue;
            }
            break;
        }
        if fill && trouble.is_none() {
            for pool in self.nodes.get_mut(node).into_iter().flat_map(|node| &mut node.pools) {
                let place = usize::from(pool.subnet().is_ipv6());
                if given[place].is_none() {
                    // What it had before, on a node that was away for a while, is its own.
                    let had = self.quarantine.address_of(&pod.uid, pool.subnet());
                    let had = had.filter(|address| pool.reclaim(*address));
                    given[place] = had.or_else(|| pool.allocate());
                    if given[place].is_none() {
                        let subnet = pool.subnet();
                        let why = format!(
                            "no address is left in {subnet} of node {node}: delete pods there, or use other nodes"
                        );
                        trouble = Some(Trouble::no(why));
                        break;
                    }
                }
            }
        }
        let addresses: Vec<IpAddr> = given.iter().copied().flatten().collect();
        let mac = mac.or_else(|| Mac::for_addresses(&addresses));
        if trouble.is_none() {
            match mac {
                None => trouble = Some(Trouble::no(format!("node {node} has no subnet to give an address of"))),
                Some(mac) => {
                    if let Err(why) = self.claim_mac(pod, node, mac, &addresses) {
                        trouble = Some(why);
                    }
                }
            }
        }
        let (None, Some(mac)) = (&trouble, mac) else {
            for pool in self.nodes.get_mut(node).into_iter().flat_map(|node| &mut node.pools) {
                for address in addresses.iter().copied() {
                    // Free again, or at rest as before.
                    let rests = self.quarantine.get(Thing::Address(address)).is_some();
                    let _ = if rests { pool.quarantine(address) } else { pool.release(address) };
                }
            }
            return match trouble {
                Some(Trouble::No(why)) => Err(why),
                _ => Ok(PodState::Waiting),
            };
        };
        for address in addresses {
            self.quarantine.take_back(Thing::Address(address));
        }
        let own = PodAllocation { uid: pod.uid.clone(), node: node.clone(), mac, addresses: given };
        self.pods.insert(pod.key.clone(), own);
        Ok(PodState::Settled)
    }

    fn claim_address(&mut self, pod: &PodFacts, node: &Name, address: IpAddr) -> Result<(), Trouble> {
        let thing = Thing::Address(address);
        let own_rest = self.quarantine.get(thing).is_some_and(|resting| resting.owner == pod.uid);
        let pools = self.nodes.get_mut(node).into_iter().flat_map(|node| &mut node.pools);
        let Some(pool) = pools.into_iter().find(|pool| pool.subnet().contains(address)) else {
            let subnets: Vec<String> = self
                .nodes
                .get(node)
                .map(|node| node.subnets().map(|subnet| subnet.to_string()).collect())
                .unwrap_or_default();
            return Err(Trouble::no(format!("{address} is not in {} of node {node}", subnets.join(", "))));
        };
        if own_rest && pool.reclaim(address) {
            return Ok(());
        }
        pool.claim(address).map_err(|error| match error {
            ClaimError::Quarantined { .. } => Trouble::Resting,
            ClaimError::Taken { .. } => {
                let holder = self.pods.iter().find(|(_, own)| own.addresses().any(|other| other == address));
                match holder {
                    Some((key, _)) => Trouble::taken(&format!("{address} is the address of"), key, pod),
                    None => Trouble::no(error.to_string()),
                }
            }
            other => Trouble::no(other.to_string()),
        })
    }

    fn claim_mac(&mut self, pod: &PodFacts, node: &Name, mac: Mac, addresses: &[IpAddr]) -> Result<(), Trouble> {
        if Mac::for_addresses(addresses) == Some(mac) {
            return Ok(());
        }
        if !mac.is_usable() {
            return Err(Trouble::no(format!("{mac} is no interface's MAC: it is empty, or stands for a group")));
        }
        // The MACs of a network of IPv6 alone are sums of addresses: whose this is cannot be told.
        let mut known = self.nodes.get(node).into_iter().flat_map(NodeAllocation::subnets);
        if mac.is_computed() && known.all(netmodel::Prefix::is_ipv6) {
            let why =
                format!("{mac} begins as MACs that go with addresses do, and may be another's: use another prefix");
            return Err(Trouble::no(why));
        }
        // Somebody has, or may get, the address that this MAC is computed from.
        let subnets = self.nodes.get(node).into_iter().flat_map(NodeAllocation::subnets);
        let [_, _, a, b, c, d] = mac.bytes();
        let address = IpAddr::from([a, b, c, d]);
        if mac == Mac::for_address(address) && subnets.into_iter().any(|subnet| subnet.contains(address)) {
            return Err(Trouble::no(format!("{mac} goes with {address}, which is another's")));
        }
        let place = (node.clone(), mac);
        if let Some(holder) = self.odd_macs.get(&place).filter(|holder| **holder != pod.key) {
            return Err(Trouble::taken(&format!("{mac} is the MAC of"), holder, pod));
        }
        self.odd_macs.insert(place, pod.key.clone());
        Ok(())
    }
}

/// Whether what is recorded for a pod is what it has. An annotation that is not recorded has no say: it is written anew.
fn agree(own: &PodAllocation, pod: &PodFacts) -> Result<(), Refusal> {
    let Some(network) = pod.network.as_ref().filter(|network| !own.is(network)) else { return Ok(()) };
    let list = |addresses: Vec<String>| addresses.join(", ");
    Err(Refusal::new(
        BAD_NETWORK,
        format!(
            "status condition {NETWORK_ALLOCATED} records {} ({}), but the pod's port has {} ({}): delete the pod to get \
             new addresses",
            list(network.addresses.iter().map(|address| address.address().to_string()).collect()),
            network.mac,
            list(own.addresses().map(|address| address.to_string()).collect()),
            own.mac
        ),
    ))
}
