//! Reports of drift: northbound rows of ours that another client changed, and that were restored.
//!
//! A client that empties a table changes thousands of rows at once. Every row is counted; log lines and Events are limited,
//! and the rest is summed up.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;
use topology::engine::{ObjectRef, RestoredRow};
use topology::identity::Owner;

use crate::effect_runner::EffectRunner;

/// Most owners to report in one window.
const MAX_REPORTS: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// Most rows to name in one report.
const MAX_NAMED: usize = 5;
const REASON: &str = "NetworkRowsRestored";

/// Rate limit of the reports.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    window: Cell<Option<Instant>>,
    reported: Cell<u32>,
    /// Number of owners and rows that were not reported.
    omitted: Cell<(u32, usize)>,
}

impl Repairs {
    /// Reports the restored rows of one owner.
    pub(crate) fn restored(
        &self,
        owner: &Owner,
        object: Option<ObjectRef>,
        rows: &[RestoredRow],
        effects: &EffectRunner,
    ) {
        for row in rows {
            effects.metrics.restored(row.table);
        }
        self.flush();
        if self.reported.get() >= MAX_REPORTS {
            let (owners, omitted) = self.omitted.get();
            return self.omitted.set((owners + 1, omitted + rows.len()));
        }
        self.reported.set(self.reported.get() + 1);
        let rows = summary(rows);
        tracing::warn!(%owner, rows, "another client changed northbound rows of ours; restored them");
        if let Some(object) = object {
            let message = format!(
                "another client changed or deleted rows of this object in the northbound database; they were restored: {rows}"
            );
            effects.record(object, REASON, message);
        }
    }

    /// Starts a new window when the last one is over, and logs what that one left out.
    pub(crate) fn flush(&self) {
        let now = Instant::now();
        if self.window.get().is_some_and(|began| now.duration_since(began) < WINDOW) {
            return;
        }
        let (owners, rows) = self.omitted.take();
        if owners > 0 {
            tracing::warn!(owners, rows, "another client changed more northbound rows of ours; restored them");
        }
        self.window.set(Some(now));
        self.reported.set(0);
    }
}

/// The names of the first rows, and the number of the others.
fn summary(rows: &[RestoredRow]) -> String {
    let named: Vec<String> = rows.iter().take(MAX_NAMED).map(|row| format!("{} {}", row.table, row.name)).collect();
    match rows.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_are_summed_up() {
        let rows = |count: usize| -> Vec<RestoredRow> {
            (0..count).map(|number| RestoredRow { table: "ACL", name: number.to_string() }).collect()
        };
        assert_eq!(summary(&rows(2)), "ACL 0, ACL 1");
        assert_eq!(summary(&rows(7)), "ACL 0, ACL 1, ACL 2, ACL 3, ACL 4 and 2 more");
    }
}
