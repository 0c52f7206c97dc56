//! Warnings and errors of a daemon, kept for its manager.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The oldest of more are dropped.
const MOST: usize = 64;
/// So many are kept after they were taken.
const RECENT: usize = 8;

#[derive(Debug, Default)]
struct Lines {
    recent: VecDeque<String>,
    new: VecDeque<String>,
}

/// Warnings and errors in a daemon's log; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Lines>>);

impl Warnings {
    pub(crate) fn push(&self, line: String) {
        let mut lines = self.lock();
        push(&mut lines.recent, line.clone(), RECENT);
        push(&mut lines.new, line, MOST);
    }

    /// The latest lines, oldest first: an exit has its cause in the first of them, and its consequences in the others.
    pub fn recent(&self) -> Vec<String> {
        self.lock().recent.iter().cloned().collect()
    }

    /// Lines since the last call; of very many, the latest.
    pub fn take(&self) -> Vec<String> {
        self.lock().new.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(lines: &mut VecDeque<String>, line: String, most: usize) {
    if lines.len() == most {
        lines.pop_front();
    }
    lines.push_back(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_lines_are_kept_and_taken_once() {
        let warnings = Warnings::default();
        (0..MOST + 2).for_each(|number| warnings.push(number.to_string()));
        let lines = warnings.take();
        assert_eq!((lines.len(), lines[0].as_str()), (MOST, "2"));
        assert!(warnings.take().is_empty());
        let recent = warnings.recent();
        assert_eq!((recent.len(), recent[0].as_str(), recent[RECENT - 1].as_str()), (RECENT, "58", "65"));
    }
}
