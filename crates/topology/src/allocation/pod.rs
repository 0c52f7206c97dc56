//! Allocation for pods: an address of each of its node's subnets, and a MAC.

use std::net::IpAddr;

use netmodel::{ClaimError, Family, Mac};
use objects::{Annotated, NETWORK_ALLOCATED, Name, PodFacts, PodKey};

use super::{Allocatable, Allocator, NodeAllocation, PodAllocation};
use crate::identity::Owner;
use crate::refusal::{Conflict, Refusal, describe_conflict};

/// MAC and addresses of a pod's port in the database, for where it has no record: after a crash in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPort {
    /// The first word of the port's `addresses`.
    pub mac: Mac,
    /// The other words; never empty.
    pub addresses: Vec<IpAddr>,
}

impl KnownPort {
    /// Parses a port's `addresses`: a MAC, then addresses.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let mac = words.next()?.parse().ok()?;
        let addresses: Option<Vec<IpAddr>> = words.map(|word| word.parse().ok()).collect();
        addresses.filter(|addresses| !addresses.is_empty()).map(|addresses| Self { mac, addresses })
    }
}

/// Result of an allocation for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    /// It needs no port, see [`PodFacts::wants_port`].
    NoPort,
    /// It has addresses and a MAC.
    Allocated,
    /// Its node has no subnet yet, or its requested address is quarantined.
    Waiting,
}

const BAD_NETWORK: &str = "PodNetworkRefused";
const BAD_REQUEST: &str = "StaticAddressRefused";

/// Why an address could not be claimed.
enum ClaimFailure {
    /// It is quarantined, and will be free later.
    Quarantined,
    /// It cannot be allocated.
    Refused(Reason),
}

/// Why an address or MAC cannot be allocated.
#[derive(Debug, PartialEq, Eq)]
struct Reason {
    text: String,
    /// For the log only: names objects of other namespaces.
    detail: Option<String>,
}

impl ClaimFailure {
    fn refused(text: String) -> Self {
        Self::Refused(Reason { text, detail: None })
    }

    /// Another pod has it; its name is only shown within its namespace.
    fn taken(what: &str, holder: &PodKey, pod: &PodFacts) -> Self {
        let Conflict { shown, detail } = describe_conflict("pod", &holder.namespace, holder, &pod.key.namespace);
        Self::Refused(Reason { text: format!("{what} {shown}"), detail })
    }
}

impl Allocator {
    /// Allocates addresses and a MAC. An existing allocation stays, also if the call is refused.
    pub(crate) fn allocate_pod(&mut self, pod: &PodFacts, known: Option<&KnownPort>) -> Result<PodState, Refusal> {
        let Some(node) = pod.wants_port() else {
            self.release_pod(&pod.key);
            return Ok(PodState::NoPort);
        };
        if self.pods.get(&pod.key).is_some_and(|own| own.uid != pod.uid || own.node != *node) {
            self.release_pod(&pod.key);
        }
        if let Some(own) = self.pods.get(&pod.key) {
            return check_record(own, pod).map(|()| PodState::Allocated);
        }
        if !self.nodes.contains_key(node) {
            return Ok(PodState::Waiting);
        }
        // Its port is the last valid state and takes precedence over records.
        if let Some(known) = known
            && self.assign(pod, node, &known.addresses, Some(known.mac), false) == Ok(PodState::Allocated)
            && let Some(own) = self.pods.get(&pod.key)
        {
            return check_record(own, pod).map(|()| PodState::Allocated);
        }
        if let Some(network) = &pod.network {
            let addresses: Vec<IpAddr> = network.addresses.iter().map(|address| address.address()).collect();
            return self.assign(pod, node, &addresses, Some(network.mac), false).map_err(|Reason { text, detail }| {
                let message =
                    format!("status condition {NETWORK_ALLOCATED}: {text}: delete the pod to get new addresses");
                Refusal::new(BAD_NETWORK, message).with_detail(detail)
            });
        }
        match pod.request() {
            Annotated::Broken(why) => Err(Refusal::new(BAD_REQUEST, format!("{why}: correct it and recreate the pod"))),
            Annotated::Absent => {
                self.assign(pod, node, &[], None, true).map_err(|why| Refusal::new("PodAddressesExhausted", why.text))
            }
            Annotated::Valid(request) => {
                self.assign(pod, node, &request.addresses, request.mac, true).map_err(|Reason { text, detail }| {
                    let annotation = "annotation v1.multus-cni.io/default-network";
                    let message = format!("{annotation}: {text}: request another one, or none");
                    Refusal::new(BAD_REQUEST, message).with_detail(detail)
                })
            }
        }
    }

    /// Releases a pod's addresses; they are quarantined until all nodes acknowledge the removal of its port.
    pub fn release_pod(&mut self, key: &PodKey) {
        let Some((key, own)) = self.pods.remove_entry(key) else { return };
        self.custom_macs.remove(&(own.node.clone(), own.mac));
        let owner = Owner::Pod(key);
        for address in own.addresses() {
            self.quarantine_address(address, &own, &owner);
        }
    }

    fn quarantine_address(&mut self, address: IpAddr, own: &PodAllocation, owner: &Owner) {
        for pool in self.nodes.get_mut(&own.node).into_iter().flat_map(|node| &mut node.pools) {
            pool.quarantine(address);
        }
        self.quarantine.add(Allocatable::Address(address), own.uid.clone(), own.node.clone(), owner);
    }

