//! What to measure: every fault ten times, or as asked.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::fault::Fault;

/// Faults of each kind, unless asked otherwise. 100 is the full form.
const KILLS: usize = 10;
/// The part that measures northd; `--only` takes it beside the faults.
const NORTHD: &str = "northd";

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) kills: usize,
    pub(crate) faults: Vec<Fault>,
    /// Whether to measure ovn-northd alone.
    pub(crate) northd: bool,
    /// File of single measurements, to which those of this run are appended; figures are then of all that count.
    pub(crate) append: Option<PathBuf>,
    /// Commits whose samples in that file count beside those of the present one.
    pub(crate) commits: Vec<String>,
}

impl Options {
    pub(crate) fn read(words: &[String]) -> Result<Self> {
        let mut options = Self { kills: KILLS, faults: Fault::ALL.to_vec(), northd: true, ..Self::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--kills" => options.kills = value()?.parse().context("--kills must be a number")?,
                "--only" => {
                    let names: Vec<&str> = value()?.split(',').collect();
                    options.northd = names.contains(&NORTHD);
                    let faults = names.into_iter().filter(|name| *name != NORTHD);
                    options.faults = faults.map(named).collect::<Result<_>>()?;
                }
                "--append" => options.append = Some(value()?.into()),
                "--commits" => options.commits = value()?.split(',').map(str::to_owned).collect(),
                _ => bail!(
                    "unknown argument {word:?}; expected --kills N, --append FILE, --commits A,B, or --only {}",
                    names()
                ),
            }
        }
        if options.kills == 0 && options.append.is_none() {
            bail!("--kills must be at least 1; 0 only shows what the file of --append has");
        }
        if !options.commits.is_empty() && options.append.is_none() {
            bail!("--commits selects samples of a file; name it with --append");
        }
        Ok(options)
    }
}

fn named(name: &str) -> Result<Fault> {
    let found = Fault::ALL.into_iter().find(|fault| fault.name() == name);
    found.with_context(|| format!("unknown fault {name:?}; choose from {}", names()))
}

fn names() -> String {
    format!("{NORTHD},{}", Fault::ALL.map(Fault::name).join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options> {
        Options::read(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn faults_and_their_number_can_be_chosen() {
        let all = read(&[]).unwrap();
        assert_eq!((all.kills, all.faults.len()), (10, Fault::ALL.len()));
        let some = read(&["--kills", "100", "--only", "nb-leader,node"]).unwrap();
        assert_eq!((some.kills, some.faults, some.northd), (100, vec![Fault::NbLeader, Fault::Node], false));
        let northd = read(&["--only", "northd"]).unwrap();
        assert_eq!((northd.faults, northd.northd), (vec![], true));
        let shown = read(&["--kills", "0", "--append", "samples", "--commits", "abc,def"]).unwrap();
        assert_eq!((shown.kills, shown.append, shown.commits.len()), (0, Some("samples".into()), 2));
    }

    #[test]
    fn wrong_arguments_are_refused_with_the_allowed_ones() {
        for words in [&["--kills"][..], &["--kills", "0"], &["--kills", "x"], &["--more"], &["--commits", "abc"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
        assert!(read(&["--only", "etcd"]).unwrap_err().to_string().contains("nb-leader"));
    }
}
