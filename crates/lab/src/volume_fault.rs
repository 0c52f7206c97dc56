//! Faults of volumes: lost, full, slow, read-only. They affect running pods at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::inspect;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::record::Record;
use crate::slow_disk::Freezer;
use crate::volumes::Volume;

/// A write that waits longer than this looks like a dead disk.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// A fault of a volume that lasts until it is healed; dropping the value changes nothing.
#[derive(Debug, Clone)]
pub struct VolumeFault {
    volume: Volume,
    machine: Machine,
    /// The machine's `/run` on the host.
    run: PathBuf,
    what: String,
}

impl std::fmt::Display for VolumeFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "volume {} ({} on {}): {}", self.volume.name(), self.volume.path(), self.machine.name, self.what)
    }
}

impl VolumeFault {
    fn new(record: &Record, dir: &Path, volume: Volume) -> Result<Self> {
        let machine = inspect::machine(record, &volume.node())?;
        let run = inspect::machine_dir(dir, &machine.name).join("run");
        Ok(Self { volume, machine, run, what: String::new() })
    }

    /// Undoes all faults of the volume. Lost files stay lost.
    pub fn heal(self) -> Result<()> {
        self.undo().map(|_| ())
    }

    fn path(&self) -> String {
        self.volume.path()
    }

    fn freezer(&self) -> Freezer {
        Freezer::new(&self.machine, &self.run, self.volume.name())
    }

    /// Undoes all faults of the volume; true if there was one.
    fn undo(&self) -> Result<bool> {
        let was_slow = self.freezer().stop()?;
        let script = "immutable=$(lsattr -d \"$1\" | cut -d' ' -f1 | grep -c i); chattr -R -i \"$1\"; \
                      full=$(ls \"$1/.filler\" 2>/dev/null | wc -l); rm -f \"$1/.filler\"; echo $((immutable + full))";
        let undone = self.machine.run(&["sh", "-c", script, "heal", &self.path()])?;
        Ok(was_slow || undone.trim() != "0")
    }
}

/// Deletes everything on a volume, as if an empty one had been attached.
pub(crate) fn lose(record: &Record, dir: &Path, volume: &str) -> Result<VolumeFault> {
    let mut fault = VolumeFault::new(record, dir, Volume::find(record, volume)?)?;
    // A running server may create or remove a file meanwhile, which fails a deletion.
    let script = "find \"$1\" -mindepth 1 -type f | wc -l; \
                  for attempt in 1 2 3 4 5; do find \"$1\" -mindepth 1 -ignore_readdir_race -delete && exit; done; exit 1";
    let files = fault.machine.run(&["sh", "-c", script, "lose", &fault.path()])?;
    fault.what = format!("lost {} files; it is empty", files.trim());
    Ok(fault)
}

/// Fills a volume, so that no more data can be written.
pub(crate) fn fill(record: &Record, dir: &Path, volume: &str) -> Result<VolumeFault> {
    let mut fault = VolumeFault::new(record, dir, Volume::find(record, volume)?)?;
    let path = fault.path();
    // Almost all of it without writing a gigabyte; then a write fails, which is what "full" means to a program.
    let script = "free=$(($(stat -f -c '%a * %S' \"$1\"))); fallocate -l $((free > 4194304 ? free - 4194304 : 1)) \"$1/.filler\"; \
                  dd if=/dev/zero of=\"$1/.filler\" bs=4k oflag=append conv=notrunc,fsync 2>/dev/null; stat -c %s \"$1/.filler\"; \
                  ! dd if=/dev/zero of=\"$1/.full\" bs=64k count=1 conv=fsync 2>/dev/null; full=$?; rm -f \"$1/.full\"; exit $full";
    let bytes = fault.machine.run(&["sh", "-c", script, "fill", &path])?;
    fault.what = format!("filled with {} bytes; nothing more can be written", bytes.trim());
    Ok(fault)
}

/// Makes writes to a volume take up to `delay` longer.
pub(crate) fn slow(record: &Record, dir: &Path, volume: &str, delay: Duration) -> Result<VolumeFault> {
    let mut fault = VolumeFault::new(record, dir, Volume::find(record, volume)?)?;
    if delay.is_zero() || delay > MAX_DELAY {
        return Err(Error::Invalid(format!(
            "invalid delay of {} ms for a slow volume: use 1 to {}",
            delay.as_millis(),
            MAX_DELAY.as_millis()
        )));
    }
    if fault.freezer().is_running() {
        return Err(Error::Invalid(format!("volume {volume} is slow already; `lab fault heal` undoes it first")));
    }
    fault.freezer().start(&fault.path(), delay)?;
    fault.what = format!("writes take up to {} ms longer", delay.as_millis());
    Ok(fault)
}

/// Makes every write to a volume fail, also to files that are open.
pub(crate) fn make_read_only(record: &Record, dir: &Path, volume: &str) -> Result<VolumeFault> {
    let mut fault = VolumeFault::new(record, dir, Volume::find(record, volume)?)?;
    // The file system itself cannot become read-only while a file is open for writing.
    let script = "chattr -R +i \"$1\" && ! touch \"$1/.written\" 2>/dev/null";
    fault.machine.run(&["sh", "-c", script, "read-only", &fault.path()])?;
    fault.what = "read-only: writes fail with EPERM".into();
    Ok(fault)
}

/// Undoes the faults of all volumes; returns how many volumes had one.
pub(crate) fn heal_all(record: &Record, dir: &Path) -> Result<usize> {
    let mut healed = 0;
    for volume in Volume::all(&record.spec) {
        healed += usize::from(VolumeFault::new(record, dir, volume)?.undo()?);
    }
    Ok(healed)
}

impl Lab {
    /// Deletes everything on a volume, as if an empty one had been attached.
    pub fn lose_volume(&self, volume: &str) -> Result<VolumeFault> {
        lose(&self.record(), self.dir(), volume)
    }

    /// Fills a volume, so that no more data can be written.
    pub fn fill_volume(&self, volume: &str) -> Result<VolumeFault> {
        fill(&self.record(), self.dir(), volume)
    }

    /// Makes writes to a volume take up to `delay` longer.
    pub fn slow_volume(&self, volume: &str, delay: Duration) -> Result<VolumeFault> {
        slow(&self.record(), self.dir(), volume, delay)
    }

    /// Makes every write to a volume fail, also to files that are open.
    pub fn read_only_volume(&self, volume: &str) -> Result<VolumeFault> {
        make_read_only(&self.record(), self.dir(), volume)
    }
}
