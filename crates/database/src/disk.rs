//! Space and speed of the disk below a data directory.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// State of a disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    /// Bytes that may still be written.
    pub(crate) free: u64,
    /// Bytes of the database file.
    pub(crate) size: u64,
    /// Duration of a small write with its sync.
    pub(crate) sync: Duration,
}

/// Measures the disk: raft acknowledges an entry only when it is synced, so that is what counts.
pub(crate) fn look(directory: &Path, file: &Path) -> io::Result<Disk> {
    let space = rustix::fs::statvfs(directory)?;
    let size = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    let probe = directory.join(".sync-probe");
    let began = Instant::now();
    let mut target = File::create(&probe)?;
    target.write_all(&[0; 512])?;
    target.sync_data()?;
    let sync = began.elapsed();
    std::fs::remove_file(&probe)?;
    Ok(Disk { free: space.f_bavail.saturating_mul(space.f_frsize), size, sync })
}
