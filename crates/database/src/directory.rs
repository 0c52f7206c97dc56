//! The data directory of a member: runs `ovsdb-tool`, and moves files. Nothing is ever deleted but a staging file that
//! never ran.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ovsdb::uuid::Uuid;
use tokio::process::Command;

use crate::file::{FileState, Header};
use crate::options::Options;

/// Why a step in the data directory failed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A system call failed.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// The step.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// `ovsdb-tool` failed.
    #[error("ovsdb-tool {command} failed: {output}")]
    Tool {
        /// Its sub-command.
        command: &'static str,
        /// What it printed.
        output: String,
    },
}

fn failure(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |error| DirectoryError::Io { what, path, error }
}

/// Files of one database in its data directory.
#[derive(Debug)]
pub struct DataDirectory<'a> {
    options: &'a Options,
}

impl<'a> DataDirectory<'a> {
    /// The data directory of these options.
    pub fn new(options: &'a Options) -> Self {
        Self { options }
    }

    /// Path of the database.
    pub fn path(&self) -> PathBuf {
        self.options.kind.file(&self.options.data_directory)
    }

    /// Path of a cluster that is not recorded yet.
    fn staging_path(&self) -> PathBuf {
        self.path().with_extension("staged")
    }

    /// Path of a cluster that is about to replace the recorded one.
    fn replacement_path(&self) -> PathBuf {
        self.path().with_extension("replacement")
    }

    /// State of the file.
    pub fn read(&self) -> Result<FileState, DirectoryError> {
        let path = self.path();
        FileState::read(&path).map_err(failure("read", &path))
    }

    /// State of the staging file; a replacement whose cluster is recorded becomes the staging file first.
    pub fn read_staged(&self, recorded: Option<Uuid>) -> Result<FileState, DirectoryError> {
        let replacement = self.replacement_path();
        if let FileState::Clustered(header) = FileState::read(&replacement).map_err(failure("read", &replacement))?
            && header.cluster.is_some()
            && header.cluster == recorded
        {
            std::fs::rename(&replacement, self.staging_path()).map_err(failure("rename", &replacement))?;
        }
        let path = self.staging_path();
        FileState::read(&path).map_err(failure("read", &path))
    }

    /// Creates a new cluster in the staging file.
    pub async fn stage(&self, election_timer: u64) -> Result<(), DirectoryError> {
        self.create(&self.staging_path(), None, election_timer).await
    }

    /// Creates a cluster that is to replace the recorded one, with the rows of a backup or empty; returns its ID.
    pub async fn stage_replacement(
        &self,
        backup: Option<&Path>,
        election_timer: u64,
    ) -> Result<Option<Uuid>, DirectoryError> {
        let path = self.replacement_path();
        self.create(&path, backup, election_timer).await?;
        match FileState::read(&path).map_err(failure("read", &path))? {
            FileState::Clustered(header) => Ok(header.cluster),
            _ => Ok(None),
        }
    }

    /// Without a backup it starts with the global row: ovn-controller crashes on a southbound database that has none.
    async fn create(&self, target: &Path, backup: Option<&Path>, election_timer: u64) -> Result<(), DirectoryError> {
        remove(target)?;
        let timer = format!("--election-timer={election_timer}");
        let address = self.options.address();
        if let Some(backup) = backup {
            return tool("create-cluster", &[&timer], &[&display(target), &display(backup), &address]).await;
        }
        let kind = self.options.kind;
        let initial = self.path().with_extension("initial");
        remove(&initial)?;
        tool("create", &[], &[&display(&initial), &display(&kind.schema_file(&self.options.schema_directory))]).await?;
        let insert = serde_json::json!([kind.schema(), {"op": "insert", "table": kind.global_table(), "row": {}}]);
        tool("transact", &[], &[&display(&initial), &insert.to_string()]).await?;
        tool("create-cluster", &[&timer], &[&display(target), &display(&initial), &address]).await?;
        remove(&initial)
    }

    /// Removes the staging file, which never ran.
    pub fn discard(&self) -> Result<(), DirectoryError> {
        remove(&self.staging_path())
    }

    /// Moves the staging file to the path of the database.
    pub fn install(&self) -> Result<(), DirectoryError> {
        let (from, to) = (self.staging_path(), self.path());
        // Another file must never be replaced, whatever was read before.
        std::fs::hard_link(&from, &to).map_err(failure("create", &to))?;
        sync_directory(&self.options.data_directory).map_err(failure("sync", &self.options.data_directory))?;
        self.discard()
    }

    /// Creates a file that joins a cluster by these members.
    pub async fn join(&self, cluster: Uuid, peers: &[String]) -> Result<(), DirectoryError> {
        let (cid, path) = (format!("--cid={cluster}"), self.path());
        let path = display(&path);
        let mut arguments = vec![path.as_str(), self.options.kind.schema()];
        let address = self.options.address();
        arguments.push(&address);
        arguments.extend(peers.iter().map(String::as_str));
        tool("join-cluster", &[&cid], &arguments).await
    }

    /// Puts the file aside under a name with its server ID; returns the new path.
    pub fn set_aside(&self, header: Option<&Header>) -> Result<PathBuf, DirectoryError> {
        let from = self.path();
        let label = header.map_or_else(|| "damaged".to_owned(), |header| header.server.to_string());
        let free = |number: u32| {
            let suffix = if number == 0 { label.clone() } else { format!("{label}.{number}") };
            let path = from.with_extension(format!("db.{suffix}"));
            (!path.exists()).then_some(path)
        };
        let to = (0..).find_map(free).unwrap_or_else(|| from.with_extension("db.aside"));
        std::fs::rename(&from, &to).map_err(failure("rename", &from))?;
        sync_directory(&self.options.data_directory).map_err(failure("sync", &self.options.data_directory))?;
        Ok(to)
    }
}

/// Removes a file and its lock file, if they exist.
fn remove(path: &Path) -> Result<(), DirectoryError> {
    let _ = std::fs::remove_file(lock_file(path));
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failure("remove", path)(error)),
        _ => Ok(()),
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// `.ovnnb_db.db.~lock~` beside `ovnnb_db.db`.
fn lock_file(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.~lock~"))
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

async fn tool(command: &'static str, options: &[&str], arguments: &[&str]) -> Result<(), DirectoryError> {
    let output = Command::new("ovsdb-tool")
        .args(["-vconsole:err", "-vsyslog:off"])
        .args(options)
        .arg(command)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failure("run", Path::new("ovsdb-tool")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(DirectoryError::Tool { command, output: text.trim().replace('\n', "; ") })
}
