//! Backups of a database: a standalone copy, with a description next to it by which a restore verifies it.
//!
//! ```text
//!   nb.backup         OVSDB JSON <length> <SHA-1>\n{schema}\n     then one record for each transaction, usually one with all rows
//!   nb.backup.json    database, cluster ID, time, size and SHA-256 of the copy
//! ```
//!
//! A copy that ends exactly after a record looks complete: after the schema, it is a valid, empty database. So a restore
//! compares size and SHA-256, and refuses a database without the row that OVN itself needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ovsdb::client::Remote;
use ovsdb::uuid::Uuid;
use ring::digest::{Context, SHA256};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::process::Command;

use crate::active_backup::Marker;
use crate::file::FileState;
use crate::inspect;
use crate::kind::Kind;
use crate::options::Options;
use crate::raft_log::sha1;
use crate::record::{CONFIG_MAP, Record};
use crate::replace::{ReplaceError, local_status};

/// Describes a backup; next to it as `FILE.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupInfo {
    /// Name of the schema.
    pub database: String,
    /// The cluster that it was taken of, as in its record in the API; none if that could not be found out.
    pub cluster_id: Option<String>,
    /// When it was taken.
    pub created: String,
    /// Size and checksum of the copy; none in a description by an earlier version.
    #[serde(flatten)]
    pub content: Option<Content>,
}

/// Size and checksum, by which a restore recognizes an incomplete or changed copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Length of the copy, in bytes.
    pub size: u64,
    /// Checksum of the copy, in hexadecimal digits.
    pub sha256: String,
}

impl Content {
    fn of(mut reader: impl io::Read) -> io::Result<Self> {
        let (mut size, mut context, mut buffer) = (0, Context::new(&SHA256), [0; 1 << 14]);
        loop {
            match reader.read(&mut buffer)? {
                0 => break,
                read => {
                    context.update(&buffer[..read]);
                    size += read as u64;
                }
            }
        }
        let sha256 = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { size, sha256 })
    }

    /// How a copy differs from the one that was taken; none if it does not.
    fn difference(&self, now: &Self) -> Option<String> {
        if now.size != self.size {
            let cut = if now.size < self.size { "truncated" } else { "changed" };
            return Some(format!("{cut}: {} bytes, but {} were written", now.size, self.size));
        }
        (now.sha256 != self.sha256).then(|| "changed: its SHA-256 is not the one that was written".into())
    }
}

impl BackupInfo {
    fn path(backup: &Path) -> PathBuf {
        let mut name = backup.as_os_str().to_owned();
        name.push(".json");
        name.into()
    }
}

/// Copies the database of the local server to a file, in the standalone format.
pub async fn take(options: &Options, target: &Path) -> Result<BackupInfo, ReplaceError> {
    let failure = |path: &Path| {
        let path = path.to_owned();
        move |error| ReplaceError::File { path, error }
    };
    match std::fs::symlink_metadata(target) {
        Ok(found) if !found.is_file() => {
            let path = target.display();
            return Err(ReplaceError::Refused(format!("{path} exists and is not a regular file; give another name")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failure(target)(error)),
    }
    if matches!(FileState::read(target).map_err(failure(target))?, FileState::Clustered(_)) {
        let path = target.display();
        return Err(ReplaceError::Refused(format!("{path} is the file of a raft member; give another name")));
    }
    let socket = options.kind.socket(&options.run_directory);
    let output = Command::new("ovsdb-client")
        .args([
            "--timeout=120",
            "--no-leader-only",
            "backup",
            &format!("unix:{}", socket.display()),
            options.kind.schema(),
        ])
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failure(Path::new("ovsdb-client")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        return Err(ReplaceError::Refused(format!("cannot copy the database: {text}")));
    }
    let cluster_id = cluster_of_server(options, &socket).await;
    let info = BackupInfo {
        database: options.kind.schema().to_owned(),
        cluster_id,
        created: kubernetes::timestamp(),
        content: Some(Content::of(output.stdout.as_slice()).map_err(failure(target))?),
    };
    let mut partial = target.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if let Err(error) = write_synced(&partial, &output.stdout) {
        let _ = std::fs::remove_file(&partial);
        return Err(failure(&partial)(error));
    }
    if !matches!(FileState::read(&partial).map_err(failure(&partial))?, FileState::Standalone(_)) {
        return Err(ReplaceError::Refused(format!("the copy in {} is not a database", partial.display())));
    }
    // A file with the final name is complete; its description comes last, so that it never belongs to another copy.
    let beside = BackupInfo::path(target);
    if let Err(error) = std::fs::remove_file(&beside)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(failure(&beside)(error));
    }
    std::fs::rename(&partial, target).map_err(failure(target))?;
    let text = serde_json::to_string_pretty(&info).unwrap_or_default();
    write_synced(&beside, text.as_bytes()).map_err(failure(&beside))?;
    Ok(info)
}

/// The cluster ID of the server that was copied. It just answered at its socket, whatever its control socket does.
async fn cluster_of_server(options: &Options, socket: &Path) -> Option<String> {
    let asked = inspect::ask_all(options.kind, &[Remote::Unix(socket.to_owned())], None).await;
    if let Some(cluster) = asked.into_iter().find_map(|member| member.cluster) {
        return Some(cluster);
    }
    if let Some(status) = local_status(options).await
        && status.cluster.parse::<Uuid>().is_ok()
    {
        return Some(status.cluster);
    }
    match FileState::read(&options.kind.file(&options.data_directory)) {
        Ok(FileState::Clustered(header)) => header.cluster.map(|cluster| cluster.to_string()),
        // An active server or a backup: its record names the data.
        Ok(FileState::Standalone(_)) => Marker::read(options.kind, &options.data_directory).map(|it| it.database_id),
        _ => None,
    }
}

/// Writes a new file, readable by its owner alone: never through a link to another one.
fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.sync_all()
}

