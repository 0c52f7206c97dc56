//! The log of all packets of a path.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PacketRecord {
    /// Microseconds since the prober started.
    pub sent: u64,
    /// When the first answer came.
    pub answered: Option<u64>,
    /// More than one: the packet was duplicated.
    pub answers: u32,
    /// A reply's source address, or the client address that the server saw, if it is not an expected one.
    pub wrong_source: Option<IpAddr>,
    /// The connection was refused, reset or closed by the peer.
    pub reset: bool,
}

/// What happened to each packet of a path; the index is its number.
#[derive(Debug, Default)]
pub(super) struct PacketLog {
    packets: Mutex<Vec<PacketRecord>>,
}

impl PacketLog {
    /// Logs that the next packet is sent now; returns its number.
    pub(super) fn send(&self, now: u64) -> u64 {
        let mut packets = self.lock();
        packets.push(PacketRecord { sent: now, ..PacketRecord::default() });
        packets.len() as u64 - 1
    }

    /// Logs an answer; `wrong` is an unexpected address.
    pub(super) fn answer(&self, number: u64, now: u64, wrong: Option<IpAddr>) {
        self.change(number, |packet| {
            packet.answered.get_or_insert(now);
            packet.answers += 1;
            packet.wrong_source = packet.wrong_source.or(wrong);
        });
    }

    /// Logs that the connection of a packet was reset.
    pub(super) fn reset(&self, number: u64) {
        self.change(number, |packet| packet.reset = true);
    }

    /// Logs that the connection of the latest packet was reset.
    pub(super) fn reset_newest(&self) {
        if let Some(packet) = self.lock().last_mut() {
            packet.reset = true;
        }
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut PacketRecord)) {
        let mut packets = self.lock();
        if let Some(packet) = usize::try_from(number).ok().and_then(|number| packets.get_mut(number)) {
            change(packet);
        }
    }

    /// How many of the packets sent since then are answered.
    pub(super) fn answered_since(&self, since: u64) -> usize {
        self.lock()
            .iter()
            .rev()
            .take_while(|packet| packet.sent >= since)
            .filter(|packet| packet.answered.is_some())
            .count()
    }

    pub(super) fn packets(&self) -> Vec<PacketRecord> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PacketRecord>> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
