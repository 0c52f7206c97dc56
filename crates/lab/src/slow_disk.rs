//! Slow disks: a file system that is frozen again and again, so that writes wait.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result, create_dir, write_file};
use crate::inspect;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::namespace::enter_mounts;

/// How long a disk may take to be slow, or to be fast again.
const LIMIT: Duration = Duration::from_secs(60);

/// It ends with its marker file, and with the machine: then its `/proc` is empty. The file system is thawed last, so that neither
/// leaves a process that waits for it forever.
const FREEZER: &str = "echo $$ > \"$2.pid\"; \
    while [ -e \"$2\" ] && [ -d /proc/1 ]; do fsfreeze -f \"$1\"; : > \"$2.frozen\"; sleep \"$3\"; fsfreeze -u \"$1\"; sleep 0.02; done; \
    rm -f \"$2.pid\" \"$2.frozen\"";

/// The process that freezes one file system of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Freezer {
    machine: Machine,
    /// The machine's `/run` on the host.
    run: PathBuf,
    name: String,
}

impl Freezer {
    /// The freezer of this name; `run` is the machine's `/run` on the host.
    pub(crate) fn new(machine: &Machine, run: &Path, name: impl Into<String>) -> Self {
        Self { machine: machine.clone(), run: run.to_owned(), name: name.into() }
    }

    /// Its path below `/run`. While it exists, the disk is slow.
    fn marker(&self) -> String {
        format!("lab-volumes/{}.slow", self.name)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.run.join(self.marker()).exists()
    }

    /// Makes writes to the file system that is mounted at `path` take up to `delay` longer.
    pub(crate) fn start(&self, path: &str, delay: Duration) -> Result<()> {
        let marker = self.run.join(self.marker());
        create_dir(marker.parent().unwrap_or(&self.run))?;
        write_file(&marker, "")?;
        let seconds = format!("{:.3}", delay.as_secs_f64());
        let inside = format!("/run/{}", self.marker());
        // Not in the machine's process namespace: the kernel would kill it while the file system is frozen.
        let spawned = enter_mounts(self.machine.init(), || {
            Command::new("setsid")
                .args(["-f", "sh", "-c", FREEZER, "lab-slow-disk", path, &inside, &seconds])
                .env_clear()
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
                .current_dir("/")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .status()
        })?;
        spawned.map_err(Error::io(format!("cannot slow down {}", self.name)))?;
        let frozen = marker.with_extension("slow.frozen");
        await_state(|| frozen.exists(), || format!("{} is not slow", self.name))
    }

    /// Ends it; false if it did not run.
    pub(crate) fn stop(&self) -> Result<bool> {
        let marker = self.run.join(self.marker());
        if std::fs::remove_file(&marker).is_err() {
            return Ok(false);
        }
        await_state(|| !marker.with_extension("slow.pid").exists(), || format!("{} is still slow", self.name))?;
        Ok(true)
    }
}

fn await_state(reached: impl Fn() -> bool, problem: impl Fn() -> String) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !reached() {
        if Instant::now() > deadline {
            return Err(Error::Invalid(format!("{} after {} s", problem(), LIMIT.as_secs())));
        }
        // The freezer is a shell script: it cannot report an event.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A disk of a machine that is slow until it is healed; dropping the value changes nothing.
#[derive(Debug, Clone)]
pub struct SlowDisk(Freezer);

impl SlowDisk {
    /// Makes it as fast as before.
    pub fn heal(self) -> Result<()> {
        self.0.stop().map(|_| ())
    }
}

impl Lab {
    /// Mounts an ext4 file system of this size at a path of a machine; what the directory had is hidden.
    pub fn own_disk(&self, machine: &str, path: &str, mib: u32) -> Result<()> {
        // In memory: a loop device on the machine's overlay would need the whole file there.
        let script = "set -e; file=$(mktemp); truncate -s \"$2\"M \"$file\"; mke2fs -q -t ext4 -m 0 \"$file\"; mkdir -p \"$1\"; \
                      mount -o loop,noatime \"$file\" \"$1\"; rmdir \"$1/lost+found\"";
        self.machine(machine)?.run(&["sh", "-c", script, "own-disk", path, &mib.to_string()]).map(|_| ())
    }

    /// Makes writes to a disk of [`Lab::own_disk`] take up to `delay` longer.
    pub fn slow_disk(&self, machine: &str, path: &str, delay: Duration) -> Result<SlowDisk> {
        let run = inspect::machine_dir(self.dir(), machine).join("run");
        let freezer = Freezer::new(&self.machine(machine)?, &run, path.trim_matches('/').replace('/', "-"));
        freezer.start(path, delay)?;
        Ok(SlowDisk(freezer))
    }
}
