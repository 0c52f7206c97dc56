//! A watch as its consumer sees it.

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::api::Api;
use crate::resource::Resource;
use crate::watcher::Watcher;
use crate::wire::Identity;

/// What can be waiting for a slow consumer; beyond that the watch waits, and the server with it.
const WAITING: usize = 1024;

/// What was seen of a resource.
///
/// A consumer that marks everything at `Relisting`, unmarks at `Upsert` and `Unreadable`, and forgets what is still
/// marked at `Listed`, holds what the server holds: objects that were deleted while no watch was open included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed<T> {
    /// A list begins: the first, one after the watch could not be resumed, or one instead of a list that broke off.
    Relisting,
    /// An object is so now.
    Upsert(T),
    /// An object is gone. It may have a successor of the same name already, with another uid.
    Deleted(Identity),
    /// The list is complete: whatever was not told since the last `Relisting` is gone. Ends any `Trouble`.
    Listed,
    /// An object exists and the reader refused it; others go on.
    Unreadable {
        /// Which.
        object: Identity,
        /// Why.
        error: String,
    },
    /// Listing or watching fails, and is tried again. Told once for each change of the reason.
    Trouble(String),
    /// The trouble is over and the watch goes on where it was: nothing was missed.
    Resumed,
    /// The cluster has no such type of object, hence none of them. It is looked for again, slowly.
    Absent,
}

/// Events of one resource, in order. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch<T> {
    events: mpsc::Receiver<Observed<T>>,
    task: AbortHandle,
}

impl<T> Watch<T> {
    /// The next event. `None` only if the task died, which is a bug in the reader of objects.
    pub async fn next(&mut self) -> Option<Observed<T>> {
        self.events.recv().await
    }

    /// Waits for an event and takes all that are there, up to `limit`. Returns how many were added; 0 as [`Watch::next`]
    /// returns `None`.
    pub async fn next_batch(&mut self, batch: &mut Vec<Observed<T>>, limit: usize) -> usize {
        self.events.recv_many(batch, limit).await
    }
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lists and watches a resource in a task of its own, for as long as the result lives.
///
/// `parse` gets an object's JSON and keeps what it needs. Objects of a list come without `kind` and `apiVersion`, as the
/// server writes them.
pub fn watch<T: Send + 'static>(api: &Api, resource: Resource, parse: fn(&str) -> Result<T, String>) -> Watch<T> {
    let (told, events) = mpsc::channel(WAITING);
    let task = tokio::spawn(Watcher::new(api, resource, parse, told).run()).abort_handle();
    Watch { events, task }
}
