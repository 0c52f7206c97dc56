//! Watches the configuration file for changes.

use std::io;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe;

use super::{ConfigArgs, DEFAULT_FILE, file};

/// Watches the configuration file.
#[derive(Debug)]
pub(crate) struct Follower {
    file: PathBuf,
    seen: Option<Vec<u8>>,
    /// An inotify descriptor, read like a pipe.
    events: pipe::Receiver,
}

impl Follower {
    /// Watches the file that `args` selects, even if it does not exist yet; `None` if there is no directory to watch.
    pub(crate) fn of(args: &ConfigArgs) -> io::Result<Option<Self>> {
        if args.no_file {
            return Ok(None);
        }
        let named = args.named_file(&|name| std::env::var_os(name));
        let file = named.unwrap_or_else(|| DEFAULT_FILE.into());
        // A bare file name is in the working directory.
        let dir = file.parent().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
        match dir {
            Some(dir) if dir.is_dir() => Self::within(dir, file.clone()).map(Some),
            _ => Ok(None),
        }
    }

    /// Watches the directory, not the file: editors and kubelet replace the file.
    fn within(dir: &Path, file: PathBuf) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let flags = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        inotify.add_watch(dir, flags)?;
        let seen = file::contents(&file).ok();
        let events = pipe::Receiver::from_owned_fd_unchecked(inotify.into())?;
        Ok(Self { file, seen, events })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns when the contents of the file have changed.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        loop {
            self.events.readable().await?;
            // The event does not matter: the file is read.
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
    async fn every_way_of_changing_the_file_is_noticed() {
        let dir = std::env::temp_dir().join(format!("ovnkube-follow-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("ovn_k8s.conf");
        let args = ConfigArgs { file: Some(file.clone()), ..ConfigArgs::default() };
        let mut follower = Follower::of(&args).unwrap().unwrap();
        let mut changed = async || tokio::time::timeout(Duration::from_secs(10), follower.changed()).await;
        std::fs::write(&file, "[default]\n").unwrap();
        changed().await.unwrap().unwrap();
        // As editors do it.
        std::fs::write(dir.join("new"), "[default]\nmtu = 1300\n").unwrap();
        std::fs::rename(dir.join("new"), &file).unwrap();
        changed().await.unwrap().unwrap();
        // As kubelet does it: a link to a link, which is replaced.
        for version in ["one", "two"] {
            std::fs::create_dir(dir.join(version)).unwrap();
            std::fs::write(dir.join(version).join("ovn_k8s.conf"), version).unwrap();
            let _ = std::fs::remove_file(&file);
            std::os::unix::fs::symlink(version, dir.join("..data_tmp")).unwrap();
            std::fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
            std::os::unix::fs::symlink("..data/ovn_k8s.conf", &file).unwrap();
        }
        changed().await.unwrap().unwrap();
        std::fs::remove_file(&file).unwrap();
        changed().await.unwrap().unwrap();
        // Other files and unchanged contents are ignored.
        std::fs::write(dir.join("other"), "").unwrap();
        std::fs::write(&file, "").unwrap();
        changed().await.unwrap().unwrap();
        assert_eq!(follower.file(), file);
        std::fs::remove_dir_all(&dir).unwrap();
        let args = ConfigArgs { file: Some(dir.join("none")), ..ConfigArgs::default() };
        assert!(Follower::of(&args).unwrap().is_none());
    }
}
