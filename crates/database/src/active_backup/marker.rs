//! What a member knows about its own file, next to the file: `ovnnb_db.member.json`.

use std::io;
use std::path::{Path, PathBuf};

use ovsdb::uuid::Uuid;
use serde::{Deserialize, Serialize};

use crate::directory::DataDirectory;
use crate::file::FileState;
use crate::kind::Kind;
use crate::options::Options;

/// What a member knows about its own file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    /// The database that the file belongs to, as it is recorded in the API.
    pub database_id: String,
    /// Whether it has had all data once: it was created with it, or a first replication was completed. Only then may the
    /// server become active.
    pub complete: bool,
}

/// Whether the database of this member is in this form, and not a raft member.
pub fn is_member(options: &Options) -> bool {
    let standalone = matches!(FileState::read(&DataDirectory::new(options).path()), Ok(FileState::Standalone(_)));
    standalone && Marker::read(options.kind, &options.data_directory).is_some()
}

impl Marker {
    /// Whether the file belongs to this database.
    pub fn is_of(&self, database: Uuid) -> bool {
        self.database_id.parse() == Ok(database)
    }

    fn path(kind: Kind, directory: &Path) -> PathBuf {
        kind.file(directory).with_extension("member.json")
    }

    /// Reads it; none if there is none, or an unreadable one: then nothing is known about the file.
    pub fn read(kind: Kind, directory: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(kind, directory)).ok()?).ok()
    }

    /// Writes it; after a power failure there is the former or the new one.
    pub fn write(&self, kind: Kind, directory: &Path) -> io::Result<()> {
        let path = Self::path(kind, directory);
        let fresh = path.with_extension("json.new");
        std::fs::write(&fresh, serde_json::to_vec(self)?)?;
        std::fs::File::open(&fresh)?.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        std::fs::File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_written_and_damage_means_none() {
        let directory = std::env::temp_dir().join(format!("marker-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        assert_eq!(Marker::read(Kind::Northbound, &directory), None);
        let marker = Marker { database_id: "90a3f6ff-fcf9-4405-8515-1bab9cfda53d".into(), complete: true };
        marker.write(Kind::Northbound, &directory).unwrap();
        assert_eq!(Marker::read(Kind::Northbound, &directory), Some(marker.clone()));
        assert_eq!(Marker::read(Kind::Southbound, &directory), None);
        assert!(marker.is_of(marker.database_id.parse().unwrap()) && !marker.is_of(Uuid::ZERO));
        std::fs::write(Marker::path(Kind::Northbound, &directory), "{").unwrap();
        assert_eq!(Marker::read(Kind::Northbound, &directory), None);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
