//! Gives the members of a raft cluster other names: `ovnkube db rename`.
//!
//! Raft identifies servers by their IDs; names are only where they are reached. They are in the file's header and in each
//! configuration in its log, so that a member under another name neither listens nor finds the others. Every member replaces the
//! same names in its own file, with all other bytes unchanged: IDs, terms, votes, log and data stay, and the copies stay alike.
//!
//! A request is a file next to the database. The manager carries it out before it starts the server, so that nothing is appended
//! meanwhile. The original file stays next to the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use ovsdb::client::Remote;
use serde::{Deserialize, Serialize};

use crate::directory::sync_directory;
use crate::file::FileState;
use crate::inspect;
use crate::options::Options;
use crate::raft_log::{self, LogError, Records};
use crate::replace::stop_local;
use crate::store::{RecordStore, StoreError};

/// Other names of hosts: old name to new name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renaming {
    hosts: BTreeMap<String, String>,
}

/// Why a member is not renamed; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// A file cannot be read or written.
    #[error("cannot access {}: {error}", path.display())]
    File {
        /// The database file, or the request next to it.
        path: PathBuf,
        /// As the kernel reported it.
        error: io::Error,
    },
    /// The database file is damaged.
    #[error("{}: {error}; nothing was changed; with a leader, `ovnkube db replace-member` replaces a damaged member", path.display())]
    Log {
        /// The database file, or the request next to it.
        path: PathBuf,
        /// The damaged record.
        error: LogError,
    },
    /// The record of the database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The list of names does not fit the file or the running cluster; the message has the remedy.
    #[error("{0}; nothing was changed")]
    Refused(String),
}

fn refuse<T>(why: impl Into<String>) -> Result<T, RenameError> {
    Err(RenameError::Refused(why.into()))
}

fn failure(path: &Path) -> impl FnOnce(io::Error) -> RenameError {
    let path = path.to_owned();
    move |error| RenameError::File { path, error }
}

impl Renaming {
    /// Parses `OLD=NEW`, once for each member.
    pub fn parse(pairs: &[String]) -> Result<Self, RenameError> {
        let mut hosts = BTreeMap::new();
        for pair in pairs {
            match pair.split_once('=') {
                Some((old, new)) if !old.is_empty() && !new.is_empty() && !new.contains('=') => {
                    if hosts.insert(old.to_owned(), new.to_owned()).is_some() {
                        return refuse(format!("{old} is given twice"));
                    }
                }
                _ => return refuse(format!("{pair:?} is not OLD=NEW, two host names")),
            }
        }
        let new: BTreeSet<&String> = hosts.values().collect();
        if new.len() < hosts.len() {
            return refuse("two members would have the same new name");
        }
        // A second run must find nothing to do.
        if let Some(both) = new.iter().find(|name| hosts.contains_key(**name)) {
            return refuse(format!(
                "{both} is an old and a new name; rename in two steps, through names that are not used yet"
            ));
        }
        Ok(Self { hosts })
    }

    /// The names that members lose, in the order of the names.
    pub fn old_hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    /// A raft address with the new name: `ssl:OLD:6643` becomes `ssl:NEW:6643`.
    fn address(&self, address: &str) -> String {
        let renamed = || {
            let remote: Remote = address.parse().ok()?;
            let endpoint = remote.endpoint()?;
            let new = self.hosts.get(&endpoint.host)?;
            let scheme = address.split_once(':')?.0;
            Some(format!("{scheme}:{}:{}", crate::options::bracketed(new), endpoint.port))
        };
        renamed().unwrap_or_else(|| address.to_owned())
    }

    /// Whether this list fits a member's file and the name that the member has now. True if there is something to do, false if
    /// the file has the new names already.
    fn check(&self, file: &Contents, host: &str) -> Result<bool, RenameError> {
        let own = host_of(&file.local);
        let members: BTreeSet<String> = file.servers.values().map(|address| host_of(address)).collect();
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        if own == host && members.iter().all(|member| !self.hosts.contains_key(member)) {
            return Ok(false);
        }
        let Some(new) = self.hosts.get(&own) else {
            return refuse(format!(
                "this file is of member {own}, which is not in the list; the members of its cluster are {}",
                list(&members)
            ));
        };
        if new != host {
            return refuse(format!(
                "this file is of member {own}, whose new name would be {new}, but this member is {host}; check which volume is \
                 mounted, and the list"
            ));
        }
        // A server that never joined knows no configuration.
        if members.is_empty() {
            return Ok(true);
        }
        let missing: BTreeSet<String> =
            members.iter().filter(|member| !self.hosts.contains_key(*member)).cloned().collect();
        if !missing.is_empty() {
            return refuse(format!(
                "the list lacks members of this cluster: {}; every member needs a new name",
                list(&missing)
            ));
        }
        let unknown: BTreeSet<String> = self.hosts.keys().filter(|host| !members.contains(*host)).cloned().collect();
        if !unknown.is_empty() {
            return refuse(format!(
                "{} is not a member of this cluster; its members are {}",
                list(&unknown),
                list(&members)
            ));
        }
        Ok(true)
    }
}

fn host_of(address: &str) -> String {
    let remote = address.parse::<Remote>().ok();
    remote.and_then(|remote| Some(remote.endpoint()?.host.clone())).unwrap_or_else(|| address.to_owned())
}

/// What a renaming depends on in a member's file.
#[derive(Debug, Default)]
struct Contents {
    local: String,
    /// The newest configuration, by server ID; empty before the member has joined.
    servers: BTreeMap<String, String>,
}

fn log_failure(path: &Path) -> impl Fn(LogError) -> RenameError {
    let path = path.to_owned();
    move |error| RenameError::Log { path: path.clone(), error }
}

