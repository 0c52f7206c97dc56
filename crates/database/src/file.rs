//! What a database file is, from its first record: a raft member of some cluster, standalone, or damaged.
//!
//! ```text
//!   OVSDB CLUSTER <length> <SHA-1>\n{"cluster_id": …, "server_id": …, "local_address": …}\n   a raft member
//!   OVSDB JSON <length> <SHA-1>\n{schema}\n                                                  standalone
//! ```
//!
//! Read without `ovsdb-tool`: it exits with one text for many faults, and a decision about a file needs to tell them apart.
//! ovsdb-server itself verifies the checksums of all records when it starts.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use ovsdb::uuid::Uuid;
use serde::Deserialize;

/// A first record that is longer is damaged: a snapshot of the largest clusters has some hundred megabytes.
const LONGEST_RECORD: u64 = 4 << 30;
/// A header line is far shorter.
const LONGEST_LINE: u64 = 256;

/// What is at the path of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// There is no file: the volume is new, or was lost.
    Missing,
    /// A raft member.
    Clustered(Header),
    /// A standalone database, with the name of its schema.
    Standalone(String),
    /// Neither: the reason.
    Damaged(String),
}

/// Identity of a raft member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name of the database, e.g. `OVN_Northbound`.
    pub name: String,
    /// The cluster; none for a member that was created without one and has not joined yet.
    pub cluster: Option<Uuid>,
    /// Server ID: a member that joins again gets another one.
    pub server: Uuid,
    /// The raft address by which others reach it.
    pub address: String,
    /// Whether it has joined: it contains a snapshot of the cluster.
    pub joined: bool,
    /// The raft addresses of the members by which it joins; empty once it has.
    pub joins_by: Vec<String>,
}

