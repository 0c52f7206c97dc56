//! The data directory of a member: runs `ovsdb-tool`, and moves files. Nothing is ever deleted but files that never
//! ran.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ovsdb::uuid::Uuid;
use tokio::process::Command;

use crate::file::{FileState, Header};
use crate::file_cache::FileCache;
use crate::options::Options;
use crate::version::{Version, VersionError};

/// A conversion of the schema, which rewrites all rows, takes this long at most.
pub(crate) const CONVERSION_LIMIT: Duration = Duration::from_secs(90);

/// Why a step in the data directory failed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A system call failed.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// The verb of the message: `read`, `rename`, `remove`, …
        what: &'static str,
        /// The file that the call was about.
        path: PathBuf,
        /// As the kernel reported it; [`crate::assess::failure`] classifies its words.
        error: io::Error,
    },
    /// `ovsdb-tool` or `ovsdb-client` failed.
    #[error("{program} {command} failed: {output}")]
    Tool {
        /// `ovsdb-tool` or `ovsdb-client`.
        program: &'static str,
        /// For example `create-cluster`.
        command: &'static str,
        /// Its standard error, in one line.
        output: String,
    },
}

impl DirectoryError {
    pub(crate) fn read(path: &Path, error: io::Error) -> Self {
        failure("read", path)(error)
    }
}

fn failure(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |error| DirectoryError::Io { what, path, error }
}

/// Files of one database in its data directory.
#[derive(Debug)]
pub(crate) struct DataDirectory<'a> {
    options: &'a Options,
}

impl<'a> DataDirectory<'a> {
    /// Reads and creates nothing.
    pub(crate) fn new(options: &'a Options) -> Self {
        Self { options }
    }

    /// Path of the database file, whether it exists or not.
    pub(crate) fn path(&self) -> PathBuf {
        self.options.kind.file(&self.options.data_directory)
    }

    /// A cluster that is not recorded yet; it never runs under this name.
    fn staging_path(&self) -> PathBuf {
        self.path().with_extension("staged")
    }

    /// Path of a cluster that is about to replace the recorded one.
    fn replacement_path(&self) -> PathBuf {
        self.path().with_extension("replacement")
    }

    /// State of the database file by its first record; later records are not checked.
    pub(crate) async fn read(&self, files: &mut FileCache) -> Result<FileState, DirectoryError> {
        let path = self.path();
        files.read(&path).await.map_err(failure("read", &path))
    }

    /// State of the staging file; a replacement whose cluster is recorded becomes the staging file first.
    pub(crate) async fn read_staged(
        &self,
        files: &mut FileCache,
        recorded: Option<Uuid>,
    ) -> Result<FileState, DirectoryError> {
        let replacement = self.replacement_path();
        if let FileState::Clustered(header) = files.read(&replacement).await.map_err(failure("read", &replacement))?
            && header.cluster.is_some()
            && header.cluster == recorded
        {
            std::fs::rename(&replacement, self.staging_path()).map_err(failure("rename", &replacement))?;
        }
        let path = self.staging_path();
        files.read(&path).await.map_err(failure("read", &path))
    }

    /// Creates a cluster of one server in the staging file; the election timer is in milliseconds.
    pub(crate) async fn stage(&self, election_timer: u64) -> Result<(), DirectoryError> {
        self.create(&self.staging_path(), None, election_timer).await
    }

    /// Creates a cluster that is to replace the recorded one, with the rows of a backup or empty; returns its ID.
    pub(crate) async fn stage_replacement(
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
        let initial = self.create_initial(true).await?;
        tool("create-cluster", &[&timer], &[&display(target), &display(&initial), &address]).await?;
        remove(&initial)
    }

    /// Creates a standalone database beside the real one, with its global row or without any; returns its path.
    async fn create_initial(&self, with_global_row: bool) -> Result<PathBuf, DirectoryError> {
        let kind = self.options.kind;
        let initial = self.path().with_extension("initial");
        remove(&initial)?;
        tool("create", &[], &[&display(&initial), &display(&kind.schema_file(&self.options.schema_directory))]).await?;
        if with_global_row {
            let insert = serde_json::json!([kind.schema(), {"op": "insert", "table": kind.global_table(), "row": {}}]);
            tool("transact", &[], &[&display(&initial), &insert.to_string()]).await?;
        }
        Ok(initial)
    }

