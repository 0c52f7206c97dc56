//! A wall clock that a test moves, for programs that are started with it. All machines share the host's clock, which nothing may
//! change, so this one is the exception from real faults: Debian's libfaketime, which answers instead of the kernel. The monotonic
//! clock stays the kernel's.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::debian_package;
use crate::directories::Directories;
use crate::error::{Error, Result, create_dir, write_file};
use crate::inspect;
use crate::lab::Lab;
use crate::program::Program;
use crate::progress::Progress;
use crate::spec::Suite;

const PACKAGE: &str = "libfaketime";
const LIBRARY: &str = "libfaketimeMT.so.1";
const LOADER: &[u8] = b"/ld-linux";
const SPACE_MIB: u64 = 200;
/// Where machines see it.
const DIRECTORY: &str = "/run/lab-clock";

/// Fetches the package, if it is not in the cache.
pub(crate) fn ensure(directories: &Directories, suite: Suite, progress: &Progress) -> Result<PathBuf> {
    debian_package::ensure(directories, suite, PACKAGE, SPACE_MIB, progress)
}

/// The clock of the programs that were started with it.
#[derive(Debug, Clone)]
pub struct MovedClock {
    /// Its offset, on the host.
    offset: PathBuf,
}

impl MovedClock {
    /// The program with this clock.
    pub fn of(&self, program: Program) -> Result<Program> {
        if !is_dynamic(program.path())? {
            return Err(Error::Invalid(format!(
                "{} is linked statically, so that its clock cannot be moved; build it again without the image's options",
                program.path().display()
            )));
        }
        Ok(program
            .environment("LD_PRELOAD", format!("{DIRECTORY}/{LIBRARY}"))
            .environment("FAKETIME_TIMESTAMP_FILE", format!("{DIRECTORY}/offset"))
            .environment("FAKETIME_NO_CACHE", "1")
            .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1"))
    }

    /// Moves it this far from the host's clock.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // Renamed: the programs read it all the time.
        let new = self.offset.with_extension("new");
        write_file(&new, format!("{seconds:+}\n"))?;
        std::fs::rename(&new, &self.offset).map_err(Error::io("cannot move the clock"))
    }
}

impl Lab {
    /// A clock for programs on a machine; at first it is the host's.
    pub fn moved_clock(&self, machine: &str) -> Result<MovedClock> {
        let package = ensure(&Directories::from_environment()?, self.record().spec.suite, &Progress::silent())?;
        let directory = inspect::machine_dir(self.dir(), machine).join("run").join(relative(DIRECTORY));
        create_dir(&directory)?;
        let library = find(&package)?;
        std::fs::copy(&library, directory.join(LIBRARY))
            .map_err(Error::io(format!("cannot copy {}", library.display())))?;
        let clock = MovedClock { offset: directory.join("offset") };
        clock.set(0)?;
        Ok(clock)
    }
}

/// Whether a program names a dynamic loader, which is at the start of the file.
fn is_dynamic(program: &Path) -> Result<bool> {
    let cannot = || Error::io(format!("cannot read {}", program.display()));
    let mut start = Vec::new();
    std::fs::File::open(program).map_err(cannot())?.take(4096).read_to_end(&mut start).map_err(cannot())?;
    Ok(start.windows(LOADER.len()).any(|part| part == LOADER))
}

fn relative(path: &str) -> &str {
    path.trim_start_matches("/run/")
}

/// Its directory has the name of the architecture.
fn find(package: &Path) -> Result<PathBuf> {
    let libraries = package.join("usr/lib");
    let entries = std::fs::read_dir(&libraries).map_err(Error::io(format!("cannot read {}", libraries.display())))?;
    let found = entries.flatten().map(|entry| entry.path().join("faketime").join(LIBRARY)).find(|path| path.exists());
    found.ok_or_else(|| {
        Error::Invalid(format!("no {LIBRARY} in {}; remove that directory, and it is fetched again", package.display()))
    })
}
