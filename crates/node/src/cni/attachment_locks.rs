//! Serializes CNI requests per attachment; a DEL cancels a running ADD.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cni::Attachment;
use tokio::sync::{OwnedMutexGuard, watch};

/// One lock for each attachment that has a request.
#[derive(Debug, Default)]
pub(super) struct AttachmentLocks {
    entries: Mutex<HashMap<Attachment, Arc<Entry>>>,
}

#[derive(Debug, Default)]
struct Entry {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Changed by a DEL that waits for the lock.
    delete_requested: watch::Sender<()>,
}

/// A held lock; dropping it lets the next request proceed.
#[derive(Debug)]
pub(super) struct AttachmentLock<'a> {
    locks: &'a AttachmentLocks,
    attachment: Attachment,
    entry: Arc<Entry>,
    delete_requested: watch::Receiver<()>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl AttachmentLocks {
    pub(super) async fn lock(&self, attachment: &Attachment) -> AttachmentLock<'_> {
        self.acquire(attachment, false).await
    }

    /// Cancels the request that holds the lock, and waits for it.
    pub(super) async fn lock_for_delete(&self, attachment: &Attachment) -> AttachmentLock<'_> {
        self.acquire(attachment, true).await
    }

    /// Attachments that have a running or waiting request.
    pub(super) fn busy(&self) -> Vec<Attachment> {
        self.entries().keys().cloned().collect()
    }

    async fn acquire(&self, attachment: &Attachment, delete: bool) -> AttachmentLock<'_> {
        let entry = self.entries().entry(attachment.clone()).or_default().clone();
        let delete_requested = entry.delete_requested.subscribe();
        if delete {
            entry.delete_requested.send_replace(());
        }
        // Created before the wait, so that its drop also removes the entry if the wait is cancelled.
        let mut lock =
            AttachmentLock { locks: self, attachment: attachment.clone(), entry, delete_requested, guard: None };
        lock.guard = Some(lock.entry.lock.clone().lock_owned().await);
        // A DEL from before this request got the lock does not cancel it.
        lock.delete_requested.mark_unchanged();
        lock
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Attachment, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AttachmentLock<'_> {
    /// Returns when a DEL waits for the lock.
    pub(super) async fn delete_requested(&mut self) {
        // Cannot fail: the entry holds the sender.
        let _ = self.delete_requested.changed().await;
    }
}

impl Drop for AttachmentLock<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut entries = self.locks.entries();
        // One reference is in the map, one is ours: no other request waits.
        if Arc::strong_count(&self.entry) <= 2 {
            entries.remove(&self.attachment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn del_cancels_a_running_add() {
        let locks = AttachmentLocks::default();
        let attachment = Attachment::new("c1", "eth0").unwrap();
        let mut adding = locks.lock(&attachment).await;
        let deleting = locks.lock_for_delete(&attachment);
        tokio::pin!(deleting);
        tokio::select! {
            biased;
            _ = &mut deleting => panic!("two requests hold the lock"),
            () = adding.delete_requested() => {}
        }
        assert_eq!(locks.busy().len(), 1);
        drop(adding);
        drop(deleting.await);
        assert!(locks.busy().is_empty());
    }
}
