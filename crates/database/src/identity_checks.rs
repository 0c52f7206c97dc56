//! Checks the identity of a running server: its file is at its path, and the record in the API names its cluster.

use std::time::Duration;

use ovsdb::uuid::Uuid;

use crate::checks::compact;
use crate::directory::DataDirectory;
use crate::file::FileState;
use crate::finding::{Finding, FindingKind, Source};
use crate::live_file::{self, LiveFile};
use crate::manager::{Manager, Server};
use crate::prepare::{can_join, should_join_by_others};
use crate::record::Record;
use crate::status::ClusterStatus;
use crate::store::StoreError;

/// Delay before a file that seems lost is inspected again.
const RECHECK_DELAY: Duration = Duration::from_millis(500);

impl Manager {
    /// Whether the server still writes the file at its path. A lost one is written again by a compaction.
    pub(crate) async fn check_file(&mut self, server: &Server) {
        let (kind, process) = (self.options.kind, server.id);
        let path = kind.file(&self.options.data_directory);
        let inspect = async || {
            let path = path.clone();
            let inspected = tokio::task::spawn_blocking(move || live_file::inspect(process, &path)).await;
            inspected.ok().and_then(Result::ok).unwrap_or(LiveFile::Intact)
        };
        let mut found = inspect().await;
        if found != LiveFile::Intact {
            // A compaction replaces the file.
            tokio::time::sleep(RECHECK_DELAY).await;
            found = inspect().await;
        }
        let file = path.display();
        let message = match found {
            LiveFile::Intact => None,
            LiveFile::Lost(how) => {
                let written = match compact(&server.control, kind).await {
                    Ok(()) => "its server has all data and writes it again".to_owned(),
                    // A snapshot has nothing new to contain.
                    Err(error) if error.to_string().contains("duplicate snapshot") => {
                        "its server has all data and writes it again after the next change of the database".to_owned()
                    }
                    Err(error) => format!("its server cannot write it again ({error}); retrying"),
                };
                Some(format!(
                    "{file} {how}, although its server runs; what it acknowledges would be lost with it; {written}"
                ))
            }
            LiveFile::Other(how) => Some(format!(
                "{file} {how}: what the running server acknowledges is not in it; move it away; the server then writes its data to a \
                 new file"
            )),
        };
        let found = message.map(|message| Finding::new(FindingKind::DamagedFile, message));
        self.findings.set(Source::File, found.into_iter().collect());
    }

    /// Whether the record says that this member's cluster was replaced.
    pub(crate) async fn is_replaced(&mut self, status: &ClusterStatus) -> bool {
        // A server that has not joined yet does not know its cluster, but its file does; it is still small.
        let cluster = match status.cluster.parse().ok() {
            Some(cluster) => Some(cluster),
            None => self.recorded_in_file().await,
        };
        let Some(cluster) = cluster else { return false };
        let read = self.store.read(self.options.kind).await;
        let found = match &read {
            Err(StoreError::Record(error)) => Some(Finding::new(FindingKind::BadRecord, error.to_string())),
            Ok(Some(record)) if record.cluster() != cluster => {
                let (key, recorded) = (self.options.kind.short(), record.cluster());
                let message = if record.has_replaced(cluster) {
                    format!(
                        "ConfigMap ovnkube-db, key {key}, says that cluster {recorded} replaced cluster {cluster}, of which this \
                         server is a member, but no member of {recorded} works; the server continues; members without data \
                         cannot join until a member of {recorded} works or the record names {cluster} again"
                    )
                } else {
                    format!(
                        "ConfigMap ovnkube-db, key {key}, names cluster {recorded}, but this server is a member of cluster \
                         {cluster}; the server continues; members without data cannot join until the record names {cluster} again"
                    )
                };
                Some(Finding::new(FindingKind::BadRecord, message))
            }
            _ => None,
        };
        let replaced = match read {
            // The record may name a cluster that does not exist: all members would leave a working one and wait for it for ever.
            Ok(Some(record)) if record.has_replaced(cluster) => {
                self.has_staged(&record).await || can_join(&self.options, &self.store, &record).await
            }
            Ok(Some(record)) if status.is_joining() => {
                should_join_by_others(&self.options, &self.store, &mut self.files, &record).await
            }
            // One that is a member all the same has a leader.
            Ok(Some(record)) => {
                let server = status.server.parse().unwrap_or(Uuid::ZERO);
                !status.has_leader()
                    && record.has_removed(server, &status.address)
                    && can_join(&self.options, &self.store, &record).await
            }
            Ok(None) => {
                self.restore_record(status).await;
                false
            }
            // Without the API nothing changes.
            Err(_) => false,
        };
        self.findings.set(Source::Record, if replaced { Vec::new() } else { found.into_iter().collect() });
        replaced
    }

    /// Whether this member is to install the recorded cluster.
    async fn has_staged(&mut self, record: &Record) -> bool {
        let directory = DataDirectory::new(&self.options);
        let staged = directory.read_staged(&mut self.files, Some(record.cluster())).await;
        matches!(staged, Ok(FileState::Clustered(header)) if header.cluster == Some(record.cluster()))
    }

    /// Writes the record again if another client deleted it: without it, an empty member would create a second cluster.
    async fn restore_record(&self, status: &ClusterStatus) {
        if !status.is_member() {
            return;
        }
        let record = Record::new(status.cluster.clone(), &self.options.member);
        let database = self.options.kind.name();
        match self.store.create(self.options.kind, &record).await {
            Ok(true) => tracing::warn!(database, "ConfigMap ovnkube-db had no record of this database; wrote it again"),
            Ok(false) => {}
            Err(error) => tracing::warn!(database, %error, "cannot restore the record; retrying"),
        }
    }

    async fn recorded_in_file(&mut self) -> Option<Uuid> {
        match DataDirectory::new(&self.options).read(&mut self.files).await {
            Ok(FileState::Clustered(header)) => header.cluster,
            _ => None,
        }
    }
}