fn json_failure(path: &Path) -> impl Fn(serde_json::Error) -> RenameError {
    let path = path.to_owned();
    move |error| RenameError::Log { path: path.clone(), error: LogError::Io(error.into()) }
}

/// Calls `each` with every record of a file.
fn for_each_record(path: &Path, mut each: impl FnMut(&[u8]) -> Result<(), RenameError>) -> Result<(), RenameError> {
    let mut records = Records::new(BufReader::new(File::open(path).map_err(failure(path))?));
    while let Some(json) = records.next().map_err(log_failure(path))? {
        each(&json)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Contents, RenameError> {
    let mut contents = Contents::default();
    for_each_record(path, |json| {
        let found = raft_log::addresses(json).map_err(json_failure(path))?;
        contents.local = found.local.unwrap_or_else(|| std::mem::take(&mut contents.local));
        if let Some(servers) = found.servers {
            contents.servers = servers;
        }
        Ok(())
    })?;
    Ok(contents)
}

fn request_path(options: &Options) -> PathBuf {
    options.kind.file(&options.data_directory).with_extension("rename")
}

/// Requests that this member gets its new name, if the list fits its file, and no cluster works under the old names. Returns
/// false if the file has the new names already. The manager does it: this stops its server.
pub async fn request(options: &Options, store: &RecordStore, renaming: &Renaming) -> Result<bool, RenameError> {
    let path = options.kind.file(&options.data_directory);
    let header = match FileState::read(&path).map_err(failure(&path))? {
        FileState::Clustered(header) if header.name == options.kind.schema() => header,
        FileState::Clustered(header) => {
            return refuse(format!("{} is database {}, not {}", path.display(), header.name, options.kind.schema()));
        }
        _ => return refuse(format!("{} is not the file of a raft member", path.display())),
    };
    if !renaming.check(&read(&path)?, &options.host)? {
        return Ok(false);
    }
    if let (Some(record), Some(cluster)) = (store.read(options.kind).await?, header.cluster)
        && record.cluster() != cluster
    {
        return refuse(format!(
            "{} belongs to cluster {cluster}, but ConfigMap ovnkube-db says {}; check which volume is mounted",
            path.display(),
            record.cluster()
        ));
    }
    refuse_if_alive(options, renaming, header.cluster.map(|id| id.to_string()).as_deref()).await?;
    save_request(options, renaming)?;
    stop_local(options).await;
    Ok(true)
}

/// Two clusters with the same identity would diverge.
async fn refuse_if_alive(options: &Options, renaming: &Renaming, cluster: Option<&str>) -> Result<(), RenameError> {
    let addresses = renaming.old_hosts().flat_map(|host| options.client_addresses(host));
    let remotes: Vec<Remote> = addresses.filter_map(|address| address.parse().ok()).collect();
    let members = inspect::ask_all(options.kind, &remotes, options.tls.as_ref()).await;
    match members.iter().find(|member| member.connected && member.cluster.as_deref() == cluster) {
        Some(alive) => refuse(format!(
            "the cluster works under its old names ({} is in contact with a quorum); stop all its members first",
            alive.remote
        )),
        None => Ok(()),
    }
}

/// Writes the request that [`apply`] carries out.
pub fn save_request(options: &Options, renaming: &Renaming) -> Result<(), RenameError> {
    let path = request_path(options);
    let text = serde_json::to_string(renaming).map_err(json_failure(&path))?;
    let unfinished = path.with_extension("rename.new");
    let mut file = File::create(&unfinished).map_err(failure(&unfinished))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failure(&unfinished))?;
    std::fs::rename(&unfinished, &path).map_err(failure(&path))
}

/// Carries out a request, if there is one: the server must not run. Returns where the original file is.
pub fn apply(options: &Options) -> Result<Option<PathBuf>, RenameError> {
    let request = request_path(options);
    let text = match std::fs::read(&request) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(failure(&request))?,
    };
    let renaming: Renaming = serde_json::from_slice(&text).map_err(json_failure(&request))?;
    let path = options.kind.file(&options.data_directory);
    let header = match FileState::read(&path).map_err(failure(&path))? {
        FileState::Clustered(header) => header,
        _ => {
            return refuse(format!(
                "{} is not the file of a raft member; remove {}",
                path.display(),
                request.display()
            ));
        }
    };
    let directory = &options.data_directory;
    let mut kept = None;
    if renaming.check(&read(&path)?, &options.host)? {
        let renamed = path.with_extension("renamed");
        write_renamed(&path, &renamed, &renaming)?;
        let free = |number: u32| {
            let aside = path.with_extension(format!("db.{}.before-rename-{number}", header.server));
            (!aside.exists()).then_some(aside)
        };
        let aside = (1..).find_map(free).unwrap_or_else(|| path.with_extension("db.before-rename"));
        // At every moment a complete file is at the path.
        std::fs::hard_link(&path, &aside).map_err(failure(&aside))?;
        std::fs::rename(&renamed, &path).map_err(failure(&path))?;
        sync_directory(directory).map_err(failure(directory))?;
        kept = Some(aside);
    }
    std::fs::remove_file(&request).map_err(failure(&request))?;
    Ok(kept)
}

fn write_renamed(from: &Path, to: &Path, renaming: &Renaming) -> Result<(), RenameError> {
    let mut writer = BufWriter::new(File::create(to).map_err(failure(to))?);
    for_each_record(from, |json| {
        let json = raft_log::rename(json, |address| renaming.address(address)).map_err(json_failure(from))?;
        raft_log::write(&mut writer, &json).map_err(failure(to))
    })?;
    let file = writer.into_inner().map_err(|error| failure(to)(error.into_error()))?;
    file.sync_all().map_err(failure(to))
}

#[cfg(test)]
mod tests;
