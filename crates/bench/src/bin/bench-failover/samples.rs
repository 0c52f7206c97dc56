//! Single measurements, kept across runs as JSON lines: a hundred faults of each kind take longer than one sitting.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cluster::Times;
use crate::fault::Fault;

/// One line: a fault with its times in seconds, or, after the last fault of a series, the connections that the series lost.
#[derive(Debug, Serialize, Deserialize)]
struct Sample {
    fault: String,
    /// The source that was measured.
    commit: String,
    date: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wired: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ready: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

/// A file of samples.
#[derive(Debug)]
pub(crate) struct Samples {
    path: PathBuf,
    commit: String,
    /// The commits whose samples count.
    commits: BTreeSet<String>,
}

impl Samples {
    /// Samples of this source are appended; those of `commits` count as well. Figures of a changed tree could not be attributed.
    pub(crate) fn open(path: &Path, commits: &[String]) -> Result<Self> {
        let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "crates", "deploy", "Cargo.lock"])?;
        ensure!(changed.is_empty(), "--append: the tree has changes; commit them first, or measure without --append");
        let commits = commits.iter().cloned().chain([commit.clone()]).collect();
        let samples = Self { path: path.to_owned(), commit, commits };
        samples.read()?;
        Ok(samples)
    }

    /// Appends one fault at once: the run may be interrupted.
    pub(crate) fn add(&self, fault: Fault, times: &Times) -> Result<()> {
        let [wired, ready] = [times.wired, times.ready].map(|time| Some(time.as_secs_f64()));
        self.append(&Sample { wired, ready, ..self.sample(fault) })
    }

    /// Appends the lost connections of a series.
    pub(crate) fn add_lost(&self, fault: Fault, lost: u64) -> Result<()> {
        self.append(&Sample { lost: Some(lost), ..self.sample(fault) })
    }

    /// All times of a fault that count, and the lost connections.
    pub(crate) fn of(&self, fault: Fault) -> Result<(Vec<Times>, u64)> {
        let samples = self.read()?;
        let counted = samples.iter().filter(|one| one.fault == fault.name() && self.commits.contains(&one.commit));
        let seconds = |value: f64| Duration::try_from_secs_f64(value).ok();
        let times = |one: &Sample| Some(Times { wired: seconds(one.wired?)?, ready: seconds(one.ready?)? });
        Ok((counted.clone().filter_map(times).collect(), counted.filter_map(|one| one.lost).sum()))
    }

    fn sample(&self, fault: Fault) -> Sample {
        let (fault, commit) = (fault.name().to_owned(), self.commit.clone());
        Sample { fault, commit, date: jiff::Timestamp::now().to_string(), wired: None, ready: None, lost: None }
    }

    fn append(&self, sample: &Sample) -> Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).with_context(cannot)?;
        file.write_all(format!("{}\n", serde_json::to_string(sample)?).as_bytes()).with_context(cannot)
    }

    fn read(&self) -> Result<Vec<Sample>> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        };
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line)
                .with_context(|| format!("line {} of {} is not a sample", number + 1, self.path.display()))
        };
        text.lines().enumerate().map(parse).collect()
    }
}

fn git(words: &[&str]) -> Result<String> {
    let output = Command::new("git").args(words).output().context("cannot run git, which names the measured source")?;
    ensure!(output.status.success(), "git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_listed_commits_count_and_others_stay() {
        let path = std::env::temp_dir().join(format!("failover-samples-{}", std::process::id()));
        let at = |commit: &str, listed: &[&str]| Samples {
            path: path.clone(),
            commit: commit.into(),
            commits: listed.iter().map(ToString::to_string).collect(),
        };
        let times = |seconds| Times { wired: Duration::from_secs(seconds), ready: Duration::from_secs(seconds + 1) };
        assert_eq!(at("one", &["one"]).of(Fault::NbLeader).unwrap().0.len(), 0, "no file yet");
        at("one", &[]).add(Fault::NbLeader, &times(1)).unwrap();
        at("one", &[]).add_lost(Fault::NbLeader, 2).unwrap();
        at("two", &[]).add(Fault::NbLeader, &times(2)).unwrap();
        at("two", &[]).add(Fault::Node, &times(9)).unwrap();
        let (both, lost) = at("two", &["one", "two"]).of(Fault::NbLeader).unwrap();
        assert_eq!((both.iter().map(|one| one.ready.as_secs()).collect::<Vec<_>>(), lost), (vec![2, 3], 2));
        let (own, lost) = at("two", &["two"]).of(Fault::NbLeader).unwrap();
        assert_eq!((own.len(), own[0].wired, lost), (1, Duration::from_secs(2), 0));

        std::fs::write(&path, "{}\n").unwrap();
        let error = format!("{:#}", at("one", &["one"]).of(Fault::Node).unwrap_err());
        assert!(error.contains("line 1") && error.contains("is not a sample"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
