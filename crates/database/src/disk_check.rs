//! Checks the disk of a data directory, and compacts the database file before there is no space for that.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::assess;
use crate::checks::compact;
use crate::disk::{DiskProbe, Measured};
use crate::finding::{Finding, FindingKind};
use crate::manager_status::ManagerStatus;
use crate::metrics::Metrics;
use crate::options::Options;

/// A file that is smaller is not worth a compaction.
const WORTH_COMPACTING: u64 = 16 << 20;
/// The least time between two compactions because of the disk.
const COMPACTION_PERIOD: Duration = Duration::from_secs(600);

/// What is remembered between two checks.
#[derive(Debug, Default)]
pub(crate) struct DiskCheck {
    probe: DiskProbe,
    /// When the file was compacted because of the disk.
    compacted: Option<Instant>,
}

impl DiskCheck {
    /// Measures the disk. `control` is the socket of a running server, which can compact its file.
    pub(crate) async fn check(
        &mut self,
        options: &Options,
        control: Option<&Path>,
        metrics: &Metrics,
        status: &mut ManagerStatus,
    ) -> Vec<Finding> {
        let (kind, directory) = (options.kind, &options.data_directory);
        let disk = match self.probe.measure(directory, &kind.file(directory)).await {
            Measured::Done(Ok(disk)) => disk,
            Measured::Done(Err(error)) => {
                metrics.clear_disk();
                (status.file_bytes, status.disk_free_bytes) = (None, None);
                return vec![not_writable(directory, &error)];
            }
            Measured::Running(so_far) => return assess::disk(u64::MAX, 0, so_far),
        };
        metrics.set_disk(disk.size, disk.free, disk.sync.as_ref().ok().copied());
        status.file_bytes = Some(disk.size);
        status.disk_free_bytes = Some(disk.free);
        status.last_write = disk.written.and_then(timestamp);
        let sync = match disk.sync {
            Ok(sync) => sync,
            Err(error) => return vec![not_writable(directory, &error)],
        };
        let findings = assess::disk(disk.free, disk.size, sync);
        let full = findings.iter().any(|finding| finding.kind == FindingKind::DiskAlmostFull);
        let lately = self.compacted.is_some_and(|at| at.elapsed() < COMPACTION_PERIOD);
        let Some(control) = control else { return findings };
        if full && !lately && disk.size > WORTH_COMPACTING && disk.free > disk.size {
            match compact(control, kind).await {
                Ok(()) => {
                    self.compacted = Some(Instant::now());
                    tracing::warn!(database = kind.name(), "disk almost full; compacted the database");
                }
                // A raft leader hands over first, and compacts as a follower.
                Err(error) => {
                    tracing::warn!(
                        database = kind.name(), %error,
                        "disk almost full, and the compaction failed; retrying with the next check of the disk"
                    );
                }
            }
        }
        findings
    }
}

/// The finding of a data directory in which nothing can be written.
fn not_writable(directory: &Path, error: &std::io::Error) -> Finding {
    let text = format!("cannot write to data directory {}: {error}", directory.display());
    let unnamed = || Finding::new(FindingKind::DirectoryNotWritable, format!("{text}; check the disk"));
    assess::failure(&text).unwrap_or_else(unnamed)
}

fn timestamp(time: SystemTime) -> Option<String> {
    let milliseconds = time.duration_since(UNIX_EPOCH).ok()?.as_millis().try_into().ok()?;
    kubernetes::timestamp_of_milliseconds(milliseconds)
}
