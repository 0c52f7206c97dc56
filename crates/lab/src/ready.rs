//! Waiting for the ready signal of a component: a notification, a socket that appears, a line in its log.
//!
//! Each signal is a kernel event, and so is the exit of the process: no polling.

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::error::{Error, Result, create_dir};
use crate::process::{ProcessHandle, wait_readable};

/// How a component signals that it is ready.
#[derive(Debug, Clone)]
pub(crate) enum Ready {
    /// `READY=1` to `NOTIFY_SOCKET` (systemd's protocol): etcd, kube-apiserver, containerd and kubelet do this.
    Notify,
    /// A file, or a socket that accepts connections, at this path of the host.
    Path(PathBuf),
    /// A log line that contains this text.
    Log(Cow<'static, str>),
    /// No signal: ready as soon as it runs.
    Running,
}

impl Ready {
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Notify => "no READY=1 came".into(),
            Self::Path(path) => format!("{} did not appear", path.display()),
            Self::Log(line) => format!("no log line contained {line:?}"),
            Self::Running => "it is not running".into(),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ready,
    /// The process exited first.
    Ended,
    TimedOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalState {
    Ready,
    /// The socket exists, but nothing listens on it yet.
    NotListening,
    Pending,
}

/// Set up before the process starts, so that no signal is missed.
#[derive(Debug)]
pub(crate) enum ReadyWatch {
    Notify(UnixDatagram),
    Path(Inotify, PathBuf),
    /// The last field is the log's length before the start: a restart appends to it.
    Log(Inotify, PathBuf, Cow<'static, str>, usize),
    Nothing,
}

impl ReadyWatch {
    /// `notify` is the path for a notification socket, `log` the existing log file.
    pub(crate) fn prepare(ready: &Ready, notify: &Path, log: &Path) -> Result<Self> {
        match ready {
            Ready::Notify => {
                // A restart finds the socket of the previous start.
                let _ = std::fs::remove_file(notify);
                let socket =
                    UnixDatagram::bind(notify).map_err(Error::io(format!("cannot listen on {}", notify.display())))?;
                Ok(Self::Notify(socket))
            }
            Ready::Path(path) => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                create_dir(parent)?;
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

    /// Waits for the signal or the exit of the process, whichever comes first.
    pub(crate) fn wait(&self, process: &ProcessHandle, deadline: Instant) -> Result<Outcome> {
        let mut from = if let Self::Log(_, _, _, written) = self { *written } else { 0 };
        loop {
            let until = match self.poll(&mut from)? {
                SignalState::Ready => return Ok(Outcome::Ready),
                // There is no event between bind() and listen().
                SignalState::NotListening => deadline.min(Instant::now() + Duration::from_millis(1)),
                SignalState::Pending => deadline,
            };
            let watched: Vec<BorrowedFd<'_>> = self.descriptor().into_iter().chain([process.descriptor()]).collect();
            match wait_readable(&watched, until) {
                None if Instant::now() >= deadline => return Ok(Outcome::TimedOut),
                None | Some(0) => {}
                Some(_) if self.poll(&mut from)? == SignalState::Ready => return Ok(Outcome::Ready),
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

    fn poll(&self, from: &mut usize) -> Result<SignalState> {
        match self {
            Self::Notify(socket) => {
                let mut message = [0; 4096];
                socket.set_nonblocking(true).map_err(Error::io("cannot use the notification socket"))?;
                while let Ok(length) = socket.recv(&mut message) {
                    if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1") {
                        return Ok(SignalState::Ready);
                    }
                }
                Ok(SignalState::Pending)
            }
            Self::Path(inotify, path) => {
                drain(inotify);
                Ok(match path.exists() {
                    false => SignalState::Pending,
                    true if is_listening(path) => SignalState::Ready,
                    true => SignalState::NotListening,
                })
            }
            Self::Log(inotify, log, line, _) => {
                drain(inotify);
                let text = std::fs::read(log).map_err(Error::io(format!("cannot read {}", log.display())))?;
                let new = String::from_utf8_lossy(text.get(*from..).unwrap_or_default());
                // Only complete lines: the rest of the last one may still be written.
                let whole = new.rfind('\n').map_or(0, |end| end + 1);
                let found = new[..whole].contains(&**line);
                *from += if new.len() == text.len() - *from { whole } else { 0 };
                Ok(if found { SignalState::Ready } else { SignalState::Pending })
            }
            Self::Nothing => Ok(SignalState::Ready),
        }
    }
}

fn inotify(path: &Path, flags: AddWatchFlags) -> Result<Inotify> {
    let context = format!("cannot watch {} (too many watches? raise fs.inotify.max_user_instances)", path.display());
    let inotify =
        Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(Error::errno(context.clone()))?;
    inotify.add_watch(path, flags).map_err(Error::errno(context))?;
    Ok(inotify)
}

/// A socket must accept connections; any other file only has to exist.
fn is_listening(path: &Path) -> bool {
    let is_socket = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    !is_socket || UnixStream::connect(path).is_ok()
}

fn drain(inotify: &Inotify) {
    // Non-blocking: fails with EAGAIN when no event is left.
    while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
}
