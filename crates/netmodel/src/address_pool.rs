//! `AddressPool`: allocation of the pod addresses of a node's subnet.

use std::net::IpAddr;

use thiserror::Error;

use crate::Prefix;
use crate::bits::Bits;

/// Offset of the first pod address, after the network address, the gateway and the management port.
const FIRST_POD: u128 = 3;

/// The pod addresses of one node's subnet: each is free, taken or quarantined.
///
/// ```text
///          claim, allocate            quarantine
///   free ──────────────────▶ taken ──────────────▶ quarantined ──lift──▶ free
///    ▲                        │ ▲                       │ ▲
///    └────────release─────────┘ └────────reclaim────────┘ └──quarantine── free
/// ```
///
/// The network address, the gateway (`.1`), the management port (`.2`) and an IPv4 subnet's broadcast address are
/// reserved and never allocated. Quarantine is for an address that peers may still send to for its former owner. A
/// change that does not apply (the release of a free address) does nothing and returns false, so that an event may
/// come twice.
#[derive(Debug, Clone)]
pub struct AddressPool {
    subnet: Prefix,
    /// Offset of the last pod address; smaller than `FIRST_POD` in a subnet that is too small for pods.
    last: u128,
    /// Offsets that are taken or quarantined: the one set that `allocate` has to search.
    used: Bits,
    /// Of `used`, those that are free but may not be allocated yet.
    quarantined: Bits,
    /// Offset at which `allocate` continues.
    next: u128,
}

/// Why an address cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClaimError {
    /// The address is not in the subnet.
    #[error("{address} is outside the subnet {subnet}")]
    Outside {
        /// The requested address.
        address: IpAddr,
        /// The node's subnet that the pool is of.
        subnet: Prefix,
    },
    /// The address is never allocated to pods: network, gateway, management port or broadcast.
    #[error("{address} is the {what} of the subnet {subnet} and never a pod's")]
    Reserved {
        /// The requested address.
        address: IpAddr,
        /// The node's subnet that the pool is of.
        subnet: Prefix,
        /// Its purpose, e.g. `the gateway`.
        what: &'static str,
    },
    /// The address has an owner.
    #[error("{address} of the subnet {subnet} is already taken")]
    Taken {
        /// The requested address.
        address: IpAddr,
        /// The node's subnet that the pool is of.
        subnet: Prefix,
    },
    /// The address is quarantined after its last owner.
    #[error("{address} of the subnet {subnet} is in quarantine after its last owner")]
    Quarantined {
        /// The requested address.
        address: IpAddr,
        /// The node's subnet that the pool is of.
        subnet: Prefix,
    },
}

impl AddressPool {
    /// The pool of `subnet`, with every pod address free. A subnet that is too small for pods has none.
    pub fn new(subnet: Prefix) -> Self {
        let end = subnet.offset(subnet.last()).unwrap_or(0);
        let last = if subnet.is_ipv6() { end } else { end.saturating_sub(1) };
        Self { subnet, last, used: Bits::default(), quarantined: Bits::default(), next: FIRST_POD }
    }

    /// The subnet given to [`AddressPool::new`].
    pub fn subnet(&self) -> Prefix {
        self.subnet
    }

    /// Addresses for pods: free, taken and quarantined ones, but not reserved ones.
    pub fn capacity(&self) -> u128 {
        self.last.checked_sub(FIRST_POD).map_or(0, |behind_first| behind_first + 1)
    }

    /// Taken addresses; quarantined ones do not count.
    pub fn taken(&self) -> u128 {
        self.used.len() - self.quarantined.len()
    }

    /// Quarantined addresses, which cannot be allocated until they are lifted.
    pub fn quarantined(&self) -> u128 {
        self.quarantined.len()
    }

    /// Whether a pod has this address; false for a quarantined one.
    pub fn is_taken(&self, address: IpAddr) -> bool {
        self.offset(address).is_ok_and(|offset| self.used.contains(offset) && !self.quarantined.contains(offset))
    }

    /// False for any address outside the subnet, too.
    pub fn is_quarantined(&self, address: IpAddr) -> bool {
        self.offset(address).is_ok_and(|offset| self.quarantined.contains(offset))
    }

    /// Takes this address: a restart does it with the addresses that pods have. Does not change where
    /// [`allocate`](Self::allocate) continues, so the order of claims does not matter.
    pub fn claim(&mut self, address: IpAddr) -> Result<(), ClaimError> {
        let subnet = self.subnet;
        let offset = self.offset(address)?;
        if self.quarantined.contains(offset) {
            return Err(ClaimError::Quarantined { address, subnet });
        }
        if self.used.insert(offset) { Ok(()) } else { Err(ClaimError::Taken { address, subnet }) }
    }

    /// Takes the next free address after the last allocated one, and wraps around at the end of the subnet: an address
    /// is reused as late as possible. `None` if no address is free.
    pub fn allocate(&mut self) -> Option<IpAddr> {
        if self.used.len() >= self.capacity() {
            return None;
        }
        let ahead = self.used.first_absent(self.next, self.last);
        let offset = ahead.or_else(|| self.used.first_absent(FIRST_POD, self.last))?;
        let address = self.subnet.nth(offset)?;
        self.used.insert(offset);
        self.next = offset.checked_add(1).unwrap_or(FIRST_POD);
        Some(address)
    }

    /// Taken becomes free; false if it was not taken.
    pub fn release(&mut self, address: IpAddr) -> bool {
        self.offset(address).is_ok_and(|offset| !self.quarantined.contains(offset) && self.used.remove(offset))
    }

