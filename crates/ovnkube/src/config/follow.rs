//! The configuration file while we run: whether it says something else now.

use std::io;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe;

use super::{DEFAULT_FILE, Given, file};

/// Follows the file of the configuration.
#[derive(Debug)]
pub(crate) struct Follower {
    file: PathBuf,
    seen: Option<Vec<u8>>,
    /// No pipe, but read like one: bytes come when something happened.
    events: pipe::Receiver,
}

impl Follower {
    /// Follows the file that `given` means, whether it is there yet or not; nothing where there is none to follow.
    pub(crate) fn of(given: &Given) -> io::Result<Option<Self>> {
        if given.no_file {
            return Ok(None);
        }
        let named = given.named_file(&|name| std::env::var_os(name));
        let file = named.unwrap_or_else(|| DEFAULT_FILE.into());
        match file.parent() {
            Some(folder) if folder.is_dir() => Self::within(folder, file.clone()).map(Some),
            _ => Ok(None),
        }
    }

    /// The folder is watched, not the file: editors and kubelet put a new one in the place of the old.
    fn within(folder: &Path, file: PathBuf) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let flags = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        inotify.add_watch(folder, flags)?;
        let seen = file::contents(&file).ok();
        let events = pipe::Receiver::from_owned_fd_unchecked(inotify.into())?;
        Ok(Self { file, seen, events })
    }

    /// The file that is followed.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns when the file says something else than it did.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        loop {
            self.events.readable().await?;
            // What happened does not matter: the file is looked at.
            while matches!(self.events.try_read(&mut [0; 4096]), Ok(1..)) {}
            let now = file::contents(&self.file).ok();
            if now != self.seen {
                self.seen = now;
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_file_is_followed_through_all_ways_of_changing_it() {
        let folder = std::env::temp_dir().join(format!("ovnkube-follow-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ovn_k8s.conf");
        let given = Given { file: Some(file.clone()), ..Given::default() };
        let mut follower = Follower::of(&given).unwrap().unwrap();
        let mut changed = async || tokio::time::timeout(Duration::from_secs(10), follower.changed()).await;
        std::fs::write(&file, "[default]\n").unwrap();
        changed().await.unwrap().unwrap();
        // As editors do it.
        std::fs::write(folder.join("new"), "[default]\nmtu = 1300\n").unwrap();
        std::fs::rename(folder.join("new"), &file).unwrap();
        changed().await.unwrap().unwrap();
        // As kubelet does it: a link to a link, which is replaced.
        for version in ["one", "two"] {
            std::fs::create_dir(folder.join(version)).unwrap();
            std::fs::write(folder.join(version).join("ovn_k8s.conf"), version).unwrap();
            let _ = std::fs::remove_file(&file);
            std::os::unix::fs::symlink(version, folder.join("..data_tmp")).unwrap();
            std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
            std::os::unix::fs::symlink("..data/ovn_k8s.conf", &file).unwrap();
        }
        changed().await.unwrap().unwrap();
        std::fs::remove_file(&file).unwrap();
        changed().await.unwrap().unwrap();
        // Neighbours do not matter, nor does the same once more.
        std::fs::write(folder.join("other"), "").unwrap();
        std::fs::write(&file, "").unwrap();
        changed().await.unwrap().unwrap();
        assert_eq!(follower.file(), file);
        std::fs::remove_dir_all(&folder).unwrap();
        let given = Given { file: Some(folder.join("none")), ..Given::default() };
        assert!(Follower::of(&given).unwrap().is_none());
    }
}