/// The order of the fields in a file is any. All others, among them the snapshot, are skipped while they are read.
#[derive(Deserialize)]
struct RawHeader {
    name: String,
    cluster_id: Option<String>,
    server_id: String,
    local_address: String,
    remote_addresses: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawSchema {
    name: String,
}

impl FileState {
    /// Reads the first record of a file: all of it, but without holding it, because it may be a snapshot of the whole database.
    /// An I/O error other than "not found" is returned: the file may be intact.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Self::Damaged("not a regular file".into()));
        }
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let mut line = Vec::new();
        reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        let (magic, length) = match header_line(&line) {
            Ok(parts) => parts,
            Err(why) => return Ok(Self::Damaged(why)),
        };
        let there = metadata.len().saturating_sub(line.len() as u64);
        if there < length {
            return Ok(Self::Damaged(format!("truncated: {there} of {length} bytes of the first record")));
        }
        Self::parse(magic, reader.take(length))
    }

    fn parse(magic: Magic, record: impl io::Read) -> io::Result<Self> {
        let damaged = |what: &str, error: serde_json::Error| {
            if error.is_io() { Err(error.into()) } else { Ok(Self::Damaged(format!("invalid {what}: {error}"))) }
        };
        match magic {
            Magic::Standalone => match serde_json::from_reader::<_, RawSchema>(record) {
                Ok(schema) => Ok(Self::Standalone(schema.name)),
                Err(error) => damaged("schema", error),
            },
            Magic::Cluster => match serde_json::from_reader::<_, RawHeader>(record) {
                Ok(raw) => Ok(header(raw).map_or_else(Self::Damaged, Self::Clustered)),
                Err(error) => damaged("raft header", error),
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Magic {
    Standalone,
    Cluster,
}

fn header_line(line: &[u8]) -> Result<(Magic, u64), String> {
    if line.is_empty() {
        return Err("empty".into());
    }
    if line.iter().all(|byte| *byte == 0) {
        return Err("filled with zeros".into());
    }
    let text = std::str::from_utf8(line).unwrap_or_default().trim_end_matches('\n');
    let (magic, rest) = match (text.strip_prefix("OVSDB CLUSTER "), text.strip_prefix("OVSDB JSON ")) {
        (Some(rest), _) => (Magic::Cluster, rest),
        (_, Some(rest)) => (Magic::Standalone, rest),
        _ => return Err("not an OVSDB file".into()),
    };
    let (length, _) = rest.split_once(' ').ok_or("truncated: the first line has no checksum")?;
    let length = length.parse().ok().filter(|length| *length <= LONGEST_RECORD);
    Ok((magic, length.ok_or("the first line has no valid length")?))
}

fn header(raw: RawHeader) -> Result<Header, String> {
    let uuid = |text: &str, what: &str| {
        text.parse::<Uuid>()
            .ok()
            .filter(|uuid| *uuid != Uuid::ZERO)
            .ok_or_else(|| format!("invalid {what} {text:?} in the raft header"))
    };
    Ok(Header {
        cluster: raw.cluster_id.as_deref().map(|id| uuid(id, "cluster ID")).transpose()?,
        server: uuid(&raw.server_id, "server ID")?,
        name: raw.name,
        address: raw.local_address,
        joined: raw.remote_addresses.is_none(),
        joins_by: raw.remote_addresses.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn record(magic: &str, json: &str) -> Vec<u8> {
        format!("OVSDB {magic} {} 3494821dba3fff91187dd84fc067d87d586395fb\n{json}", json.len()).into_bytes()
    }

    fn read(bytes: &[u8]) -> FileState {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ovsdb-file-{}-{number}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let state = FileState::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        state
    }

    const SERVER: &str = "624c323b-86d5-4dcb-9462-ce0d2075529a";
    const CLUSTER: &str = "90a3f6ff-fcf9-4405-8515-1bab9cfda53d";

    #[test]
    fn members_and_standalone_databases_are_told_apart() {
        let joining = format!(
            r#"{{"name":"NB","cluster_id":"{CLUSTER}","remote_addresses":["tcp:a:1"],"server_id":"{SERVER}","local_address":"tcp:b:1"}}"#
        );
        let FileState::Clustered(header) = read(&record("CLUSTER", &joining)) else { panic!("not a member") };
        assert_eq!(header.cluster.unwrap().to_string(), CLUSTER);
        assert_eq!(
            (header.server.to_string().as_str(), header.address.as_str(), header.joined),
            (SERVER, "tcp:b:1", false)
        );
        assert_eq!(read(&record("JSON", r#"{"name":"NB","tables":{}}"#)), FileState::Standalone("NB".into()));
        assert_eq!(FileState::read(Path::new("/nonexistent/nb.db")).unwrap(), FileState::Missing);
    }

    /// The most memory that this process has had, in kilobytes.
    fn peak_memory() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_large_snapshot_is_not_held_in_memory() {
        const MEGABYTES: usize = 48;
        let row = format!("\"{}\",", "x".repeat((1 << 20) - 3));
        let start = r#"{"prev_data":["#;
        let end = format!(r#"0],"name":"NB","server_id":"{SERVER}","local_address":"tcp:b:1"}}"#);
        let path = std::env::temp_dir().join(format!("ovsdb-file-{}-large", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let length = start.len() + row.len() * MEGABYTES + end.len();
        write!(file, "OVSDB CLUSTER {length} 3494821dba3fff91187dd84fc067d87d586395fb\n{start}").unwrap();
        (0..MEGABYTES).for_each(|_| file.write_all(row.as_bytes()).unwrap());
        file.write_all(end.as_bytes()).unwrap();
        drop(file);
        let before = peak_memory();
        let state = FileState::read(&path).unwrap();
        let grown = peak_memory() - before;
        std::fs::remove_file(path).unwrap();
        assert!(matches!(&state, FileState::Clustered(header) if header.address == "tcp:b:1"), "{state:?}");
        assert!(grown < MEGABYTES as u64 * 1024 / 2, "{grown} kB more than before");
    }

    #[test]
    fn damage_is_named() {
        let damage = |bytes: &[u8]| match read(bytes) {
            FileState::Damaged(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(damage(b""), "empty");
        assert_eq!(damage(&[0; 4096]), "filled with zeros");
        assert_eq!(damage(b"hello\n"), "not an OVSDB file");
        let whole = record("CLUSTER", &format!(r#"{{"name":"NB","server_id":"{SERVER}","local_address":"tcp:b:1"}}"#));
        assert!(damage(&whole[..whole.len() - 3]).starts_with("truncated"));
        let zero = "00000000-0000-0000-0000-000000000000";
        let text = format!(r#"{{"name":"NB","cluster_id":"{zero}","server_id":"{SERVER}","local_address":"tcp:b:1"}}"#);
        assert!(damage(&record("CLUSTER", &text)).contains("invalid cluster ID"));
    }
}