    /// Claims these addresses, and with `choose_rest` free ones of the other subnets. All or nothing.
    fn assign(
        &mut self,
        pod: &PodFacts,
        node: &Name,
        wanted: &[IpAddr],
        mac: Option<Mac>,
        choose_rest: bool,
    ) -> Result<PodState, Reason> {
        let mut assigned: [Option<IpAddr>; 2] = [None, None];
        let mut failure = None;
        for address in wanted {
            let family = Family::of(*address).index();
            if assigned[family].is_some() {
                failure = Some(ClaimFailure::refused(format!("{address} is a second address of one family")));
            } else if let Err(why) = self.claim_address(pod, node, *address) {
                failure = Some(why);
            } else {
                assigned[family] = Some(*address);
                continue;
            }
            break;
        }
        if choose_rest && failure.is_none() {
            for pool in self.nodes.get_mut(node).into_iter().flat_map(|node| &mut node.pools) {
                let family = pool.subnet().family().index();
                if assigned[family].is_none() {
                    // An address that it had before, on a node that was away, is its own.
                    let had = self.quarantine.address_of(&pod.uid, pool.subnet());
                    let had = had.filter(|address| pool.reclaim(*address));
                    assigned[family] = had.or_else(|| pool.allocate());
                    if assigned[family].is_none() {
                        let subnet = pool.subnet();
                        let why = format!(
                            "no address is left in {subnet} of node {node}: delete pods there, or use other nodes"
                        );
                        failure = Some(ClaimFailure::refused(why));
                        break;
                    }
                }
            }
        }
        let addresses: Vec<IpAddr> = assigned.iter().copied().flatten().collect();
        let mac = mac.or_else(|| Mac::for_addresses(&addresses));
        if failure.is_none() {
            match mac {
                None => failure = Some(ClaimFailure::refused(format!("node {node} has no subnet to allocate from"))),
                Some(mac) => {
                    if let Err(why) = self.claim_mac(pod, node, mac, &addresses) {
                        failure = Some(why);
                    }
                }
            }
        }
        let (None, Some(mac)) = (&failure, mac) else {
            for pool in self.nodes.get_mut(node).into_iter().flat_map(|node| &mut node.pools) {
                for address in addresses.iter().copied() {
                    // Free or quarantined, as before.
                    let quarantined = self.quarantine.get(Allocatable::Address(address)).is_some();
                    let _ = if quarantined { pool.quarantine(address) } else { pool.release(address) };
                }
            }
            return match failure {
                Some(ClaimFailure::Refused(why)) => Err(why),
                _ => Ok(PodState::Waiting),
            };
        };
        for address in addresses {
            self.quarantine.reclaim(Allocatable::Address(address));
        }
        let own = PodAllocation { uid: pod.uid.clone(), node: node.clone(), mac, addresses: assigned };
        self.pods.insert(pod.key.clone(), own);
        Ok(PodState::Allocated)
    }

    fn claim_address(&mut self, pod: &PodFacts, node: &Name, address: IpAddr) -> Result<(), ClaimFailure> {
        let item = Allocatable::Address(address);
        let own = self.quarantine.get(item).is_some_and(|entry| entry.owner == pod.uid);
        let pools = self.nodes.get_mut(node).into_iter().flat_map(|node| &mut node.pools);
        let Some(pool) = pools.into_iter().find(|pool| pool.subnet().contains(address)) else {
            let subnets: Vec<String> = self
                .nodes
                .get(node)
                .map(|node| node.subnets().map(|subnet| subnet.to_string()).collect())
                .unwrap_or_default();
            return Err(ClaimFailure::refused(format!("{address} is not in {} of node {node}", subnets.join(", "))));
        };
        if own && pool.reclaim(address) {
            return Ok(());
        }
        pool.claim(address).map_err(|error| match error {
            ClaimError::Quarantined { .. } => ClaimFailure::Quarantined,
            ClaimError::Taken { .. } => {
                let holder = self.pods.iter().find(|(_, own)| own.addresses().any(|other| other == address));
                match holder {
                    Some((key, _)) => ClaimFailure::taken(&format!("{address} is the address of"), key, pod),
                    None => ClaimFailure::refused(error.to_string()),
                }
            }
            other => ClaimFailure::refused(other.to_string()),
        })
    }

    fn claim_mac(&mut self, pod: &PodFacts, node: &Name, mac: Mac, addresses: &[IpAddr]) -> Result<(), ClaimFailure> {
        if Mac::for_addresses(addresses) == Some(mac) {
            return Ok(());
        }
        if !mac.is_usable() {
            return Err(ClaimFailure::refused(format!("{mac} is not a unicast MAC address")));
        }
        // MACs of IPv6-only networks are hashes of addresses: whose this is cannot be computed.
        let mut known = self.nodes.get(node).into_iter().flat_map(NodeAllocation::subnets);
        if mac.is_computed() && known.all(netmodel::Prefix::is_ipv6) {
            let why = format!(
                "{mac} has the prefix of MACs that are derived from addresses, and may collide: use another prefix"
            );
            return Err(ClaimFailure::refused(why));
        }
        // Another pod has, or may get, the address that this MAC is derived from.
        let subnets = self.nodes.get(node).into_iter().flat_map(NodeAllocation::subnets);
        let [_, _, a, b, c, d] = mac.bytes();
        let address = IpAddr::from([a, b, c, d]);
        if mac == Mac::for_address(address) && subnets.into_iter().any(|subnet| subnet.contains(address)) {
            return Err(ClaimFailure::refused(format!("{mac} is derived from {address}, which is not the pod's")));
        }
        let key = (node.clone(), mac);
        if let Some(holder) = self.custom_macs.get(&key).filter(|holder| **holder != pod.key) {
            return Err(ClaimFailure::taken(&format!("{mac} is the MAC of"), holder, pod));
        }
        self.custom_macs.insert(key, pod.key.clone());
        Ok(())
    }
}

/// An error if a pod's record contradicts its allocation. An annotation is not a record: it is overwritten.
fn check_record(own: &PodAllocation, pod: &PodFacts) -> Result<(), Refusal> {
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
