//! Entering the namespaces of a machine, without a helper program and without `unsafe`.
//!
//! Linux keeps namespaces per *thread*. A short-lived thread joins those of the machine and then spawns the program (or
//! opens the socket); the other threads of this process are not affected. The spawned program is an ordinary child of
//! this process with a pid of the host, and an opened socket is an ordinary file descriptor.

use std::fs::File;
use std::path::Path;

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Error, Result};
use crate::process::ProcessId;

/// The namespaces of a machine. Mounts come last: after that, paths are the machine's.
const KINDS: [(&str, CloneFlags); 5] = [
    ("net", CloneFlags::CLONE_NEWNET),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("mnt", CloneFlags::CLONE_NEWNS),
];

/// Runs `work` in all namespaces of the machine whose first process is `init`, and returns its result.
///
/// `work` must not start threads: the kernel refuses them once the process namespace differs.
pub(crate) fn enter<T: Send>(init: ProcessId, work: impl FnOnce() -> T + Send) -> Result<T> {
    let mut namespaces = Vec::new();
    for (name, flag) in KINDS {
        let path = format!("/proc/{}/ns/{name}", init.pid);
        let file = File::open(&path).map_err(Error::io(format!("the machine's first process is gone: {path}")))?;
        namespaces.push((file, flag, path));
    }
    // The pid cannot be reused any more now that the files are open.
    if !init.is_alive() {
        return Err(Error::Invalid(format!("the machine's first process (pid {}) has exited", init.pid)));
    }
    in_own_thread(move || {
        // Only a thread that shares its root and working directory with no other can join a mount namespace.
        unshare(CloneFlags::CLONE_FS)
            .map_err(Error::errno("cannot unshare the thread's root and working directory"))?;
        for (file, flag, path) in &namespaces {
            setns(file, *flag).map_err(Error::errno(format!("cannot join {path}")))?;
        }
        Ok(work())
    })
}

/// Runs `work` in the mount namespace of the machine whose first process is `init`: paths are the machine's, but processes
/// that it starts belong to the host.
pub(crate) fn enter_mounts<T: Send>(init: ProcessId, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = format!("/proc/{}/ns/mnt", init.pid);
    let file = File::open(&path).map_err(Error::io(format!("the machine's first process is gone: {path}")))?;
    if !init.is_alive() {
        return Err(Error::Invalid(format!("the machine's first process (pid {}) has exited", init.pid)));
    }
    in_own_thread(move || {
        // As in `enter`.
        unshare(CloneFlags::CLONE_FS)
            .map_err(Error::errno("cannot unshare the thread's root and working directory"))?;
        setns(&file, CloneFlags::CLONE_NEWNS).map_err(Error::errno(format!("cannot join {path}")))?;
        Ok(work())
    })
}

/// Runs `work` in the network namespace of this file: sockets that it opens belong to it.
pub(crate) fn enter_network<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> Result<T> {
    in_own_thread(move || {
        join_network(path)?;
        Ok(work())
    })
}

/// Moves the calling thread into a network namespace, for the rest of its life.
pub(crate) fn join_network(path: &Path) -> Result<()> {
    let context = format!("cannot join the network namespace {}", path.display());
    let file = File::open(path).map_err(Error::io(context.clone()))?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(Error::errno(context))
}

/// Runs `work` in a separate thread, whose namespaces it may change.
pub(crate) fn in_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("lab-namespace".into())
            .spawn_scoped(scope, work)
            .map_err(Error::io("cannot start a thread"))?;
        thread.join().unwrap_or_else(|_| Err(Error::Invalid("a thread of the lab panicked in a namespace".into())))
    })
}
