//! What to measure: everything, or for a quick look some parts at a smaller size.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

/// The parts, by the names that `--only` takes.
pub(crate) const PARTS: [&str; 9] =
    ["growth", "steady", "burst", "backlog", "restart", "takeover", "policies", "services", "flows"];

#[derive(Debug, Default)]
pub(crate) struct Options {
    only: BTreeSet<String>,
    /// Instead of 1,000, 5,000 and 25,000.
    pub(crate) pods: Option<usize>,
    /// With `pods`: on so many nodes, instead of one for each 50.
    pub(crate) nodes: Option<usize>,
}

impl Options {
    pub(crate) fn read(words: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--pods" => options.pods = Some(value()?.parse().context("--pods takes a number")?),
                "--nodes" => options.nodes = Some(value()?.parse().context("--nodes takes a number")?),
                _ => bail!("{word:?} is not understood: it takes --only {}, --pods N and --nodes N", PARTS.join(",")),
            }
        }
        if let Some(unknown) = options.only.iter().find(|part| !PARTS.contains(&part.as_str())) {
            bail!("{unknown:?} is no part of this benchmark: choose from {}", PARTS.join(","));
        }
        if options.pods.is_some_and(|pods| pods < 100) {
            bail!("--pods takes 100 or more: with fewer there is nothing to measure");
        }
        Ok(options)
    }

    /// Whether this part is to be measured.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.contains(part)
    }

    /// Whether any of these is.
    pub(crate) fn wants_any(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.wants(part))
    }
}
