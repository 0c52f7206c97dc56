//! Limits of handshakes. A client that sends nothing costs a place until its time is over; it must not keep others out.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// Handshakes at the same time, in all.
const MOST: usize = 256;
/// Handshakes at the same time, of one address.
const MOST_PER_ADDRESS: usize = 64;
/// Of too many handshakes, the oldest is ended if it has taken this long. One of an honest client takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Handshake {
    peer: IpAddr,
    began: Instant,
    task: Option<AbortHandle>,
}

#[derive(Debug, Default)]
struct Table {
    /// By number; the smallest is the oldest.
    running: BTreeMap<u64, Handshake>,
    next: u64,
}

/// The handshakes that run; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Handshakes(Arc<Mutex<Table>>);

/// A place of a handshake; dropping it frees it.
#[derive(Debug)]
pub(super) struct Place {
    handshakes: Handshakes,
    number: u64,
}

impl Handshakes {
    /// Whether another connection may be accepted. Ends the oldest handshake for it, and returns its peer, if that is too slow.
    pub(super) fn has_room(&self, now: Instant) -> (bool, Option<IpAddr>) {
        let mut table = self.lock();
        if table.running.len() < MOST {
            return (true, None);
        }
        let slow = table.running.first_entry().filter(|it| now.saturating_duration_since(it.get().began) >= PATIENCE);
        let Some(oldest) = slow.map(OccupiedEntry::remove) else { return (false, None) };
        if let Some(task) = oldest.task {
            task.abort();
        }
        (true, Some(oldest.peer))
    }

    /// Takes a place; none if its address has too many.
    pub(super) fn begin(&self, peer: IpAddr, now: Instant) -> Option<Place> {
        let mut table = self.lock();
        if table.running.values().filter(|it| it.peer == peer).count() >= MOST_PER_ADDRESS {
            return None;
        }
        let number = table.next;
        table.next += 1;
        table.running.insert(number, Handshake { peer, began: now, task: None });
        Some(Place { handshakes: self.clone(), number })
    }

    /// Names the task that is ended if the handshake is too slow.
    pub(super) fn attach(&self, number: u64, task: AbortHandle) {
        if let Some(handshake) = self.lock().running.get_mut(&number) {
            handshake.task = Some(task);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing that runs under this lock can leave it inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.handshakes.lock().running.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_handshakes_of_many_addresses_make_room_and_one_address_cannot_take_all() {
        let (handshakes, start) = (Handshakes::default(), Instant::now());
        let address = |last: usize| IpAddr::from([192, 0, 2, u8::try_from(last).unwrap()]);
        let greedy: Vec<Place> = std::iter::from_fn(|| handshakes.begin(address(0), start)).collect();
        assert_eq!(greedy.len(), MOST_PER_ADDRESS);
        let others: Vec<Place> =
            (0..MOST - MOST_PER_ADDRESS).filter_map(|number| handshakes.begin(address(1 + number), start)).collect();
        assert_eq!(others.len(), MOST - MOST_PER_ADDRESS);
        assert_eq!(handshakes.has_room(start), (false, None), "all are young: wait");
        assert_eq!(handshakes.has_room(start + PATIENCE), (true, Some(address(0))));
        drop(greedy);
        assert_eq!(handshakes.has_room(start), (true, None));
        drop(others);
        assert!(handshakes.lock().running.is_empty());
    }
}
