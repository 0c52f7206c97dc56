//! Consumer side of a watch.

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::api::Api;
use crate::resource::Resource;
use crate::watcher::Watcher;
use crate::wire::Identity;

/// Events buffered for a slow consumer; beyond that, TCP flow control stops the server.
const WAITING: usize = 1024;

/// An event of a watch.
///
/// A consumer that marks all objects at `Relisting`, unmarks at `Upsert` and `Malformed`, and removes the marked ones
/// at `Listed`, has the same objects as the server, also after deletions while no watch was open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed<T> {
    /// A list starts: the first one, one after the watch could not be resumed, or a retry of a failed list.
    Relisting,
    /// An object was created or changed.
    Upsert(T),
    /// An object was deleted. Another one with its name but another uid may exist already.
    Deleted(Identity),
    /// The list is complete: objects without an event since `Relisting` do not exist. Ends `Failed`.
    Listed,
    /// An object exists but could not be parsed; others are not affected.
    Malformed {
        /// The object, as far as known.
        object: Identity,
        /// The parser's error.
        error: String,
    },
    /// List or watch failed and is retried. Sent once per change of the reason.
    Failed(String),
    /// The watch works again and continued where it was: no event was missed.
    Resumed,
    /// The cluster does not have this type, hence no objects. Checked again from time to time.
    Absent,
}

/// Events of one resource, in order. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch<T> {
    events: mpsc::Receiver<Observed<T>>,
    task: AbortHandle,
}

impl<T> Watch<T> {
    /// The next event. `None` only if the task panicked: a bug in `parse`.
    pub async fn next(&mut self) -> Option<Observed<T>> {
        self.events.recv().await
    }

    /// Waits for an event and takes all that are buffered, up to `limit`. Returns how many were added; 0 if
    /// [`Watch::next`] would return `None`.
    pub async fn next_batch(&mut self, batch: &mut Vec<Observed<T>>, limit: usize) -> usize {
        self.events.recv_many(batch, limit).await
    }
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lists and watches a resource in a task, until the result is dropped.
///
/// `parse` gets the JSON of an object. Objects of a list have no `kind` and `apiVersion`, as the server writes them.
pub fn watch<T: Send + 'static>(api: &Api, resource: Resource, parse: fn(&str) -> Result<T, String>) -> Watch<T> {
    let (sender, events) = mpsc::channel(WAITING);
    let task = tokio::spawn(Watcher::new(api, resource, parse, sender).run()).abort_handle();
    Watch { events, task }
}
