//! Whether the file of a running server is still the one that it writes.
//!
//! A server keeps its file open: one that is deleted, replaced or overwritten under it changes nothing until it restarts. Then
//! everything that it acknowledged is lost with it.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The start of a raft member's file.
const MAGIC: &[u8] = b"OVSDB CLUSTER ";

/// What lies at the path of a running server's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LiveFile {
    /// The file that the server writes.
    Intact,
    /// Nothing that could be lost: it is missing, or not a database any more.
    Lost(&'static str),
    /// Another file, which must not be overwritten.
    Other(&'static str),
}

/// Compares the file at the path with the one that the process has open. An error means that the file's state is unknown.
pub(crate) fn inspect(process: u32, path: &Path) -> io::Result<LiveFile> {
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LiveFile::Lost("is missing")),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    let mut start = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start)?;
    if start.starts_with(b"OVSDB JSON ") {
        return Ok(LiveFile::Other("is a standalone database"));
    }
    // This descriptor must not count.
    drop(file);
    let own = is_open(process, &metadata)?;
    Ok(match (start == MAGIC, own) {
        (true, true) => LiveFile::Intact,
        (true, false) => LiveFile::Other("is another file than the one that the server writes"),
        (false, _) if start.is_empty() => LiveFile::Lost("is empty"),
        (false, _) => LiveFile::Lost("is overwritten"),
    })
}

fn is_open(process: u32, file: &std::fs::Metadata) -> io::Result<bool> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let mut open = entries.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    Ok(open.any(|open| (open.dev(), open.ino()) == (file.dev(), file.ino())))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_that_is_gone_or_replaced_is_noticed() {
        let path = std::env::temp_dir().join(format!("live-{}", std::process::id()));
        let own = std::process::id();
        assert_eq!(inspect(own, &path).unwrap(), LiveFile::Lost("is missing"));
        let mut open = std::fs::File::create(&path).unwrap();
        assert_eq!(inspect(own, &path).unwrap(), LiveFile::Lost("is empty"));
        open.write_all(b"OVSDB CLUSTER 1 2\n").unwrap();
        assert_eq!(inspect(own, &path).unwrap(), LiveFile::Intact);
        std::fs::write(&path, b"OVSDB JSON 1 2\n").unwrap();
        assert!(matches!(inspect(own, &path).unwrap(), LiveFile::Other(_)));
        std::fs::write(&path, [0; 64]).unwrap();
        assert_eq!(inspect(own, &path).unwrap(), LiveFile::Lost("is overwritten"));
        // Another inode with the same content.
        let other = path.with_extension("other");
        std::fs::write(&other, b"OVSDB CLUSTER 1 2\n").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(matches!(inspect(own, &path).unwrap(), LiveFile::Other(_)));
        std::fs::remove_file(&path).unwrap();
    }
}
