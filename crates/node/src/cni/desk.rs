//! One request at a time for each interface. Who wants an interface removed ends the making of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cni::Attachment;
use tokio::sync::{OwnedMutexGuard, watch};

/// Where requests wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Desk {
    places: Mutex<HashMap<Attachment, Arc<Place>>>,
}

#[derive(Debug, Default)]
struct Place {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Changed when somebody wants it all removed.
    removal: watch::Sender<()>,
}

/// The turn of a request.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    desk: &'a Desk,
    attachment: Attachment,
    place: Arc<Place>,
    removal: watch::Receiver<()>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Desk {
    /// Waits for the turn.
    pub(super) async fn turn(&self, attachment: &Attachment) -> Turn<'_> {
        self.wait(attachment, false).await
    }

    /// Waits for the turn, and lets whoever has it give up.
    pub(super) async fn turn_to_remove(&self, attachment: &Attachment) -> Turn<'_> {
        self.wait(attachment, true).await
    }

    /// The interfaces that requests are about: those that have their turn and those that wait for it.
    pub(super) fn busy(&self) -> Vec<Attachment> {
        self.places().keys().cloned().collect()
    }

    async fn wait(&self, attachment: &Attachment, remove: bool) -> Turn<'_> {
        let place = self.places().entry(attachment.clone()).or_default().clone();
        let removal = place.removal.subscribe();
        if remove {
            place.removal.send_replace(());
        }
        // Made before the waiting, so that the place is also given back if the waiting is given up.
        let mut turn = Turn { desk: self, attachment: attachment.clone(), place, removal, guard: None };
        turn.guard = Some(turn.place.turn.clone().lock_owned().await);
        // What was wished before the turn is over with it.
        turn.removal.mark_unchanged();
        turn
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Attachment, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Returns when somebody wants it all removed.
    pub(super) async fn removal_wished(&mut self) {
        // We hold the sender too.
        let _ = self.removal.changed().await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut places = self.desk.places();
        // One is in the map, one is ours: nobody else waits.
        if Arc::strong_count(&self.place) <= 2 {
            places.remove(&self.attachment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_removes_ends_the_making_and_comes_next() {
        let desk = Desk::default();
        let attachment = Attachment::new("c1", "eth0").unwrap();
        let mut adding = desk.turn(&attachment).await;
        let removing = desk.turn_to_remove(&attachment);
        tokio::pin!(removing);
        tokio::select! {
            biased;
            _ = &mut removing => panic!("two at once"),
            () = adding.removal_wished() => {}
        }
        assert_eq!(desk.busy().len(), 1);
        drop(adding);
        drop(removing.await);
        assert!(desk.busy().is_empty());
    }
}
