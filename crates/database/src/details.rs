//! What the managers report about all members: that of this host in its file, the others over the network.

use std::path::Path;
use std::time::Duration;

use kubernetes::Api;
use ovsdb::client::{Endpoint, Remote, TlsFiles};

use crate::inspect::{Local, Member};
use crate::kind::Kind;
use crate::manager_status::{KnownPeers, ManagerStatus};
use crate::member_page;

/// Longest wait for the list of members in the API.
const API_LIMIT: Duration = Duration::from_secs(5);

/// Servers that clients do not know, and of which only the managers can be asked: backups, and the member of this host if no list
/// has it. `asked` are the known ones.
pub(crate) fn unlisted(
    kind: Kind,
    peers: &[String],
    local: &Local,
    asked: &[Member],
    remotes: &[Remote],
) -> Vec<Remote> {
    let own = local.manager.as_ref().map(|manager| manager.host.clone()).filter(|_| !local.is_among(asked));
    let port = remotes.iter().find_map(|remote| Some(remote.endpoint()?.port)).unwrap_or(kind.port());
    let ssl = remotes.iter().any(|remote| matches!(remote, Remote::Ssl(_)));
    let mut hosts: Vec<&str> = Vec::new();
    for host in peers.iter().chain(&own) {
        let listed = remotes.iter().any(|remote| host_of(remote) == Some(host));
        if !host.is_empty() && !listed && !hosts.contains(&host.as_str()) {
            hosts.push(host);
        }
    }
    let remote = |host: &str| {
        let endpoint = Endpoint { host: host.to_owned(), port };
        if ssl { Remote::Ssl(endpoint) } else { Remote::Tcp(endpoint) }
    };
    hosts.into_iter().map(remote).collect()
}

/// Hosts of the members that the manager of this host knows.
pub(crate) async fn known_hosts(peers: &KnownPeers, kubeconfig: Option<&Path>) -> Result<Vec<String>, String> {
    let Some(service) = &peers.service else { return Ok(peers.hosts.clone()) };
    let api = Api::from_kubeconfig(kubeconfig, None).await.map_err(|error| error.to_string())?.with_timeout(API_LIMIT);
    remotes::endpoint_hosts(&api, &peers.namespace, service).await.map_err(|error| error.to_string())
}

/// Reads what the managers of these members report, all at once.
pub(crate) async fn read_all(
    kind: Kind,
    remotes: &[Remote],
    tls: Option<&TlsFiles>,
    local: Option<&ManagerStatus>,
) -> Vec<Result<ManagerStatus, String>> {
    // All members are run alike.
    let port = local.and_then(|manager| manager.status_port).unwrap_or(kind.status_port());
    let read = |remote: &Remote| {
        let own = local.filter(|manager| host_of(remote) == Some(manager.host.as_str())).cloned();
        let (remote, tls) = (remote.clone(), tls.cloned());
        tokio::spawn(async move {
            match own {
                Some(status) => Ok(status),
                None => member_page::read(&remote, port, tls.as_ref()).await.map_err(|error| error.to_string()),
            }
        })
    };
    let tasks: Vec<_> = remotes.iter().map(read).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap_or_else(|error| Err(error.to_string())));
    }
    all
}

fn host_of(remote: &Remote) -> Option<&str> {
    remote.endpoint().map(|endpoint| endpoint.host.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_clients_do_not_know_are_listed_once() {
        let remotes: Vec<Remote> = vec!["ssl:192.0.2.1:6646".parse().unwrap()];
        let peers = ["192.0.2.1", "192.0.2.2", "2001:db8::3"].map(str::to_owned);
        let manager = |host: &str| Some(ManagerStatus { host: host.into(), ..ManagerStatus::default() });
        let found = |host: &str| {
            let local = Local { manager: manager(host), ..Local::default() };
            let found = unlisted(Kind::Southbound, &peers, &local, &[], &remotes);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let backups = ["ssl:192.0.2.2:6646", "ssl:[2001:db8::3]:6646"];
        assert_eq!(found("192.0.2.2"), backups);
        assert_eq!(found("192.0.2.1"), backups);
        assert_eq!(found(""), backups);
        assert_eq!(found("192.0.2.9"), [backups.as_slice(), &["ssl:192.0.2.9:6646"]].concat());
        let raft = unlisted(Kind::Northbound, &[], &Local::default(), &[], &remotes);
        assert!(raft.is_empty(), "{raft:?}");
    }
}
