//! Reads the identities of files off the async threads, and each file again only when it has changed.
//!
//! After a compaction the first record of a file is a snapshot of the whole database, which takes seconds to read. A manager
//! that waits for a remedy asks for it every two seconds.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::file::FileState;

/// By which a changed file is recognized. The time of the inode's change is in it, because copies may keep the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// The states of files by path.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    known: BTreeMap<PathBuf, (Stamp, FileState)>,
}

impl FileCache {
    /// As [`FileState::read`].
    pub(crate) async fn read(&mut self, path: &Path) -> io::Result<FileState> {
        let (owned, known) = (path.to_owned(), self.known.get(path).cloned());
        let read = tokio::task::spawn_blocking(move || read(&owned, known)).await.map_err(io::Error::other)??;
        let state = read.as_ref().map_or(FileState::Missing, |(_, state)| state.clone());
        match read {
            Some(read) => self.known.insert(path.to_owned(), read),
            None => self.known.remove(path),
        };
        Ok(state)
    }
}

/// The state of a file with its stamp, known or read now; none without a file.
fn read(path: &Path, known: Option<(Stamp, FileState)>) -> io::Result<Option<(Stamp, FileState)>> {
    // Before the content: a change in between is then noticed by the next call.
    let stamp = match std::fs::metadata(path) {
        Ok(metadata) => Stamp::of(&metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match known {
        Some((before, state)) if before == stamp => Ok(Some((stamp, state))),
        _ => Ok(Some((stamp, FileState::read(path)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_again_only_when_it_has_changed() {
        let path = std::env::temp_dir().join(format!("file-cache-{}", std::process::id()));
        let mut files = FileCache::default();
        assert_eq!(files.read(&path).await.unwrap(), FileState::Missing);
        std::fs::write(&path, [0; 64]).unwrap();
        let zeros = FileState::Damaged("filled with zeros".into());
        assert_eq!(files.read(&path).await.unwrap(), zeros);
        // An entry that no file has shows that the file was not read.
        let invented = FileState::Standalone("not read".into());
        let metadata = std::fs::metadata(&path).unwrap();
        files.known.insert(path.clone(), (Stamp::of(&metadata), invented.clone()));
        assert_eq!(files.read(&path).await.unwrap(), invented);
        // Another file of the same size and time of modification.
        let other = path.with_extension("other");
        std::fs::write(&other, [1; 64]).unwrap();
        std::fs::File::open(&other).unwrap().set_modified(metadata.modified().unwrap()).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(files.read(&path).await.unwrap(), FileState::Damaged("not an OVSDB file".into()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(files.read(&path).await.unwrap(), FileState::Missing);
    }
}
