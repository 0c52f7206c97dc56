//! Debian packages beside the node image: extracted, not installed, because few labs need them.

use std::path::{Path, PathBuf};

use crate::directories::{CACHE_VARIABLE, Directories, require_space};
use crate::error::{Error, Result, create_dir, remove_tree};
use crate::image;
use crate::progress::Progress;
use crate::spec::Suite;

/// Root of the files of a package and what it needs; from the cache, or fetched (as root).
pub(crate) fn ensure(
    directories: &Directories,
    suite: Suite,
    package: &str,
    space_mib: u64,
    progress: &Progress,
) -> Result<PathBuf> {
    let parent = directories.cache().join(package);
    let root = parent.join(suite.as_str());
    if root.exists() {
        return Ok(root);
    }
    create_dir(&parent)?;
    require_space(&parent, package, space_mib, CACHE_VARIABLE)?;
    let path = parent.join(format!("{}.lock", suite.as_str()));
    let lock = std::fs::File::create(&path).map_err(Error::io(format!("cannot write {}", path.display())))?;
    // Another process may be fetching it: wait, then check again.
    lock.lock().map_err(Error::io(format!("cannot lock {}", path.display())))?;
    if !root.exists() {
        progress.step(package, || fetch(suite, package, &parent, &root, |line| progress.note(package, line)))?;
    }
    Ok(root)
}

fn fetch(suite: Suite, package: &str, parent: &Path, root: &Path, note: impl Fn(&str) + Sync) -> Result<()> {
    // Under another name first, so that a directory with the final name is always complete.
    let unfinished = parent.join(format!("{}.unfinished", suite.as_str()));
    remove_tree(&unfinished)?;
    create_dir(&unfinished)?;
    // Nothing of it is configured or started.
    let extracted = image::bootstrap(package, suite, &[package], &["--variant=extract"], &unfinished, note);
    if extracted.is_err() {
        let _ = remove_tree(&unfinished);
    }
    extracted?;
    std::fs::rename(&unfinished, root).map_err(Error::io(format!("cannot move {package} to {}", root.display())))
}
