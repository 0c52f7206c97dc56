//! The host's packet filter, carried by `nft`: our table as a whole, in one transaction, and only when it changes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use gateway::{Facts, SHIELD, TABLE, filter, filter_fingerprint};

use super::openflow::run;

/// Our table, as it was last seen or written.
#[derive(Debug, Default)]
pub(super) struct PacketFilter {
    /// Which content it has; nothing while that has to be looked at.
    known: Option<Content>,
    /// How a content looks that is as we wrote it: its mark, and a sum of what `nft` prints.
    whole: Option<(String, u64)>,
}

/// Which content a table has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// There is no table.
    Nothing,
    /// One that we wrote, by its mark.
    Ours(String),
    /// Something else.
    Spoilt,
}

impl PacketFilter {
    /// Makes the table what it shall be; returns whether that was needed. While not everything is known, one that is there
    /// stays as it is.
    pub(super) async fn carry(&mut self, facts: &Facts, complete: bool) -> Result<bool, String> {
        let wanted = filter(facts);
        let mark = filter_fingerprint(&wanted).map_or(Content::Nothing, |mark| Content::Ours(mark.to_owned()));
        let known = match self.known.take() {
            Some(known) => known,
            None => self.look().await?,
        };
        if known != Content::Nothing && !complete {
            self.known = Some(known);
            return Ok(false);
        }
        let changed = known != mark;
        if changed {
            run("nft", &["-f".to_owned(), "-".to_owned()], Some(&wanted)).await?;
            // How it looks before anybody else comes to it.
            self.whole = None;
            self.look().await?;
        }
        self.known = Some(mark);
        Ok(changed)
    }

    /// Others may have changed it.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Looks at the table. The first look at a content shows how it is when it is whole: its mark stays where its rules are taken
    /// away.
    async fn look(&mut self) -> Result<Content, String> {
        let tables = run("nft", &words("list tables"), None).await?;
        let is_there = |table: &str| tables.lines().any(|line| line.trim().strip_prefix("table ") == Some(table));
        if !is_there(TABLE) {
            return Ok(Content::Nothing);
        }
        let mut text = String::new();
        for table in [TABLE, SHIELD].into_iter().filter(|table| is_there(table)) {
            match run("nft", &words(&format!("--stateless list table {table}")), None).await {
                Ok(listed) => text += &listed,
                // Somebody deleted it since it was named.
                Err(_) => return Ok(Content::Spoilt),
            }
        }
        let Some(mark) = filter_fingerprint(&text) else { return Ok(Content::Spoilt) };
        let mut sum = DefaultHasher::new();
        text.hash(&mut sum);
        let seen = (mark.to_owned(), sum.finish());
        if self.whole.as_ref().is_some_and(|whole| whole.0 == seen.0 && whole.1 != seen.1) {
            return Ok(Content::Spoilt);
        }
        self.whole = Some(seen);
        Ok(Content::Ours(mark.to_owned()))
    }
}

/// Removes our tables; they may be gone already.
pub(super) async fn remove() -> Result<(), String> {
    let text: String =
        [TABLE, SHIELD].iter().map(|table| format!("table {table} {{}}\ndelete table {table}\n")).collect();
    run("nft", &["-f".to_owned(), "-".to_owned()], Some(&text)).await.map(drop)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
