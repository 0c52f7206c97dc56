//! Space and speed of the disk below a data directory.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tokio::task::JoinHandle;

/// A measurement that takes longer is reported before it ends.
const LIMIT: Duration = Duration::from_secs(5);

/// One measurement of the data directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    /// Bytes that may still be written.
    pub(crate) free: u64,
    /// Bytes of the database file.
    pub(crate) size: u64,
    /// When the database file was written.
    pub(crate) written: Option<SystemTime>,
    /// Duration of a small write with its sync.
    pub(crate) sync: Duration,
}

/// Result of a measurement.
#[derive(Debug)]
pub(crate) enum Measured {
    Done(io::Result<Disk>),
    /// It has not ended after this long: the disk hangs.
    Running(Duration),
}

/// Measures a disk, in a thread of its own: one that hangs must not stop its caller.
#[derive(Debug, Default)]
pub(crate) struct DiskProbe {
    running: Option<(Instant, JoinHandle<io::Result<Disk>>)>,
}

impl DiskProbe {
    /// Measures, or waits for the measurement that has not ended yet.
    pub(crate) async fn measure(&mut self, directory: &Path, file: &Path) -> Measured {
        let (directory, file): (PathBuf, PathBuf) = (directory.into(), file.into());
        let start = || (Instant::now(), tokio::task::spawn_blocking(move || measure(&directory, &file)));
        let (began, mut task) = self.running.take().unwrap_or_else(start);
        match tokio::time::timeout(LIMIT, &mut task).await {
            Ok(Ok(result)) => Measured::Done(result),
            Ok(Err(error)) => Measured::Done(Err(io::Error::other(error))),
            Err(_) => {
                self.running = Some((began, task));
                Measured::Running(began.elapsed())
            }
        }
    }
}

/// Raft acknowledges an entry only when it is synced, so that is what counts.
fn measure(directory: &Path, file: &Path) -> io::Result<Disk> {
    let space = rustix::fs::statvfs(directory)?;
    let metadata = std::fs::metadata(file).ok();
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    // Both databases may share the directory.
    let probe = directory.join(format!(".{name}.sync-probe"));
    let began = Instant::now();
    let written = File::create(&probe).and_then(|mut target| {
        target.write_all(&[0; 512])?;
        target.sync_data()
    });
    let sync = began.elapsed();
    // Also what could not be written: a full disk needs its inodes.
    let removed = std::fs::remove_file(&probe);
    written.and(removed)?;
    Ok(Disk {
        free: space.f_bavail.saturating_mul(space.f_frsize),
        size: metadata.as_ref().map_or(0, std::fs::Metadata::len),
        written: metadata.and_then(|metadata| metadata.modified().ok()),
        sync,
    })
}
