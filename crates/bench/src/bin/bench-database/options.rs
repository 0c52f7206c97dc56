//! What to measure: everything, or for a quick look some parts at a smaller size.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

/// The parts, by the names that `--only` takes.
pub(crate) const PARTS: [&str; 4] = ["small", "middle", "sync", "relay"];

#[derive(Debug, Default)]
pub(crate) struct Options {
    only: BTreeSet<String>,
    /// Divides every size by this.
    pub(crate) divisor: usize,
}

impl Options {
    pub(crate) fn read(words: &[String]) -> Result<Self> {
        let mut options = Self { only: BTreeSet::new(), divisor: 1 };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--divide" => options.divisor = value()?.parse().context("--divide must be a number")?,
                _ => bail!("unknown argument {word:?}; expected --only {} or --divide N", PARTS.join(",")),
            }
        }
        if let Some(unknown) = options.only.iter().find(|part| !PARTS.contains(&part.as_str())) {
            bail!("unknown part {unknown:?}; choose from {}", PARTS.join(","));
        }
        if !(1..=10).contains(&options.divisor) {
            bail!("--divide must be 1 to 10: less cannot be measured");
        }
        Ok(options)
    }

    /// Whether this part is to be measured.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.contains(part)
    }
}