/// A backup must be complete, of this database, and of a cluster that this database was. `force` waives the last. Returns a
/// warning if size and checksum could not be compared.
pub(crate) fn check(
    kind: Kind,
    backup: &Path,
    record: Option<&Record>,
    force: bool,
) -> Result<Option<String>, ReplaceError> {
    let failure = |error| ReplaceError::File { path: backup.to_owned(), error };
    let refuse = |why: String| Err(ReplaceError::Refused(format!("{}: {why}; nothing was changed", backup.display())));
    match FileState::read(backup).map_err(failure)? {
        FileState::Missing => return refuse("no such file".into()),
        FileState::Damaged(why) => {
            return refuse(format!("not a usable backup ({why}); copy it again, or use another one"));
        }
        FileState::Standalone(name) if name != kind.schema() => {
            return refuse(format!("a backup of {name}, not of {}", kind.schema()));
        }
        FileState::Clustered(_) => {
            return refuse(
                "the file of a raft member, not a backup; `ovsdb-tool cluster-to-standalone` converts it".into(),
            );
        }
        FileState::Standalone(_) => {}
    }
    let beside = BackupInfo::path(backup);
    let info = read_info(&beside);
    if let Some(written) = info.as_ref().and_then(|info| info.content.as_ref()) {
        let now = File::open(backup).and_then(Content::of).map_err(failure)?;
        if let Some(difference) = written.difference(&now) {
            return refuse(format!(
                "{difference} according to {}; copy the backup again, or use another one; to restore it as it is, remove the \
                 .json file and add --force",
                beside.display()
            ));
        }
    }
    match has_row(BufReader::new(File::open(backup).map_err(failure)?), kind.global_table()) {
        Ok(true) => {}
        Ok(false) => {
            return refuse(format!(
                "no row in {}, which every database in use has: the backup is empty or incomplete; use another one, or \
                 `ovnkube db rebuild` for an empty database",
                kind.global_table()
            ));
        }
        Err(Unreadable::Io(error)) => return Err(failure(error)),
        Err(Unreadable::Damaged(why)) => {
            return refuse(format!("not a usable backup ({why}); copy it again, or use another one"));
        }
    }
    let verified = info.as_ref().is_some_and(|info| info.content.is_some());
    let warning = (!verified).then(|| {
        format!(
            "no size and checksum in {}: rows that are missing at the end of the backup would not be noticed; compare the \
             database after the restore",
            beside.display()
        )
    });
    if force {
        return Ok(warning);
    }
    let Some(info) = info else {
        return refuse(format!(
            "without {}, which says of which cluster it is; --force restores it anyway",
            beside.display()
        ));
    };
    // Without a record there is nothing that another database's rows could replace.
    let Some(record) = record else { return Ok(warning) };
    match info.cluster_id {
        Some(id) if record.cluster_id == id || record.replaced.contains(&id) => Ok(warning),
        Some(id) => {
            refuse(format!("a backup of cluster {id}, which this database never was; --force restores it anyway"))
        }
        None => refuse(format!(
            "{} does not say of which cluster it is, so that it may be a backup of another one than {}, which ConfigMap \
             {CONFIG_MAP} names; compare its rows (`ovsdb-tool query`), then --force restores it",
            beside.display(),
            record.cluster_id
        )),
    }
}

