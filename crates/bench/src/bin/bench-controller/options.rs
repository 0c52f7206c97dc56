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
    /// With `pods`: the number of nodes, instead of one for each 50 pods.
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
                "--pods" => options.pods = Some(value()?.parse().context("--pods must be a number")?),
                "--nodes" => options.nodes = Some(value()?.parse().context("--nodes must be a number")?),
                _ => bail!("unknown argument {word:?}; expected --only {}, --pods N or --nodes N", PARTS.join(",")),
            }
        }
        if let Some(unknown) = options.only.iter().find(|part| !PARTS.contains(&part.as_str())) {
            bail!("unknown part {unknown:?}; choose from {}", PARTS.join(","));
        }
        if options.pods.is_some_and(|pods| pods < 100) {
            bail!("--pods must be at least 100: fewer cannot be measured");
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
