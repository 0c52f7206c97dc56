//! Waiting for a component by its own sign of life: a notification, a socket that appears, a line in its log.
//!
//! Each sign is an event of the kernel; so is the end of the process. Nothing is polled by the clock.

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::error::{Error, Result, make_dir};
use crate::process::{ProcessHandle, wait_readable};

/// The sign by which a component says that it is ready.
#[derive(Debug, Clone)]
pub(crate) enum Ready {
    /// systemd's protocol: `READY=1` to `NOTIFY_SOCKET`. etcd, kube-apiserver, containerd and kubelet speak it.
    Notify,
    /// A file or socket appears at this path of the host.
    Path(PathBuf),
    /// A line of its log contains this.
    Log(Cow<'static, str>),
    /// None: it counts as ready once it runs.
    Running,
}

impl Ready {
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Notify => "no READY=1 came".into(),
            Self::Path(path) => format!("{} did not appear", path.display()),
            Self::Log(line) => format!("no log line with {line:?} came"),
            Self::Running => "it does not run".into(),
        }
    }
}

/// How a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The sign came.
    Ready,
    /// The process ended first.
    Ended,
    /// The deadline passed.
    TimedOut,
}

/// What a look at the sign shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Ready,
    /// A socket has its name and nobody listens on it yet.
    Almost,
    NotYet,
}

/// A watch that was set up before the process started, so that no sign can be missed.
#[derive(Debug)]
pub(crate) enum Watch {
    Notify(UnixDatagram),
    Path(Inotify, PathBuf),
    /// From this byte on: a restart appends to the log of the last time.
    Log(Inotify, PathBuf, Cow<'static, str>, usize),
    /// There is nothing to wait for.
    Nothing,
}

impl Watch {
    /// Prepares to see the sign. `notify` is where a notification socket may be made, `log` the (existing) log.
    pub(crate) fn prepare(ready: &Ready, notify: &Path, log: &Path) -> Result<Self> {
        match ready {
            Ready::Notify => {
                // A restart finds the socket of the last time.
                let _ = std::fs::remove_file(notify);
                let socket =
                    UnixDatagram::bind(notify).map_err(Error::io(format!("cannot listen on {}", notify.display())))?;
                Ok(Self::Notify(socket))
            }
            Ready::Path(path) => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                make_dir(parent)?;
                let _ = std::fs::remove_file(path);
                let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
                Ok(Self::Path(inotify(parent, flags)?, path.clone()))
            }
            Ready::Log(line) => {
                let written = std::fs::metadata(log).map_or(0, |meta| usize::try_from(meta.len()).unwrap_or(0));
                Ok(Self::Log(inotify(log, AddWatchFlags::IN_MODIFY)?, log.to_owned(), line.clone(), written))
            }
            Ready::Running => Ok(Self::Nothing),
        }
    }

    /// Waits for the sign or the end of the process, whichever comes first.
    pub(crate) fn wait(&self, process: &ProcessHandle, deadline: Instant) -> Result<Outcome> {
        let mut from = if let Self::Log(_, _, _, written) = self { *written } else { 0 };
        loop {
            let until = match self.look(&mut from)? {
                Sight::Ready => return Ok(Outcome::Ready),
                // Between a socket's name and its listening lies a moment that has no event.
                Sight::Almost => deadline.min(Instant::now() + Duration::from_millis(1)),
                Sight::NotYet => deadline,
            };
            let watched: Vec<BorrowedFd<'_>> = self.descriptor().into_iter().chain([process.descriptor()]).collect();
            match wait_readable(&watched, until) {
                None if Instant::now() >= deadline => return Ok(Outcome::TimedOut),
                None | Some(0) => {}
                Some(_) if self.look(&mut from)? == Sight::Ready => return Ok(Outcome::Ready),
                Some(_) => return Ok(Outcome::Ended),
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Notify(socket) => Some(socket.as_fd()),
            Self::Path(inotify, _) | Self::Log(inotify, ..) => Some(inotify.as_fd()),
            Self::Nothing => None,
        }
    }

    fn look(&self, from: &mut usize) -> Result<Sight> {
        match self {
            Self::Notify(socket) => {
                let mut message = [0; 4096];
                socket.set_nonblocking(true).map_err(Error::io("cannot use the notification socket"))?;
                while let Ok(length) = socket.recv(&mut message) {
                    if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1") {
                        return Ok(Sight::Ready);
                    }
                }
                Ok(Sight::NotYet)
            }
            Self::Path(inotify, path) => {
                drain(inotify);
                Ok(match path.exists() {
                    false => Sight::NotYet,
                    true if answers(path) => Sight::Ready,
                    true => Sight::Almost,
                })
            }
            Self::Log(inotify, log, line, _) => {
                drain(inotify);
                let text = std::fs::read(log).map_err(Error::io(format!("cannot read {}", log.display())))?;
                let new = String::from_utf8_lossy(text.get(*from..).unwrap_or_default());
                // Stop at the last whole line: the rest of it may still be on its way.
                let whole = new.rfind('\n').map_or(0, |end| end + 1);
                let found = new[..whole].contains(&**line);
                *from += if new.len() == text.len() - *from { whole } else { 0 };
                Ok(if found { Sight::Ready } else { Sight::NotYet })
            }
            Self::Nothing => Ok(Sight::Ready),
        }
    }
}

fn inotify(path: &Path, flags: AddWatchFlags) -> Result<Inotify> {
    let doing = format!("cannot watch {} (too many watches? raise fs.inotify.max_user_instances)", path.display());
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(Error::errno(doing.clone()))?;
    inotify.add_watch(path, flags).map_err(Error::errno(doing))?;
    Ok(inotify)
}

/// A socket answers when somebody listens on it; any other file by being there.
fn answers(path: &Path) -> bool {
    let is_socket = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    !is_socket || UnixStream::connect(path).is_ok()
}

fn drain(inotify: &Inotify) {
    // Non-blocking: ends with EAGAIN when nothing is left.
    while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
}
