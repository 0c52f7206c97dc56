//! What others do to the host's packet filter, as it happens: a firewall that is loaded again takes all tables away, ours too.

use std::io;
use std::time::Duration;

use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols};
use tokio::time::Instant;

use super::attributes::{find_text, find_u32};
use super::pod_filter::{self, CHAIN_NAME, CHAIN_POLICY, DELETE_CHAIN, DROP, NETDEV, NEW_CHAIN, TABLE_NAME};
use super::pod_link;

/// The group in which the kernel tells changes of nftables.
const GROUP: u32 = 7;
/// The part of netfilter that is meant, in the upper half of a message's type.
pub(super) const NFTABLES: u16 = 10;
/// Messages that say that a table, a chain or a rule is gone.
const DELETED: [u8; 3] = [2, 5, 8];
/// What comes together is told together: looking at a table is the work of a process.
const SETTLING: Duration = Duration::from_secs(1);
/// Looking at the chains of pods is a few messages, and pods are exposed meanwhile.
const AT_ONCE: Duration = Duration::from_millis(10);

/// Which changes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// Deletions in tables of this name, whatever their family.
    Table(&'static str),
    /// Whatever may open a chain that keeps pods' frames from the host.
    PodChains,
}

impl Concern {
    fn is_about(self, change: &Change<'_>) -> bool {
        match self {
            Self::Table(name) => {
                DELETED.contains(&change.message) && find_text(change.attributes, TABLE_NAME) == Some(name)
            }
            Self::PodChains => {
                change.family == NETDEV
                    && find_text(change.attributes, TABLE_NAME) == Some(pod_filter::TABLE)
                    && !is_our_own(change)
            }
        }
    }

    fn settling(self) -> Duration {
        match self {
            Self::Table(_) => SETTLING,
            Self::PodChains => AT_ONCE,
        }
    }
}

/// Whether a change is what a pod that comes or goes causes: a chain that drops, or the end of one without a device.
fn is_our_own(change: &Change<'_>) -> bool {
    match change.message {
        NEW_CHAIN => find_u32(change.attributes, CHAIN_POLICY) == Some(DROP),
        DELETE_CHAIN => {
            let device = find_text(change.attributes, CHAIN_NAME);
            device.is_some_and(|device| matches!(pod_link::exists(device), Ok(false)))
        }
        _ => false,
    }
}

/// Tells that the packet filter was changed, by whomever.
pub struct FilterChanges {
    socket: TokioSocket,
    concern: Concern,
    /// When what was heard is told: a caller that waits for other things, too, does not lose it.
    due: Option<Instant>,
}

impl FilterChanges {
    /// Begins to listen.
    pub fn listen(concern: Concern) -> io::Result<Self> {
        let mut socket = TokioSocket::new(protocols::NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        socket.socket_mut().add_membership(GROUP)?;
        Ok(Self { socket, concern, due: None })
    }

    /// Returns a moment after a change that counts.
    pub async fn next(&mut self) {
        let due = match self.due {
            Some(due) => due,
            None => {
                self.heard().await;
                *self.due.insert(Instant::now() + self.concern.settling())
            }
        };
        tokio::time::sleep_until(due).await;
        self.due = None;
    }

    async fn heard(&mut self) {
        loop {
            let mut bytes = Vec::with_capacity(64 << 10);
            match self.socket.recv(&mut bytes).await {
                Ok(()) if changes(&bytes).any(|change| self.concern.is_about(&change)) => return,
                Ok(()) => {}
                // More came than there was room for: that may be in it.
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => return,
                // The kernel does not talk to us any more: then there is nothing to hear.
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

/// The messages of nftables among those that stand one behind the other.
fn changes(bytes: &[u8]) -> impl Iterator<Item = Change<'_>> + '_ {
    messages(bytes).filter_map(|(kind, body)| {
        let [subsystem, message] = kind.to_be_bytes();
        let family = *body.first()?;
        let ours = u16::from(subsystem) == NFTABLES;
        ours.then_some(Change { message, family, attributes: body.get(4..).unwrap_or_default() })
    })
}

/// The types and bodies of the messages that stand one behind the other.
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

    fn heard(concern: Concern, bytes: &[u8]) -> usize {
        changes(bytes).filter(|change| concern.is_about(change)).count()
    }

    #[test]
    fn deletions_in_our_tables_count_and_others_do_not() {
        let of = |name: &str| attribute(TABLE_NAME, &text(name));
        let made = message(0x0a00, 1, &of("ovnkube"));
        let gone = message(0x0a02, 1, &of("ovnkube"));
        let foreign = message(0x0a02, 1, &of("firewalld"));
        let other = message(0x0102, 1, &of("ovnkube"));
        let concern = Concern::Table("ovnkube");
        assert_eq!(heard(concern, &[made.clone(), gone.clone(), other.clone(), gone.clone()].concat()), 2);
        assert_eq!(heard(concern, &[made, other, foreign].concat()), 0);
        // Cut off, without a length, with one beyond the end.
        assert_eq!(changes(&gone[..5]).count(), 0);
        assert_eq!(messages(&[0; 32]).count(), 2);
        assert_eq!(messages(&[0xff; 6]).count(), 1);
        assert_eq!(heard(concern, &gone[..22]), 0);
    }

    #[test]
    fn whatever_may_open_a_chain_of_a_pod_counts() {
        let of = |name: &str, policy: u32| {
            [attribute(TABLE_NAME, &text(name)), attribute(CHAIN_POLICY, &policy.to_be_bytes())].concat()
        };
        let table = pod_filter::TABLE;
        let count = |kind: u16, family: u8, body: &[u8]| heard(Concern::PodChains, &message(kind, family, body));
        assert_eq!(count(0x0a03, 5, &of(table, 0)), 0, "a chain that drops is one of ours");
        assert_eq!(count(0x0a03, 5, &of(table, 1)), 1, "a chain was opened");
        for kind in [0x0a00, 0x0a02, 0x0a05, 0x0a06, 0x0a08] {
            assert_eq!(count(kind, 5, &of(table, 0)), 1, "{kind:#x}");
            assert_eq!(count(kind, 1, &of(table, 0)) + count(kind, 5, &of("other", 0)), 0, "{kind:#x}");
        }
    }
}
