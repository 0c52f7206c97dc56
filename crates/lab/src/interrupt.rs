//! Ctrl-C and SIGTERM for commands that inject faults: they undo the fault and clean up before they exit.
//!
//! Signals are per process, and so is this state. Waits end early; a fault that is in progress, and its undoing, run to
//! their end: their commands are in separate process groups, which a Ctrl-C on the terminal does not reach. A second
//! signal ends the process immediately.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Error, Result};

/// The exit status after SIGINT, as shells report it.
pub(crate) const EXIT_STATUS: u8 = 130;

static INTERRUPTED: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();

/// From now on a signal ends waits instead of the process.
pub(crate) fn install_handlers() -> Result<()> {
    let cannot = || Error::io("cannot handle signals");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot())?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot())?;
    drop(guard);
    let wait = move || {
        runtime.block_on(async {
            for first in [true, false] {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if first {
                    console::eprint_line(format_args!(
                        "lab: interrupted; undoing the fault and cleaning up (press again to exit immediately)"
                    ));
                    *INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    CHANGED.notify_all();
                }
            }
        });
        std::process::exit(i32::from(EXIT_STATUS));
    };
    std::thread::Builder::new().name("lab-signals".into()).spawn(wait).map(|_| ()).map_err(cannot())
}

/// Fails if a signal has come.
pub(crate) fn check() -> Result<()> {
    if *INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Sleeps; a signal ends it early with an error.
pub(crate) fn sleep(duration: Duration) -> Result<()> {
    let deadline = Instant::now() + duration;
    let mut interrupted = INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner);
    while !*interrupted {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        interrupted = CHANGED.wait_timeout(interrupted, rest).unwrap_or_else(PoisonError::into_inner).0;
    }
    Err(Error::Interrupted)
}
