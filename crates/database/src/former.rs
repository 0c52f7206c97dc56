//! Former servers of this member: those whose files it put aside, e.g. because its address changed.
//!
//! Such a server cannot return by itself, but stays in the configuration of the cluster and counts for the quorum: with
//! four servers, one of which is gone, no other may fail. Its successor, which is a member again, therefore has it removed at
//! once; the request goes to the leader.

use std::path::{Path, PathBuf};

use ovsdb::uuid::Uuid;

use crate::file::{FileState, Header};
use crate::file_cache::FileCache;
use crate::maintenance::Action;
use crate::status::{ClusterStatus, Server};

/// The removal of a former server, if one is still in the configuration. `file` is the path of the database.
pub(crate) async fn removal(status: &ClusterStatus, file: &Path, files: &mut FileCache) -> Option<Action> {
    if !status.is_member() || !status.has_leader() {
        return None;
    }
    let file = file.to_owned();
    let asides = tokio::task::spawn_blocking(move || asides(&file)).await.unwrap_or_default();
    for (_, path) in asides.iter().filter(|(id, _)| status.servers.iter().any(|server| is_named(server, *id))) {
        if let Ok(FileState::Clustered(header)) = files.read(path).await
            && let Some(action) = former(status, &header)
        {
            return Some(action);
        }
    }
    None
}

/// The removal of the server that this file was of. Pure.
fn former(status: &ClusterStatus, aside: &Header) -> Option<Action> {
    let cluster: Option<Uuid> = status.cluster.parse().ok();
    if cluster.is_none() || aside.cluster != cluster {
        return None;
    }
    let is_it = |server: &&Server| !server.this && is_named(server, aside.server) && server.address == aside.address;
    let server = status.servers.iter().find(is_it)?;
    let reason = format!("server {} replaced it, and its file was put aside", status.short_id());
    Some(Action::Kick { server: server.id.clone(), address: server.address.clone(), reason })
}

fn is_named(server: &Server, id: Uuid) -> bool {
    !server.id.is_empty() && id.to_string().starts_with(&server.id)
}

/// Files next to the database that were put aside under the ID of their server.
fn asides(file: &Path) -> Vec<(Uuid, PathBuf)> {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    // An unreadable directory is reported by the disk check.
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let with_id = |path: PathBuf| {
        let suffix = path.file_name().and_then(|other| other.to_str()?.strip_prefix(name)?.strip_prefix('.'));
        Some((suffix.and_then(Uuid::parse)?, path))
    };
    entries.filter_map(|entry| with_id(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "9efdc05e-0e3f-4d87-8c24-468f6c6cebd0";
    const FORMER: &str = "624c323b-86d5-4dcb-9462-ce0d2075529a";

    fn status() -> ClusterStatus {
        let server = |id: &str, address: &str, this| Server {
            id: id.into(),
            address: address.into(),
            this,
            ..Server::default()
        };
        ClusterStatus {
            cluster: CLUSTER.into(),
            server: "551c0000-0000-4000-8000-000000000000".into(),
            status: "cluster member".into(),
            leader: "02a4".into(),
            servers: vec![
                server("551c", "tcp:2", true),
                server("624c", "tcp:1", false),
                server("02a4", "tcp:3", false),
            ],
            ..ClusterStatus::default()
        }
    }

    fn aside() -> Header {
        Header {
            name: "OVN_Northbound".into(),
            cluster: Uuid::parse(CLUSTER),
            server: Uuid::parse(FORMER).unwrap(),
            address: "tcp:1".into(),
            joined: true,
            joins_by: Vec::new(),
        }
    }

    #[test]
    fn a_former_server_of_this_member_is_removed() {
        let Some(Action::Kick { server, .. }) = former(&status(), &aside()) else { panic!("no removal") };
        assert_eq!(server, "624c");
    }

    #[test]
    fn a_server_is_not_removed_for_a_file_of_another_cluster_or_address() {
        let other = Some(Uuid::from_bytes([1; 16]));
        assert_eq!(former(&status(), &Header { cluster: other, ..aside() }), None);
        // Another server whose ID begins with the same digits.
        assert_eq!(former(&status(), &Header { address: "tcp:9".into(), ..aside() }), None);
        let unknown = ClusterStatus { cluster: String::new(), ..status() };
        assert_eq!(former(&unknown, &Header { cluster: None, ..aside() }), None);
    }

    #[tokio::test]
    async fn only_files_under_the_id_of_a_server_are_read() {
        let directory = std::env::temp_dir().join(format!("ovnkube-former-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("ovnnb_db.db");
        for name in ["ovnnb_db.db.damaged", &format!("ovnnb_db.db.{FORMER}"), &format!("ovnsb_db.db.{FORMER}")] {
            std::fs::write(directory.join(name), "not a database").unwrap();
        }
        let found: Vec<String> = asides(&file).into_iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(found, [FORMER]);
        let removal = removal(&status(), &file, &mut FileCache::default()).await;
        assert_eq!(removal, None, "the file is not a raft member");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
