//! Network namespaces.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

/// Runs a short, blocking closure in a network namespace. It has its own thread, which ends with it, so no other work of this
/// process ever runs in that namespace.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(path)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a call in a network namespace panicked")))
    })
}
