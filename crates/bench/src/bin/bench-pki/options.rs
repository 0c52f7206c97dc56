//! What to measure: everything, or for a quick look some parts with fewer sessions.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

/// The parts, by the names that `--only` takes.
const PARTS: [&str; 4] = ["rotation", "nodes", "listener", "tls"];
/// Nodes of the rotation.
const SESSIONS: usize = 500;

#[derive(Debug)]
pub(crate) struct Options {
    only: BTreeSet<String>,
    pub(crate) sessions: usize,
}

impl Options {
    pub(crate) fn read(words: &[String]) -> Result<Self> {
        let mut options = Self { only: BTreeSet::new(), sessions: SESSIONS };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--sessions" => options.sessions = value()?.parse().context("--sessions must be a number")?,
                _ => bail!("unknown argument {word:?}; expected --only {} or --sessions N", PARTS.join(",")),
            }
        }
        if let Some(unknown) = options.only.iter().find(|part| !PARTS.contains(&part.as_str())) {
            bail!("unknown part {unknown:?}; choose from {}", PARTS.join(","));
        }
        if options.sessions == 0 {
            bail!("--sessions must be at least 1");
        }
        Ok(options)
    }

    /// Whether this part is to be measured.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.contains(part)
    }
}
