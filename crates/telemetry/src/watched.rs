//! Files that are read again when they change. A version that cannot be used is logged once, and the last usable one stays.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Identifies a version of a file: kubelet replaces files by new ones, others write into them.
type Stamp = (u64, u64, i64, i64, u64);

/// What was made of some files.
#[derive(Debug)]
pub struct Watched<T> {
    /// The subject of log lines.
    what: &'static str,
    paths: Vec<PathBuf>,
    /// The version that was read last, usable or not; none for a missing file.
    seen: Option<Vec<Option<Stamp>>>,
    usable: Option<T>,
    problem: Option<String>,
}

impl<T> Watched<T> {
    /// Reads nothing yet. `what` begins the lines of the log about these files.
    pub fn new(what: &'static str, paths: Vec<PathBuf>) -> Self {
        Self { what, paths, seen: None, usable: None, problem: None }
    }

    /// The last usable version.
    pub fn usable(&self) -> Option<&T> {
        self.usable.as_ref()
    }

    /// Why the present version of the files cannot be used.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Reads the files if they have changed, or could not be used. True if there is a new usable version.
    pub fn refresh(&mut self, load: impl FnOnce() -> Result<T, String>) -> bool {
        // Before reading: a change meanwhile is seen the next time.
        let stamps: Vec<_> = self.paths.iter().map(|path| stamp(path)).collect();
        if self.problem.is_none() && self.seen.as_ref() == Some(&stamps) {
            return false;
        }
        self.seen = Some(stamps);
        match load() {
            Ok(value) => {
                if self.usable.is_some() {
                    tracing::info!("{} reloaded", self.what);
                }
                (self.usable, self.problem) = (Some(value), None);
                true
            }
            Err(error) => {
                if self.problem.as_ref() != Some(&error) {
                    let next = if self.usable.is_some() { "the previous version stays in effect" } else { "retrying" };
                    tracing::warn!(error, "{} cannot be used; {next}", self.what);
                }
                self.problem = Some(error);
                false
            }
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_cannot_be_used_does_not_replace_one_that_could() {
        let path = std::env::temp_dir().join(format!("watched-{}", std::process::id()));
        let mut number = Watched::new("number", vec![path.clone()]);
        let read = |number: &mut Watched<u32>| {
            number.refresh(|| {
                let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
                text.parse().map_err(|error: std::num::ParseIntError| error.to_string())
            })
        };
        assert!(!read(&mut number) && number.usable().is_none() && number.problem().is_some());
        std::fs::write(&path, "1").unwrap();
        assert!(read(&mut number) && !read(&mut number));
        std::fs::write(&path, "no number").unwrap();
        assert!(!read(&mut number) && number.problem().is_some());
        assert_eq!(number.usable(), Some(&1));
        std::fs::write(&path, "22").unwrap();
        assert!(read(&mut number) && number.problem().is_none());
        assert_eq!(number.usable(), Some(&22));
        std::fs::remove_file(path).unwrap();
    }
}
