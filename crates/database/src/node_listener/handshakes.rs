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

    /// Takes a place. If its address has too many, the oldest of them is ended (true): pods share the address of their node, whose
    /// own connections must not be kept out by those of a pod that sends nothing.
    pub(super) fn begin(&self, peer: IpAddr, now: Instant) -> (Place, bool) {
        let mut table = self.lock();
        let mut same = table.running.iter().filter(|(_, it)| it.peer == peer).map(|(number, _)| *number);
        let oldest = same.next().filter(|_| same.count() + 1 >= MOST_PER_ADDRESS);
        if let Some(task) = oldest.and_then(|number| table.running.remove(&number)?.task) {
            task.abort();
        }
        let number = table.next;
        table.next += 1;
        table.running.insert(number, Handshake { peer, began: now, task: None });
        (Place { handshakes: self.clone(), number }, oldest.is_some())
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
        let begun: Vec<_> = (0..2 * MOST_PER_ADDRESS).map(|_| handshakes.begin(address(0), start)).collect();
        assert_eq!(begun.iter().filter(|(_, ended)| *ended).count(), MOST_PER_ADDRESS);
        assert_eq!(handshakes.lock().running.len(), MOST_PER_ADDRESS, "the newest are kept");
        assert!(handshakes.lock().running.keys().all(|number| *number >= MOST_PER_ADDRESS as u64));
        let greedy: Vec<Place> = begun.into_iter().map(|(place, _)| place).collect();
        let begun = (0..MOST - MOST_PER_ADDRESS).map(|number| handshakes.begin(address(1 + number), start));
        let (others, ended): (Vec<Place>, Vec<bool>) = begun.unzip();
        assert!(!ended.contains(&true));
        assert_eq!(handshakes.has_room(start), (false, None), "all are young: wait");
        assert_eq!(handshakes.has_room(start + PATIENCE), (true, Some(address(0))));
        drop(greedy);
        assert_eq!(handshakes.has_room(start), (true, None));
        drop(others);
        assert!(handshakes.lock().running.is_empty());
    }
}