    /// Creates a standalone database, with its global row or without any.
    pub(crate) async fn create_standalone(&self, with_global_row: bool) -> Result<(), DirectoryError> {
        let initial = self.create_initial(with_global_row).await?;
        self.move_into_place(&initial)
    }

    /// Moves a complete file to the path of the database.
    fn move_into_place(&self, from: &Path) -> Result<(), DirectoryError> {
        let to = self.path();
        // Another file must never be replaced, whatever was read before.
        std::fs::hard_link(from, &to).map_err(failure("create", &to))?;
        sync_directory(&self.options.data_directory).map_err(failure("sync", &self.options.data_directory))?;
        remove(from)
    }

    /// Removes the staging file, which never ran.
    pub(crate) fn discard(&self) -> Result<(), DirectoryError> {
        remove(&self.staging_path())
    }

    /// Moves the staging file to the path of the database.
    pub(crate) fn install(&self) -> Result<(), DirectoryError> {
        self.move_into_place(&self.staging_path())
    }

    /// Creates a file that joins a cluster by these members. Beside the path at first: `ovsdb-tool` leaves an incomplete file if
    /// the disk is full or it is killed, which would then count as damaged.
    pub(crate) async fn join(&self, cluster: Uuid, peers: &[String]) -> Result<(), DirectoryError> {
        let (cid, joining) = (format!("--cid={cluster}"), self.path().with_extension("joining"));
        remove(&joining)?;
        let path = display(&joining);
        let mut arguments = vec![path.as_str(), self.options.kind.schema()];
        let address = self.options.address();
        arguments.push(&address);
        arguments.extend(peers.iter().map(String::as_str));
        tool("join-cluster", &[&cid], &arguments).await?;
        self.move_into_place(&joining)
    }

    /// Converts the running database to the schema of this image. The local server must lead.
    pub(crate) async fn convert(&self) -> Result<(), DirectoryError> {
        let kind = self.options.kind;
        let socket = format!("unix:{}", kind.socket(&self.options.run_directory).display());
        let schema = display(&kind.schema_file(&self.options.schema_directory));
        let limit = format!("--timeout={}", CONVERSION_LIMIT.as_secs());
        run("ovsdb-client", "convert", &[&limit], &[&socket, &schema]).await?;
        tracing::info!(database = kind.name(), schema, "converted the database to the schema of the image");
        Ok(())
    }

    /// Version of the schema of a standalone file.
    pub(crate) async fn schema_version(&self) -> Result<Version, DirectoryError> {
        let output = run("ovsdb-tool", "db-version", &[], &[&display(&self.path())]).await?;
        let failure = |error: VersionError| DirectoryError::Tool {
            program: "ovsdb-tool",
            command: "db-version",
            output: error.to_string(),
        };
        output.trim().parse().map_err(failure)
    }

    /// Converts a standalone file, whose server does not run, to the schema of this image.
    pub(crate) async fn convert_file(&self) -> Result<(), DirectoryError> {
        let kind = self.options.kind;
        let schema = display(&kind.schema_file(&self.options.schema_directory));
        // `ovsdb-tool` writes a new file, and moves that to the place of the old one.
        tool("convert", &[], &[&display(&self.path()), &schema]).await?;
        tracing::info!(database = kind.name(), schema, "converted the database to the schema of the image");
        Ok(())
    }

    /// Puts the file aside under a name with its server ID; returns the new path.
    pub(crate) fn set_aside(&self, header: Option<&Header>) -> Result<PathBuf, DirectoryError> {
        self.set_aside_as(&header.map_or_else(|| "damaged".to_owned(), |header| header.server.to_string()))
    }

    /// Puts the file aside under a name with this label; returns the new path.
    pub(crate) fn set_aside_as(&self, label: &str) -> Result<PathBuf, DirectoryError> {
        let from = self.path();
        let free = |number: u32| {
            let suffix = if number == 0 { label.to_owned() } else { format!("{label}.{number}") };
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

pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

async fn tool(command: &'static str, options: &[&str], arguments: &[&str]) -> Result<(), DirectoryError> {
    run("ovsdb-tool", command, options, arguments).await.map(drop)
}

/// Runs a program to its end; returns its output.
async fn run(
    program: &'static str,
    command: &'static str,
    options: &[&str],
    arguments: &[&str],
) -> Result<String, DirectoryError> {
    let output = Command::new(program)
        .args(["-vconsole:err", "-vsyslog:off"])
        .args(options)
        .arg(command)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failure("run", Path::new(program)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(DirectoryError::Tool { program, command, output: text.trim().replace('\n', "; ") })
}
