//! What to measure: every fault ten times, or as asked.

use anyhow::{Context, Result, bail};

use crate::fault::Fault;

/// Faults of each kind, unless asked otherwise. 100 is the full form.
const KILLS: usize = 10;
/// The part that measures northd; `--only` takes it beside the faults.
const NORTHD: &str = "northd";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) kills: usize,
    pub(crate) faults: Vec<Fault>,
    /// Whether to measure ovn-northd alone.
    pub(crate) northd: bool,
}

impl Options {
    pub(crate) fn read(words: &[String]) -> Result<Self> {
        let mut options = Self { kills: KILLS, faults: Fault::ALL.to_vec(), northd: true };
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
                _ => bail!("unknown argument {word:?}; expected --kills N or --only {}", names()),
            }
        }
        if options.kills == 0 {
            bail!("--kills must be at least 1");
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
    }

    #[test]
    fn wrong_arguments_are_refused_with_the_allowed_ones() {
        for words in [&["--kills"][..], &["--kills", "0"], &["--kills", "x"], &["--more"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
        assert!(read(&["--only", "etcd"]).unwrap_err().to_string().contains("nb-leader"));
    }
}