    /// Taken or free becomes quarantined; false if it was already, or is not a pod address of this subnet.
    pub fn quarantine(&mut self, address: IpAddr) -> bool {
        self.offset(address).is_ok_and(|offset| {
            self.used.insert(offset);
            self.quarantined.insert(offset)
        })
    }

    /// Quarantined becomes free; false if it was not quarantined.
    pub fn lift(&mut self, address: IpAddr) -> bool {
        self.offset(address).is_ok_and(|offset| self.quarantined.remove(offset) && self.used.remove(offset))
    }

    /// Quarantined becomes taken, because its owner came back; false if it was not quarantined.
    pub fn reclaim(&mut self, address: IpAddr) -> bool {
        self.offset(address).is_ok_and(|offset| self.quarantined.remove(offset))
    }

    /// Offset of a pod address from the network address; an error for an address that pods cannot have.
    fn offset(&self, address: IpAddr) -> Result<u128, ClaimError> {
        let subnet = self.subnet;
        let offset = subnet.offset(address).ok_or(ClaimError::Outside { address, subnet })?;
        let what = match offset {
            0 => "network address",
            1 => "gateway",
            2 => "management port",
            _ if offset > self.last => "broadcast address",
            _ => return Ok(offset),
        };
        Err(ClaimError::Reserved { address, subnet, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(subnet: &str) -> AddressPool {
        AddressPool::new(subnet.parse().expect("a prefix"))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn refusal(pool: &mut AddressPool, text: &str) -> String {
        pool.claim(address(text)).expect_err("not to be claimed").to_string()
    }

    #[test]
    fn an_address_is_reused_after_all_others() {
        let mut pool = pool("10.128.0.0/29");
        assert_eq!(pool.capacity(), 4);
        assert_eq!(pool.allocate(), Some(address("10.128.0.3")));
        assert_eq!(pool.allocate(), Some(address("10.128.0.4")));
        assert!(pool.release(address("10.128.0.3")));
        assert_eq!(pool.allocate(), Some(address("10.128.0.5")));
        assert_eq!(pool.allocate(), Some(address("10.128.0.6")));
        assert_eq!(pool.allocate(), Some(address("10.128.0.3")));
        assert_eq!(pool.allocate(), None);
    }

    #[test]
    fn a_rejected_claim_states_the_reason() {
        let mut pool = pool("10.128.2.0/24");
        assert_eq!(refusal(&mut pool, "10.128.3.5"), "10.128.3.5 is outside the subnet 10.128.2.0/24");
        for (text, what) in [("0", "network address"), ("1", "gateway"), ("2", "management port"), ("255", "broadcast")]
        {
            let message = refusal(&mut pool, &format!("10.128.2.{text}"));
            assert!(message.starts_with(&format!("10.128.2.{text} is the {what}")), "{message}");
            assert!(message.contains("10.128.2.0/24"), "{message}");
        }
        let pod = address("10.128.2.7");
        assert_eq!(pool.claim(pod), Ok(()));
        assert_eq!(refusal(&mut pool, "10.128.2.7"), "10.128.2.7 of the subnet 10.128.2.0/24 is already taken");
        assert!(pool.quarantine(pod));
        assert!(refusal(&mut pool, "10.128.2.7").contains("10.128.2.0/24 is in quarantine"));
        assert!(refusal(&mut pool, "::ffff:10.128.2.7").contains("outside"));
    }

    #[test]
    fn quarantine_ends_with_lift_or_with_the_owner() {
        let mut pool = pool("fd01::/125");
        let pod = pool.allocate().expect("a free address");
        assert!(pool.quarantine(pod));
        assert!(!pool.quarantine(pod));
        assert!(!pool.release(pod), "only lift and reclaim end a quarantine");
        assert!(pool.reclaim(pod));
        assert!(pool.is_taken(pod));
        assert!(!pool.lift(pod));
        assert!(pool.quarantine(pod) && pool.lift(pod));
        assert_eq!((pool.taken(), pool.quarantined()), (0, 0));
        assert_eq!(pool.claim(pod), Ok(()));
        assert!(!pool.quarantine(address("fd01::1")), "reserved ones have no state");
    }

    #[test]
    fn tiny_subnets_have_few_addresses_or_none() {
        for subnet in ["10.0.0.0/30", "10.0.0.0/31", "10.0.0.0/32", "fd01::/127", "fd01::/128"] {
            let mut pool = pool(subnet);
            assert_eq!((pool.capacity(), pool.allocate()), (0, None), "{subnet}");
            let last = pool.subnet().last();
            assert!(matches!(pool.claim(last), Err(ClaimError::Reserved { .. })), "{subnet}");
        }
        let mut pool = pool("fd01::/126");
        assert_eq!((pool.capacity(), pool.allocate(), pool.allocate()), (1, Some(address("fd01::3")), None));
    }

    #[test]
    fn huge_subnets_wrap_around_at_their_end() {
        let mut everything = pool("::/0");
        assert_eq!(everything.capacity(), u128::MAX - 2);
        everything.next = u128::MAX;
        assert_eq!(everything.allocate(), Some(everything.subnet().last()));
        assert_eq!(everything.allocate(), Some(address("::3")));
    }

    #[test]
    fn the_only_free_address_of_a_full_subnet_is_found() {
        let mut pool = pool("10.0.0.0/16");
        let given = std::iter::from_fn(|| pool.allocate()).count();
        assert_eq!(u128::try_from(given), Ok(pool.capacity()));
        for free in ["10.0.77.7", "10.0.0.3", "10.0.255.254"] {
            assert!(pool.release(address(free)));
            assert_eq!(pool.allocate(), Some(address(free)));
            assert_eq!(pool.allocate(), None);
        }
    }
}
