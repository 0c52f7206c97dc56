//! What others do to the host's packet filter, as it happens: a firewall that is loaded again takes all tables away, ours too.

use std::io;
use std::time::Duration;

use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols};
use tokio::time::Instant;

/// The group in which the kernel tells changes of nftables.
const GROUP: u32 = 7;
/// The part of netfilter that is meant, in the upper half of a message's type.
const NFTABLES: u16 = 10;
/// Messages that say that a table, a chain or a rule is gone.
const DELETED: [u16; 3] = [2, 5, 8];
/// What comes together is told together: looking at a table is the work of a process.
const SETTLING: Duration = Duration::from_secs(1);

/// Tells that something was taken out of the packet filter, by whomever.
pub struct FilterChanges {
    socket: TokioSocket,
    /// When what was heard is told: a caller that waits for other things, too, does not lose it.
    due: Option<Instant>,
}

impl FilterChanges {
    /// Begins to listen.
    pub fn listen() -> io::Result<Self> {
        let mut socket = TokioSocket::new(protocols::NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        socket.socket_mut().add_membership(GROUP)?;
        Ok(Self { socket, due: None })
    }

    /// Returns a moment after something was taken out.
    pub async fn next(&mut self) {
        let due = match self.due {
            Some(due) => due,
            None => {
                self.heard().await;
                *self.due.insert(Instant::now() + SETTLING)
            }
        };
        tokio::time::sleep_until(due).await;
        self.due = None;
    }

    async fn heard(&mut self) {
        loop {
            let mut bytes = Vec::with_capacity(64 << 10);
            match self.socket.recv(&mut bytes).await {
                Ok(()) if types(&bytes).any(is_deletion) => return,
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

fn is_deletion(kind: u16) -> bool {
    kind >> 8 == NFTABLES && DELETED.contains(&(kind & 0xff))
}

/// The types of the messages that stand one behind the other.
fn types(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, kind) = (rest.get(..4)?, rest.get(4..6)?);
        let length = usize::try_from(u32::from_ne_bytes(length.try_into().ok()?)).ok()?.next_multiple_of(4);
        rest = rest.get(length.max(16)..).unwrap_or_default();
        Some(u16::from_ne_bytes(kind.try_into().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_whatever_comes() {
        let message = |kind: u16, length: u32| {
            let mut bytes = [length.to_ne_bytes().as_slice(), &kind.to_ne_bytes()].concat();
            bytes.resize(length as usize, 0);
            bytes
        };
        let made = message(0x0a00, 20);
        let gone = message(0x0a02, 24);
        let other = message(0x0102, 16);
        let deletions = |bytes: &[u8]| types(bytes).filter(|kind| is_deletion(*kind)).count();
        assert_eq!(deletions(&[made.clone(), gone.clone(), other.clone(), gone.clone()].concat()), 2);
        assert_eq!(deletions(&[made, other].concat()), 0);
        // Cut off, without a length, with one beyond the end.
        assert_eq!(types(&gone[..5]).count(), 0);
        assert_eq!(types(&[0; 32]).count(), 2);
        assert_eq!(types(&[0xff; 6]).count(), 1);
    }
}