/// The description of a backup: a short regular file.
fn read_info(path: &Path) -> Option<BackupInfo> {
    const LONGEST: u64 = 64 << 10;
    let regular = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= LONGEST);
    regular.then(|| std::fs::read(path).ok()).flatten().and_then(|text| serde_json::from_slice(&text).ok())
}

/// Why the records of a copy cannot be read.
#[derive(Debug)]
enum Unreadable {
    Io(io::Error),
    Damaged(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads all records of a standalone database; returns whether a table has a row at the end.
fn has_row(mut reader: impl BufRead, table: &str) -> Result<bool, Unreadable> {
    let mut rows: BTreeSet<String> = BTreeSet::new();
    for number in 1.. {
        let Some(json) = next_record(&mut reader, number)? else { break };
        // The first one is the schema.
        if number > 1 {
            let damaged =
                |error: serde_json::Error| Unreadable::Damaged(format!("record {number} is invalid: {error}"));
            let tables: BTreeMap<String, &RawValue> = serde_json::from_slice(&json).map_err(damaged)?;
            let Some(changed) = tables.get(table) else { continue };
            // Null is a row that was deleted.
            let changed: BTreeMap<String, Option<IgnoredAny>> = serde_json::from_str(changed.get()).map_err(damaged)?;
            for (uuid, row) in changed {
                if row.is_some() {
                    rows.insert(uuid);
                } else {
                    rows.remove(&uuid);
                }
            }
        }
    }
    Ok(!rows.is_empty())
}

/// The JSON of the next record, verified; none at the end of the file.
fn next_record(reader: &mut impl BufRead, number: u32) -> Result<Option<Vec<u8>>, Unreadable> {
    const LONGEST_LINE: u64 = 256;
    let damaged = |what: &str| Err(Unreadable::Damaged(format!("record {number} {what}")));
    let mut line = Vec::new();
    reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&line).unwrap_or_default();
    let fields = text.strip_prefix("OVSDB JSON ").and_then(|rest| rest.strip_suffix('\n')?.split_once(' '));
    let Some((length, checksum)) = fields.and_then(|(length, sum)| Some((length.parse::<u64>().ok()?, sum))) else {
        return damaged("has no header line: truncated or damaged");
    };
    let mut json = Vec::new();
    reader.by_ref().take(length).read_to_end(&mut json)?;
    if (json.len() as u64) < length {
        return damaged("is truncated");
    }
    if sha1(&json) != checksum { damaged("is damaged: its checksum is wrong") } else { Ok(Some(json)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "90a3f6ff-fcf9-4405-8515-1bab9cfda53d";
    const SCHEMA: &str = r#"{"name":"OVN_Northbound","tables":{}}"#;
    const ROWS: &str = r#"{"NB_Global":{"624c323b-86d5-4dcb-9462-ce0d2075529a":{}},"_date":1}"#;

    fn record(json: &str) -> String {
        let json = format!("{json}\n");
        format!("OVSDB JSON {} {}\n{json}", json.len(), sha1(json.as_bytes()))
    }

    /// A backup with its description, removed on drop.
    struct Sample(PathBuf);

    impl Drop for Sample {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
            let _ = std::fs::remove_file(BackupInfo::path(&self.0));
        }
    }

    impl Sample {
        fn new(name: &str, records: &[&str]) -> Self {
            let path = std::env::temp_dir().join(format!("backup-{}-{name}", std::process::id()));
            let sample = Self(path);
            let text: String = records.iter().map(|json| record(json)).collect();
            std::fs::write(&sample.0, &text).unwrap();
            sample.describe(Some(ID), Content::of(text.as_bytes()).ok());
            sample
        }

        fn describe(&self, cluster: Option<&str>, content: Option<Content>) {
            let (database, created) = ("OVN_Northbound".into(), String::new());
            let info = BackupInfo { database, cluster_id: cluster.map(str::to_owned), created, content };
            std::fs::write(BackupInfo::path(&self.0), serde_json::to_string(&info).unwrap()).unwrap();
        }

        fn check(&self, force: bool) -> Result<Option<String>, String> {
            let replaced = vec![ID.into()];
            let record = Record { replaced, ..Record::new("624c323b-86d5-4dcb-9462-ce0d2075529a".into(), "n1") };
            check(Kind::Northbound, &self.0, Some(&record), force).map_err(|error| error.to_string())
        }

        /// Refused, also with `--force`, for a reason with these words.
        fn assert_refused(&self, words: &[&str]) {
            for force in [false, true] {
                let error = self.check(force).unwrap_err();
                for word in words.iter().chain(&["nothing was changed"]) {
                    assert!(error.contains(word), "{word}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_backup_of_another_database_or_cluster_is_refused() {
        let sample = Sample::new("other", &[SCHEMA, ROWS]);
        assert_eq!(sample.check(false), Ok(None));
        let error = check(Kind::Southbound, &sample.0, None, true).unwrap_err().to_string();
        assert!(error.contains("a backup of OVN_Northbound"), "{error}");
        let content = File::open(&sample.0).and_then(Content::of).ok();
        sample.describe(Some("00000000-0000-0000-0000-000000000001"), content.clone());
        assert!(sample.check(false).unwrap_err().contains("never was"));
        assert_eq!(sample.check(true), Ok(None));
        sample.describe(None, content);
        let error = sample.check(false).unwrap_err();
        for words in [".json does not say of which cluster it is", "--force restores it", "nothing was changed"] {
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(sample.check(true), Ok(None));
        let unrecorded = check(Kind::Northbound, &sample.0, None, false).map_err(|error| error.to_string());
        assert_eq!(unrecorded, Ok(None), "it replaces no database");
    }

    #[test]
    fn a_backup_without_size_and_checksum_is_restored_with_a_warning() {
        let sample = Sample::new("older", &[SCHEMA, ROWS]);
        sample.describe(Some(ID), None);
        let warns =
            |force| sample.check(force).unwrap().is_some_and(|warning| warning.contains("no size and checksum"));
        assert!(warns(false), "a description by an earlier version");
        // As `ovsdb-client backup` writes it.
        std::fs::remove_file(BackupInfo::path(&sample.0)).unwrap();
        assert!(warns(true), "no description");
        assert!(sample.check(false).unwrap_err().contains("--force restores it anyway"));
    }

    #[test]
    fn a_backup_that_was_cut_anywhere_is_refused() {
        let sample = Sample::new("cut", &[SCHEMA, ROWS]);
        let whole = std::fs::read(&sample.0).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&sample.0, &whole[..length]).unwrap();
            sample.assert_refused(&[]);
        }
        // Exactly after the schema: a valid, empty database.
        std::fs::write(&sample.0, record(SCHEMA)).unwrap();
        sample.assert_refused(&["truncated", "bytes, but", "copy the backup again"]);
        // Without size and checksum, too.
        sample.describe(Some(ID), None);
        sample.assert_refused(&["no row in NB_Global", "ovnkube db rebuild"]);
        for length in record(SCHEMA).len() + 1..whole.len() {
            std::fs::write(&sample.0, &whole[..length]).unwrap();
            sample.assert_refused(&["record 2", "truncated"]);
        }
    }

    #[test]
    fn a_backup_that_was_changed_is_refused() {
        let sample = Sample::new("changed", &[SCHEMA, ROWS]);
        let text = std::fs::read_to_string(&sample.0).unwrap();
        std::fs::write(&sample.0, text.replace("_date", "_Date")).unwrap();
        sample.assert_refused(&["changed: its SHA-256", "remove the .json file"]);
        sample.describe(Some(ID), None);
        sample.assert_refused(&["record 2 is damaged: its checksum"]);
        std::fs::write(&sample.0, text.clone() + &record("{}")).unwrap();
        sample.describe(Some(ID), Content::of(text.as_bytes()).ok());
        sample.assert_refused(&["changed:", "were written"]);
    }

    #[test]
    fn a_database_whose_global_row_was_deleted_is_refused() {
        let deleted = r#"{"NB_Global":{"624c323b-86d5-4dcb-9462-ce0d2075529a":null}}"#;
        Sample::new("deleted", &[SCHEMA, ROWS, deleted]).assert_refused(&["no row in NB_Global"]);
        assert_eq!(Sample::new("again", &[SCHEMA, ROWS, deleted, ROWS]).check(false), Ok(None));
    }
}
