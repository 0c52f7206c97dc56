//! The sessions of nodes, so that they can be closed when their certificate is not accepted any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::oneshot;

use super::metrics::NodeMetrics;
use super::trust::Trust;

/// Sessions of one name. ovn-controller has one; those that a node lost stay until the server's inactivity probe ends them.
const MOST_PER_NAME: usize = 32;

/// Who is at the other end of a session.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The chassis, by its certificate.
    pub(super) name: String,
    /// The certificate first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// When the certificate was checked.
    pub(super) since: UnixTime,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    close: oneshot::Sender<rustls::Error>,
}

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<u64, Entry>,
    next: u64,
}

/// The open sessions; clones share them.
#[derive(Debug, Clone)]
pub(super) struct Sessions {
    table: Arc<Mutex<Table>>,
    most: usize,
    metrics: NodeMetrics,
}

/// An open session; dropping it removes it from the list.
#[derive(Debug)]
pub(super) struct Session {
    sessions: Sessions,
    number: u64,
    /// Why the session must be closed.
    pub(super) closed: oneshot::Receiver<rustls::Error>,
}

impl Sessions {
    pub(super) fn new(most: usize, metrics: NodeMetrics) -> Self {
        Self { table: Arc::default(), most, metrics }
    }

    /// Adds a session; none if there are too many.
    pub(super) fn open(&self, peer: Peer) -> Option<Session> {
        let mut table = self.lock();
        let own = table.open.values().filter(|entry| entry.peer.name == peer.name).count();
        if table.open.len() >= self.most || own >= MOST_PER_NAME {
            return None;
        }
        let (close, closed) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Entry { peer, close });
        self.metrics.sessions.set(i64::try_from(table.open.len()).unwrap_or(i64::MAX));
        drop(table);
        Some(Session { sessions: self.clone(), number, closed })
    }

    /// Closes the sessions that would not be accepted any more. A certificate that expired meanwhile is no reason.
    pub(super) fn review(&self, trust: &Trust) {
        let mut table = self.lock();
        let refused: Vec<(u64, rustls::Error)> = table
            .open
            .iter()
            .filter_map(|(number, Entry { peer, .. })| {
                let (own, more) = peer.chain.split_first()?;
                Some((*number, trust.admit(own, more, peer.since).err()?))
            })
            .collect();
        for (number, error) in refused {
            if let Some(entry) = table.open.remove(&number) {
                // The session may have ended by itself.
                let _ = entry.close.send(error);
                self.metrics.closed();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing that runs under this lock can leave it inconsistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut table = self.sessions.lock();
        table.open.remove(&self.number);
        self.sessions.metrics.sessions.set(i64::try_from(table.open.len()).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_cannot_take_all_sessions() {
        let sessions = Sessions::new(40, NodeMetrics::unregistered());
        let peer = |name: &str| Peer { name: name.into(), chain: Vec::new(), since: UnixTime::now() };
        let greedy: Vec<Session> = std::iter::from_fn(|| sessions.open(peer("n1"))).collect();
        assert_eq!(greedy.len(), MOST_PER_NAME);
        let others: Vec<Session> = (0..9).filter_map(|number| sessions.open(peer(&number.to_string()))).collect();
        assert_eq!(others.len(), 40 - MOST_PER_NAME);
        assert_eq!(sessions.metrics.sessions.get(), 40);
        drop(greedy);
        assert!(sessions.open(peer("n1")).is_some());
        drop(others);
        assert_eq!(sessions.metrics.sessions.get(), 0);
    }
}
