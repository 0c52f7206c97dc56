//! nftables rules of the host, changed with `nft`: the whole table in one transaction, and only if it differs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use gateway::{Facts, TABLE, UPLINK_TABLE, filter, filter_fingerprint};

use super::process::{CommandError, run};

/// The table as it was last read or written.
#[derive(Debug, Default)]
pub(super) struct PacketFilter {
    /// None if it must be read.
    current: Option<Content>,
    /// Fingerprint of a table as ovnkube wrote it, and a hash of its listing: a change by another client alters only the latter.
    unmodified: Option<(String, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Absent,
    /// As ovnkube wrote it, with this fingerprint.
    Written(String),
    /// Changed by another client.
    Modified,
}

impl PacketFilter {
    /// Replaces the table if it differs; returns whether it did. Unless `complete`, an existing table is left alone.
    pub(super) async fn apply(&mut self, facts: &Facts, complete: bool) -> Result<bool, CommandError> {
        let text = filter(facts);
        let desired = filter_fingerprint(&text).map_or(Content::Absent, |mark| Content::Written(mark.to_owned()));
        let current = match self.current.take() {
            Some(current) => current,
            None => self.read().await?,
        };
        if current != Content::Absent && !complete {
            self.current = Some(current);
            return Ok(false);
        }
        let changed = current != desired;
        if changed {
            run("nft", &["-f".to_owned(), "-".to_owned()], Some(&text)).await?;
            // Records the listing before another client can change the table.
            self.unmodified = None;
            self.read().await?;
        }
        self.current = Some(desired);
        Ok(changed)
    }

    /// Another client may have changed the table: read it again.
    pub(super) fn invalidate(&mut self) {
        self.current = None;
    }

    /// Reads the table. The fingerprint in its comment survives the deletion of rules, so the listing is hashed too; the first
    /// listing with a fingerprint is taken as unmodified.
    async fn read(&mut self) -> Result<Content, CommandError> {
        let tables = run("nft", &words("list tables"), None).await?;
        let exists = |table: &str| tables.lines().any(|line| line.trim().strip_prefix("table ") == Some(table));
        if !exists(TABLE) {
            return Ok(Content::Absent);
        }
        let mut text = String::new();
        for table in [TABLE, UPLINK_TABLE].into_iter().filter(|table| exists(table)) {
            match run("nft", &words(&format!("--stateless list table {table}")), None).await {
                Ok(listed) => text += &listed,
                // Deleted since it was listed.
                Err(_) => return Ok(Content::Modified),
            }
        }
        let Some(mark) = filter_fingerprint(&text) else { return Ok(Content::Modified) };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let (mark, hash) = (mark.to_owned(), hasher.finish());
        if self.unmodified.as_ref().is_some_and(|known| known.0 == mark && known.1 != hash) {
            return Ok(Content::Modified);
        }
        self.unmodified = Some((mark.clone(), hash));
        Ok(Content::Written(mark))
    }
}

/// Removes the tables, whether or not they exist.
pub(super) async fn remove() -> Result<(), CommandError> {
    let text: String =
        [TABLE, UPLINK_TABLE].iter().map(|table| format!("table {table} {{}}\ndelete table {table}\n")).collect();
    run("nft", &["-f".to_owned(), "-".to_owned()], Some(&text)).await.map(drop)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
