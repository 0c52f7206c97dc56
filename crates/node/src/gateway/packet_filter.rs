//! The host's packet filter, carried by `nft`: our table as a whole, in one transaction, and only when it changes.

use gateway::{Facts, SHIELD, TABLE, filter, filter_fingerprint};

use super::openflow::run;

/// Our table, as it was last seen or written.
#[derive(Debug, Default)]
pub(super) struct PacketFilter {
    known: Option<Option<String>>,
}

impl PacketFilter {
    /// Makes the table what it shall be; returns whether that was needed. While not everything is known, one that is there
    /// stays as it is.
    pub(super) async fn carry(&mut self, facts: &Facts, complete: bool) -> Result<bool, String> {
        let wanted = filter(facts);
        let mark = filter_fingerprint(&wanted).map(str::to_owned);
        let known = match self.known.take() {
            Some(known) => known,
            None => installed().await?,
        };
        if known.is_some() && !complete {
            self.known = Some(known);
            return Ok(false);
        }
        if known != mark {
            run("nft", &["-f".to_owned(), "-".to_owned()], Some(&wanted)).await?;
        }
        let changed = known != mark;
        self.known = Some(mark);
        Ok(changed)
    }
}

/// Which content our table has.
async fn installed() -> Result<Option<String>, String> {
    let tables = run("nft", &words("list tables"), None).await?;
    if !tables.lines().any(|line| line.trim() == format!("table {TABLE}")) {
        return Ok(None);
    }
    let text = run("nft", &words(&format!("list table {TABLE}")), None).await?;
    Ok(filter_fingerprint(&text).map(str::to_owned))
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
