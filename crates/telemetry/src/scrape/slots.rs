//! Limits of open connections: in all, and by address, so that one client cannot use up all places.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Open connections in all.
const MOST: usize = 64;
/// Open connections of one address.
const MOST_PER_ADDRESS: usize = 8;

/// The places for connections; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A taken place; dropping it frees it.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    peer: IpAddr,
}

impl Slots {
    /// Takes a place for a client; `None` if there is none.
    pub(super) fn take(&self, peer: IpAddr) -> Option<Slot> {
        let mut open = self.lock();
        let own = open.get(&peer).copied().unwrap_or(0);
        if own >= MOST_PER_ADDRESS || open.values().sum::<usize>() >= MOST {
            return None;
        }
        open.insert(peer, own + 1);
        Some(Slot { slots: self.clone(), peer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.lock();
        match open.get_mut(&self.peer) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(open.remove(&self.peer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_places() {
        let slots = Slots::default();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let greedy: Vec<Slot> = std::iter::from_fn(|| slots.take(address(1))).collect();
        assert_eq!(greedy.len(), MOST_PER_ADDRESS);
        let others: Vec<Slot> = (2..=255).filter_map(|last| slots.take(address(last))).collect();
        assert_eq!(others.len(), MOST - MOST_PER_ADDRESS);
        drop(greedy);
        assert!(slots.take(address(1)).is_some());
        drop(others);
        assert!(slots.lock().is_empty(), "addresses without connections are forgotten");
    }
}
