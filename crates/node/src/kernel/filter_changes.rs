//! Notifications of nftables changes by other clients: a firewall that is reloaded deletes all tables, also ours.

use std::io;
use std::time::Duration;

use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols};
use tokio::time::Instant;

use super::attributes::{find_text, find_u32};
use super::pod_filter::{self, CHAIN_NAME, CHAIN_POLICY, DELETE_CHAIN, DROP, NETDEV, NEW_CHAIN, TABLE_NAME};
use super::pod_link;

/// Multicast group of nftables (NFNLGRP_NFTABLES).
const GROUP: u32 = 7;
/// Netfilter subsystem, in the upper half of a message's type.
pub(super) const NFTABLES: u16 = 10;
/// Messages about the deletion of a table, a chain or a rule.
const DELETED: [u8; 3] = [2, 5, 8];
/// Changes within this time are one notification: reading a table starts a process.
const TABLE_DELAY: Duration = Duration::from_secs(1);
/// Short, because the host is exposed to pods meanwhile, and reading chains is cheap.
const POD_CHAINS_DELAY: Duration = Duration::from_millis(10);

/// Which changes are notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterScope {
    /// Deletions in tables of this name, whatever their family.
    Table(&'static str),
    /// Changes that may stop a chain from dropping pods' frames.
    PodChains,
}

impl FilterScope {
    fn includes(self, change: &Change<'_>) -> bool {
        match self {
            Self::Table(name) => {
                DELETED.contains(&change.message) && find_text(change.attributes, TABLE_NAME) == Some(name)
            }
            Self::PodChains => {
                change.family == NETDEV
                    && find_text(change.attributes, TABLE_NAME) == Some(pod_filter::TABLE)
                    && !is_own_change(change)
            }
        }
    }

    fn delay(self) -> Duration {
        match self {
            Self::Table(_) => TABLE_DELAY,
            Self::PodChains => POD_CHAINS_DELAY,
        }
    }
}

/// True for the changes that ADD and DEL cause: a new chain that drops, or the deletion of one whose device is gone.
fn is_own_change(change: &Change<'_>) -> bool {
    match change.message {
        NEW_CHAIN => find_u32(change.attributes, CHAIN_POLICY) == Some(DROP),
        DELETE_CHAIN => {
            let device = find_text(change.attributes, CHAIN_NAME);
            device.is_some_and(|device| matches!(pod_link::exists(device), Ok(false)))
        }
        _ => false,
    }
}

/// Notifies of changes of the host's nftables tables.
pub(crate) struct FilterChanges {
    socket: TokioSocket,
    scope: FilterScope,
    /// When a received change is notified; kept here so that a cancelled `next` does not lose it.
    due: Option<Instant>,
}

impl FilterChanges {
    pub(crate) fn subscribe(scope: FilterScope) -> io::Result<Self> {
        let mut socket = TokioSocket::new(protocols::NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        socket.socket_mut().add_membership(GROUP)?;
        Ok(Self { socket, scope, due: None })
    }

    /// Returns shortly after a change in scope.
    pub(crate) async fn next(&mut self) {
        let due = match self.due {
            Some(due) => due,
            None => {
                self.received().await;
                *self.due.insert(Instant::now() + self.scope.delay())
            }
        };
        tokio::time::sleep_until(due).await;
        self.due = None;
    }

    async fn received(&mut self) {
        loop {
            let mut bytes = Vec::with_capacity(64 << 10);
            match self.socket.recv(&mut bytes).await {
                Ok(()) if changes(&bytes).any(|change| self.scope.includes(&change)) => return,
                Ok(()) => {}
                // Overrun: messages were lost, which may have been in scope.
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => return,
                // The socket is broken: no more notifications.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

impl std::fmt::Debug for FilterChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterChanges").finish_non_exhaustive()
    }
}

/// A message of nftables.
struct Change<'a> {
    message: u8,
    family: u8,
    attributes: &'a [u8],
}

/// Messages of nftables in a buffer.
fn changes(bytes: &[u8]) -> impl Iterator<Item = Change<'_>> + '_ {
    messages(bytes).filter_map(|(kind, body)| {
        let [subsystem, message] = kind.to_be_bytes();
        let family = *body.first()?;
        let ours = u16::from(subsystem) == NFTABLES;
        ours.then_some(Change { message, family, attributes: body.get(4..).unwrap_or_default() })
    })
}

/// Types and bodies of all messages in a buffer.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, kind) = (rest.get(..4)?, rest.get(4..6)?);
        let length = usize::try_from(u32::from_ne_bytes(length.try_into().ok()?)).ok()?.max(16);
        let body = rest.get(16..length.min(rest.len())).unwrap_or_default();
        let kind = u16::from_ne_bytes(kind.try_into().ok()?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

#[cfg(test)]
mod tests {
    use super::super::attributes::{attribute, text};
    use super::*;

    fn message(kind: u16, family: u8, attributes: &[u8]) -> Vec<u8> {
        let body = [&[family, 0, 0, 0], attributes].concat();
        let length = u32::try_from(16 + body.len()).unwrap();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &body].concat()
    }

    fn received(scope: FilterScope, bytes: &[u8]) -> usize {
        changes(bytes).filter(|change| scope.includes(change)).count()
    }

    #[test]
    fn only_deletions_in_our_tables_are_in_scope() {
        let of = |name: &str| attribute(TABLE_NAME, &text(name));
        let made = message(0x0a00, 1, &of("ovnkube"));
        let gone = message(0x0a02, 1, &of("ovnkube"));
        let foreign = message(0x0a02, 1, &of("firewalld"));
        let other = message(0x0102, 1, &of("ovnkube"));
        let scope = FilterScope::Table("ovnkube");
        assert_eq!(received(scope, &[made.clone(), gone.clone(), other.clone(), gone.clone()].concat()), 2);
        assert_eq!(received(scope, &[made, other, foreign].concat()), 0);
        // Cut off, without a length, with one beyond the end.
        assert_eq!(changes(&gone[..5]).count(), 0);
        assert_eq!(messages(&[0; 32]).count(), 2);
        assert_eq!(messages(&[0xff; 6]).count(), 1);
        assert_eq!(received(scope, &gone[..22]), 0);
    }

    #[test]
    fn every_change_that_may_open_a_pod_chain_is_in_scope() {
        let of = |name: &str, policy: u32| {
            [attribute(TABLE_NAME, &text(name)), attribute(CHAIN_POLICY, &policy.to_be_bytes())].concat()
        };
        let table = pod_filter::TABLE;
        let count = |kind: u16, family: u8, body: &[u8]| received(FilterScope::PodChains, &message(kind, family, body));
        assert_eq!(count(0x0a03, 5, &of(table, 0)), 0, "a chain that drops is our own");
        assert_eq!(count(0x0a03, 5, &of(table, 1)), 1, "a chain was opened");
        for kind in [0x0a00, 0x0a02, 0x0a05, 0x0a06, 0x0a08] {
            assert_eq!(count(kind, 5, &of(table, 0)), 1, "{kind:#x}");
            assert_eq!(count(kind, 1, &of(table, 0)) + count(kind, 5, &of("other", 0)), 0, "{kind:#x}");
        }
    }
}
