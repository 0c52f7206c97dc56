//! Bounded queue of Events: equal ones are merged, the oldest is dropped if full.

use std::collections::VecDeque;

use crate::events::note::Note;

/// A queued note, the name of its Event, and how often it was recorded.
#[derive(Debug)]
pub(crate) struct QueuedNote {
    pub(crate) note: Note,
    pub(crate) name: String,
    pub(crate) times: u64,
}

#[derive(Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<QueuedNote>,
    limit: usize,
    dropped: u64,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: VecDeque::new(), limit: limit.max(1), dropped: 0 }
    }

    pub(crate) fn add(&mut self, note: Note) {
        let name = note.event_name();
        if let Some(same) = self.waiting.iter_mut().find(|waiting| waiting.name == name) {
            same.times += 1;
            return;
        }
        if self.waiting.len() >= self.limit
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.dropped += oldest.times;
        }
        self.waiting.push_back(QueuedNote { note, name, times: 1 });
    }

    pub(crate) fn take(&mut self) -> Option<QueuedNote> {
        self.waiting.pop_front()
    }

    pub(crate) fn drop_taken(&mut self, waiting: &QueuedNote) {
        self.dropped += waiting.times;
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::note::{ObjectReference, Severity};

    fn note(message: &str) -> Note {
        Note {
            object: ObjectReference { name: "x".into(), ..ObjectReference::default() },
            severity: Severity::Normal,
            reason: "R".into(),
            message: message.into(),
        }
    }

    #[test]
    fn equal_notes_are_merged_and_the_oldest_is_dropped() {
        let mut queue = Queue::new(2);
        for message in ["a", "a", "b", "a", "c"] {
            queue.add(note(message));
        }
        assert_eq!(queue.dropped(), 3);
        let rest: Vec<(String, u64)> =
            std::iter::from_fn(|| queue.take()).map(|waiting| (waiting.note.message, waiting.times)).collect();
        assert_eq!(rest, [("b".to_owned(), 1), ("c".to_owned(), 1)]);
    }
}
