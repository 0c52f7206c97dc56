//! Space and speed of the disk below a data directory.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tokio::task::JoinHandle;

/// A measurement that takes longer is reported before it ends.
const LIMIT: Duration = Duration::from_secs(5);

/// One measurement of the data directory.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Bytes that may still be written.
    pub(crate) free: u64,
    /// Bytes of the database file.
    pub(crate) size: u64,
    /// When the database file was written.
    pub(crate) written: Option<SystemTime>,
    /// Duration of a small write with its sync; on a full disk it fails.
    pub(crate) sync: io::Result<Duration>,
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
        // It stays there while it is awaited: a caller that is cancelled must not leave a thread behind on a disk that hangs.
        let (began, task) = self.running.get_or_insert_with(start);
        let result = match tokio::time::timeout(LIMIT, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => return Measured::Running(began.elapsed()),
        };
        self.running = None;
        Measured::Done(result)
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
    let took = began.elapsed();
    // Also what could not be written: a full disk needs its inodes.
    let removed = std::fs::remove_file(&probe);
    let sync = written.and(removed).map(|()| took);
    Ok(Disk {
        free: space.f_bavail.saturating_mul(space.f_frsize),
        size: metadata.as_ref().map_or(0, std::fs::Metadata::len),
        written: metadata.and_then(|metadata| metadata.modified().ok()),
        sync,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("disk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn free_space_is_known_also_if_nothing_can_be_written() {
        let directory = directory("blocked");
        let file = directory.join("nb.db");
        std::fs::write(&file, [0; 100]).unwrap();
        assert!(measure(&directory, &file).unwrap().sync.is_ok());
        // In the place of the file that is written.
        std::fs::create_dir(directory.join(".nb.sync-probe")).unwrap();
        let disk = measure(&directory, &file).unwrap();
        assert!(disk.sync.is_err() && disk.free > 0 && disk.size == 100, "{disk:?}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_cancelled_measurement_is_awaited_by_the_next_one() {
        let directory = directory("hung");
        // To open a pipe for writing waits for a reader, as a disk that hangs does.
        let pipe = directory.join(".nb.sync-probe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let (mut probe, file) = (DiskProbe::default(), directory.join("nb.db"));
        let mut began = Vec::new();
        for _ in 0..3 {
            let cancelled = tokio::time::timeout(Duration::from_millis(20), probe.measure(&directory, &file)).await;
            assert!(cancelled.is_err(), "the pipe has no reader");
            began.push(probe.running.as_ref().unwrap().0);
        }
        assert!(began.iter().all(|at| *at == began[0]), "a measurement was started in addition to the one that hangs");
        let reader = File::open(&pipe).unwrap();
        assert!(matches!(probe.measure(&directory, &file).await, Measured::Done(Ok(_))));
        assert!(probe.running.is_none());
        drop(reader);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
