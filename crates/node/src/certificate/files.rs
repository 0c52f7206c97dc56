//! The node's certificate and key on its disk.
//!
//! ```text
//!   /var/lib/ovn-kubernetes/pki/                        0700
//!     current ─▶ chassis-1800000000-5feceb66ffc86f38/   tls.crt, tls.key (0600)
//! ```
//!
//! A new pair is written into a directory of its own, then the symbolic link is renamed: a reader of `current/…` finds both
//! halves of one pair, or both of the other, whenever the process or the machine stops. ovn-controller stats the files in each
//! round of its main loop and loads them when they change. They must not vanish meanwhile: it would drop its connection.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use pki::ChassisCertificate;

use crate::options::{CERTIFICATE, CURRENT, PRIVATE_KEY as KEY};

/// The next link, until it is renamed.
const NEXT: &str = ".current.next";
/// Start of the names of our directories; the time of storing and a part of the fingerprint follow.
const PREFIX: &str = "chassis-";

/// A certificate on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) own: ChassisCertificate,
    /// When it was stored. The start of its validity is earlier, so that it can be used by machines whose clock is behind.
    pub(super) issued: Timestamp,
}

/// Why the files could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the node's certificate in {}: {error}; {remedy}; a former certificate stays in effect", directory.display())]
pub(super) struct StorageError {
    directory: PathBuf,
    error: io::Error,
    remedy: &'static str,
}

/// The points at which a crash leaves something different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Directory,
    Key,
    Certificate,
    Link,
    Renamed,
}

/// `[ovnsouth] certificate-dir`. All functions block.
#[derive(Debug, Clone)]
pub(super) struct CertificateDirectory {
    path: PathBuf,
}

