//! Network namespaces.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

/// Runs something short with the network of a namespace. It has a thread of its own, which ends with it: whatever happens,
/// no other work of this process ever finds itself in a foreign network.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(path)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the work in a network namespace panicked")))
    })
}