impl CertificateDirectory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The pair in effect, or why there is none.
    pub(super) fn read(&self) -> Result<Held, String> {
        let current = self.path.join(CURRENT);
        let [certificate, key] = [CERTIFICATE, KEY].map(|file| {
            let path = current.join(file);
            std::fs::read(&path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => "it has no certificate yet".to_owned(),
                _ => format!("cannot read {}: {error}", path.display()),
            })
        });
        let own = ChassisCertificate::from_pem(&certificate?, &key?)
            .map_err(|error| format!("cannot use the files in {}: {error}", current.display()))?;
        let stored = self.target().and_then(|name| stored_at(&name));
        let issued = stored.unwrap_or(own.certificate.not_before).max(own.certificate.not_before);
        Ok(Held { own, issued })
    }

    /// Replaces the pair in effect; it lasts when this returns. The former one stays for readers that are on their way to it,
    /// until [`Self::remove_leftovers`].
    pub(super) fn store(&self, new: &ChassisCertificate, now: Timestamp) -> Result<(), StorageError> {
        self.replace(new, now, &mut |_| Ok(())).map_err(|error| {
            // At the next start at the latest.
            let _ = self.remove_leftovers();
            self.failed(error)
        })
    }

    /// Creates and protects the directory, and removes what a crash left.
    pub(super) fn prepare(&self) -> Result<(), StorageError> {
        self.protect().and_then(|()| self.remove_leftovers()).map_err(|error| self.failed(error))
    }

    /// Removes the pair in effect, and the directory if it is empty then.
    pub(super) fn clean_up(&self) -> Result<(), StorageError> {
        let removed = match std::fs::remove_file(self.path.join(CURRENT)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.remove_leftovers(),
        };
        // Other files stay.
        let _ = std::fs::remove_dir(&self.path);
        removed.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> StorageError {
        let remedy = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on its file system",
            ErrorKind::ReadOnlyFilesystem => "make its file system writable",
            ErrorKind::IsADirectory | ErrorKind::DirectoryNotEmpty => {
                "remove the directory `current`, which is not a link"
            }
            _ => "check [ovnsouth] certificate-dir",
        };
        StorageError { directory: self.path.clone(), error, remedy }
    }

    /// Only root may look into it.
    fn protect(&self) -> io::Result<()> {
        match DirBuilder::new().recursive(true).mode(0o700).create(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mode = std::fs::metadata(&self.path)?.permissions().mode() & 0o777;
        if mode == 0o700 { Ok(()) } else { std::fs::set_permissions(&self.path, Permissions::from_mode(0o700)) }
    }

    /// `reached` is called after each step; its error is a crash there.
    fn replace(
        &self,
        new: &ChassisCertificate,
        now: Timestamp,
        reached: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> io::Result<()> {
        self.protect()?;
        let name = format!("{PREFIX}{}-{}", now.as_second(), new.fingerprint.get(..16).unwrap_or_default());
        // An attempt in the same second got as far as the rename.
        if self.target().as_deref() != Some(&name) {
            let directory = self.path.join(&name);
            remove_directory(&directory)?;
            DirBuilder::new().mode(0o700).create(&directory)?;
            reached(Step::Directory)?;
            write(&directory.join(KEY), new.key.pem())?;
            reached(Step::Key)?;
            write(&directory.join(CERTIFICATE), &new.chain)?;
            reached(Step::Certificate)?;
            File::open(&directory)?.sync_all()?;
            let next = self.path.join(NEXT);
            remove_file(&next)?;
            symlink(&name, &next)?;
            reached(Step::Link)?;
            std::fs::rename(&next, self.path.join(CURRENT))?;
            reached(Step::Renamed)?;
        }
        File::open(&self.path)?.sync_all()
    }

    /// Removes our directories that are not in effect.
    pub(super) fn remove_leftovers(&self) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        remove_file(&self.path.join(NEXT))?;
        let current = self.target();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX));
            if is_ours && current.as_deref().is_none_or(|current| name != *current) {
                remove_directory(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Name of the directory of the pair in effect, if that is one of ours.
    fn target(&self) -> Option<String> {
        let target = std::fs::read_link(self.path.join(CURRENT)).ok()?;
        target.to_str().filter(|name| name.starts_with(PREFIX)).map(str::to_owned)
    }
}

/// The time in the name of a directory.
fn stored_at(name: &str) -> Option<Timestamp> {
    let (seconds, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Timestamp::from_second(seconds.parse().ok()?).ok()
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::testing::{Scratch, Signer, moment};
    use super::*;

    struct Case {
        scratch: Scratch,
        directory: CertificateDirectory,
        signer: Signer,
    }

    impl Case {
        fn new(name: &str) -> Self {
            let scratch = Scratch::new(name);
            let directory = CertificateDirectory::new(scratch.path.join("pki"));
            Self { scratch, directory, signer: Signer::new() }
        }

        fn issue(&self) -> ChassisCertificate {
            self.signer.issue("c1", "n1", 0, 1000)
        }

        /// Names in the directory.
        fn entries(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.directory.path).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_stored_pair_is_read_back_and_replaces_the_former_one() {
        let case = Case::new("store");
        let (directory, path) = (&case.directory, case.scratch.path.join("pki"));
        assert_eq!(directory.read(), Err("it has no certificate yet".into()));
        directory.prepare().unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(path.join("other"), "a file of somebody else").unwrap();
        let (one, two) = (case.issue(), case.issue());
        directory.store(&one, moment(10)).unwrap();
        assert_eq!(directory.read(), Ok(Held { own: one, issued: moment(10) }));
        directory.store(&two, moment(20)).unwrap();
        assert_eq!(directory.read(), Ok(Held { own: two.clone(), issued: moment(20) }));
        assert_eq!(case.entries().len(), 4, "the former pair stays for readers that are on their way to it");
        directory.remove_leftovers().unwrap();
        let own = format!("chassis-{}-{}", moment(20).as_second(), &two.fingerprint[..16]);
        assert_eq!(case.entries(), [own.clone(), "current".into(), "other".into()]);
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join(&own)), 0o700);
        assert_eq!((mode(&path.join("current/tls.key")), mode(&path.join("current/tls.crt"))), (0o600, 0o600));
        // Stored twice in one second, it stays.
        directory.store(&two, moment(20)).unwrap();
        assert_eq!(directory.read().unwrap().own, two);
        directory.clean_up().unwrap();
        assert_eq!(case.entries(), ["other"]);
        std::fs::remove_file(path.join("other")).unwrap();
        directory.clean_up().unwrap();
        assert!(!path.exists());
        directory.clean_up().unwrap();
    }

    #[test]
    fn a_crash_at_any_step_leaves_one_whole_pair() {
        for crash in [Step::Directory, Step::Key, Step::Certificate, Step::Link, Step::Renamed] {
            for former in [false, true] {
                let case = Case::new("crash");
                let (old, new) = (case.issue(), case.issue());
                if former {
                    case.directory.store(&old, moment(1)).unwrap();
                }
                let crashed = case.directory.replace(&new, moment(2), &mut |step| {
                    if step == crash { Err(io::Error::other("crash")) } else { Ok(()) }
                });
                assert!(crashed.is_err());
                let expected = match (crash, former) {
                    (Step::Renamed, _) => Ok(new.clone()),
                    (_, true) => Ok(old),
                    (_, false) => Err("it has no certificate yet".to_owned()),
                };
                let read = |directory: &CertificateDirectory| directory.read().map(|held| held.own);
                assert_eq!(read(&case.directory), expected, "{crash:?}");
                // The next start.
                case.directory.prepare().unwrap();
                assert_eq!(read(&case.directory), expected, "{crash:?}");
                assert_eq!(
                    case.entries().len(),
                    if expected.is_ok() { 2 } else { 0 },
                    "{crash:?}: {:?}",
                    case.entries()
                );
                case.directory.store(&new, moment(3)).unwrap();
                case.directory.remove_leftovers().unwrap();
                assert_eq!((read(&case.directory), case.entries().len()), (Ok(new), 2), "{crash:?}");
            }
        }
    }

    #[test]
    fn a_reader_never_finds_halves_of_two_pairs() {
        let case = Case::new("swap");
        case.directory.store(&case.issue(), moment(0)).unwrap();
        let reader = case.directory.clone();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let reading = std::thread::spawn(move || {
            let mut rounds = 0;
            while stopped.try_recv().is_err() {
                // As a program that opens the directory once.
                let current = std::fs::canonicalize(reader.path.join(CURRENT)).unwrap();
                let [certificate, key] = [CERTIFICATE, KEY].map(|file| std::fs::read(current.join(file)).unwrap());
                ChassisCertificate::from_pem(&certificate, &key).unwrap();
                rounds += 1;
            }
            rounds
        });
        for second in 1..50 {
            case.directory.store(&case.issue(), moment(second)).unwrap();
        }
        stop.send(()).unwrap();
        assert!(reading.join().unwrap() > 0);
    }

    #[test]
    fn damaged_files_say_what_is_wrong() {
        let case = Case::new("damaged");
        let directory = &case.directory;
        directory.store(&case.issue(), moment(0)).unwrap();
        let current = directory.path.join(CURRENT);
        std::fs::write(current.join(KEY), case.issue().key.pem()).unwrap();
        assert!(directory.read().unwrap_err().contains("does not belong to the certificate"));
        std::fs::write(current.join(CERTIFICATE), "").unwrap();
        let why = directory.read().unwrap_err();
        assert!(why.contains("pki/current") && why.contains("CERTIFICATE"), "{why}");
        // A directory in place of the link cannot be replaced.
        directory.clean_up().unwrap();
        std::fs::create_dir_all(current.join("other")).unwrap();
        let why = directory.store(&case.issue(), moment(1)).unwrap_err().to_string();
        assert!(why.contains("remove the directory `current`"), "{why}");
        assert_eq!(case.entries(), [CURRENT]);
    }

    /// A file system of a few pages; none without the right to mount.
    struct Small(PathBuf);

    impl Small {
        fn mount(path: &Path) -> Option<Self> {
            std::fs::create_dir_all(path).unwrap();
            let mounted = mount(&["-t", "tmpfs", "-o", "size=16k", "tmpfs"], path);
            mounted.then(|| Self(path.to_owned()))
        }
    }

    fn mount(words: &[&str], path: &Path) -> bool {
        Command::new("mount").args(words).arg(path).output().is_ok_and(|output| output.status.success())
    }

    impl Drop for Small {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).output();
        }
    }

    #[test]
    fn a_full_or_read_only_disk_is_named_and_the_former_pair_stays() {
        let case = Case::new("full");
        let directory = &case.directory;
        let Some(_small) = Small::mount(&directory.path) else { return };
        let old = case.issue();
        directory.store(&old, moment(0)).unwrap();
        let filler = directory.path.join("filler");
        std::fs::write(&filler, [0; 16 << 10]).unwrap_err();
        let why = directory.store(&case.issue(), moment(1)).unwrap_err().to_string();
        let expected = format!("cannot write the node's certificate in {}", directory.path.display());
        assert!(why.contains(&expected) && why.contains("free space on its file system"), "{why}");
        assert_eq!((directory.read().unwrap().own, case.entries().len()), (old.clone(), 3));
        std::fs::remove_file(&filler).unwrap();
        assert!(mount(&["-o", "remount,ro"], &directory.path));
        let why = directory.store(&case.issue(), moment(2)).unwrap_err().to_string();
        assert!(why.contains("make its file system writable"), "{why}");
        assert_eq!(directory.read().unwrap().own, old);
        assert!(mount(&["-o", "remount,rw"], &directory.path));
        directory.store(&case.issue(), moment(3)).unwrap();
    }
}
