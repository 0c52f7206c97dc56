//! DNS names of members that run in a StatefulSet, and whether the name of this member is usable yet.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

/// A name server that does not answer must not stop a manager.
const LOOKUP_LIMIT: Duration = Duration::from_secs(4);

/// The domain of the cluster's Services, unless configured.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// DNS names of the members of a StatefulSet. They outlive pods and their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulNames {
    /// Name of this member, which is one of the peers.
    pub host: String,
    /// The names of all members, this one included.
    pub peers: Vec<String>,
}

/// A pod that cannot be a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatefulError {
    /// The pod is not of a StatefulSet.
    #[error(
        "pod {0:?} does not end in a number, so it is not of a StatefulSet; give --host and --peers instead of --service"
    )]
    NotStateful(String),
    /// The pod is not one of the members.
    #[error("pod {pod} is not one of {replicas} replicas; give the number of replicas of its StatefulSet")]
    TooFew {
        /// As the StatefulSet named it: `<name>-<ordinal>`.
        pod: String,
        /// As given by `--replicas`.
        replicas: u32,
    },
}

impl StatefulNames {
    /// `POD.SERVICE.NAMESPACE.svc.DOMAIN`, for the pod and its siblings.
    pub fn new(pod: &str, service: &str, namespace: &str, domain: &str, replicas: u32) -> Result<Self, StatefulError> {
        let not_stateful = || StatefulError::NotStateful(pod.to_owned());
        let (set, ordinal) = pod.rsplit_once('-').ok_or_else(not_stateful)?;
        let ordinal: u32 = ordinal.parse().map_err(|_| not_stateful())?;
        if ordinal >= replicas {
            return Err(StatefulError::TooFew { pod: pod.to_owned(), replicas });
        }
        let name = |ordinal: u32| format!("{set}-{ordinal}.{service}.{namespace}.svc.{domain}");
        Ok(Self { host: name(ordinal), peers: (0..replicas).map(name).collect() })
    }
}

/// Why this member cannot use its name yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// There is no record.
    #[error(
        "{host} does not resolve ({error}); waiting for its DNS record: check the cluster's DNS, and that the headless Service \
         of this name selects this pod and publishes not-ready addresses"
    )]
    Unresolved {
        /// As given by `--host`, or computed from the StatefulSet.
        host: String,
        /// As the resolver reported it.
        error: String,
    },
    /// The record is of a former pod, or of another host.
    #[error(
        "{host} resolves to {found}, which is not an address of this host; waiting until its DNS record is updated: if it stays, \
         check --host"
    )]
    Elsewhere {
        /// As given by `--host`, or computed from the StatefulSet.
        host: String,
        /// The addresses of the name, separated by commas.
        found: String,
    },
}

/// Checks that the name of this member leads to this host: ovsdb-server listens at the address of the name. An IP address
/// is not checked.
pub(crate) async fn check(host: &str) -> Result<(), NameProblem> {
    if host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let found = lookup(host).await.map_err(|error| error.to_string());
    check_resolved(host, found, is_local)
}

/// Why a host name has no address.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The resolver found none.
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// The resolver waits for a server.
    #[error("the DNS server does not answer")]
    NoAnswer,
}

async fn lookup(host: &str) -> Result<Vec<IpAddr>, LookupError> {
    let found = within(LOOKUP_LIMIT, lookup_host((host, 0))).await?;
    Ok(found.map(|address| address.ip()).collect())
}

/// The resolver's own limit may be half a minute for each server.
async fn within<T>(limit: Duration, lookup: impl Future<Output = io::Result<T>>) -> Result<T, LookupError> {
    timeout(limit, lookup).await.map_or(Err(LookupError::NoAnswer), |found| found.map_err(LookupError::Failed))
}

/// The hosts that do not resolve, all of them asked for at the same time. An address needs no look-up.
pub(crate) async fn unresolved(hosts: impl Iterator<Item = String>) -> Vec<(String, LookupError)> {
    let names = hosts.filter(|host| host.parse::<IpAddr>().is_err());
    let asked = names.map(|host| {
        tokio::spawn(async move {
            let found = lookup(&host).await;
            (host, found)
        })
    });
    let mut unresolved = Vec::new();
    for task in asked.collect::<Vec<_>>() {
        if let Ok((host, Err(error))) = task.await {
            unresolved.push((host, error));
        }
    }
    unresolved
}

/// Whether this host has an address: the kernel then chooses it as the source of packets to it. None are sent.
fn is_local(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    source().is_ok_and(|source| source.ip() == address)
}

fn check_resolved(
    host: &str,
    found: Result<Vec<IpAddr>, String>,
    is_local: impl Fn(IpAddr) -> bool,
) -> Result<(), NameProblem> {
    let host = host.to_owned();
    match found {
        Err(error) => Err(NameProblem::Unresolved { host, error }),
        Ok(found) if found.is_empty() => Err(NameProblem::Unresolved { host, error: "no address".into() }),
        Ok(found) if found.iter().all(|address| is_local(*address)) => Ok(()),
        Ok(found) => {
            let found = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Err(NameProblem::Elsewhere { host, found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_stateful_set_have_predictable_names() {
        let names =
            StatefulNames::new("ovnkube-master-1", "ovnkube-master-internal", "hosted", CLUSTER_DOMAIN, 3).unwrap();
        assert_eq!(names.host, "ovnkube-master-1.ovnkube-master-internal.hosted.svc.cluster.local");
        assert_eq!((names.peers.len(), &names.peers[1]), (3, &names.host));
        let error = |pod: &str| StatefulNames::new(pod, "s", "ns", CLUSTER_DOMAIN, 3).unwrap_err().to_string();
        assert!(error("ovnkube-master-3").contains("not one of 3 replicas"), "{}", error("ovnkube-master-3"));
        for pod in ["ovnkube-db-x8rq6", "web", ""] {
            assert!(error(pod).contains("give --host and --peers"), "{}", error(pod));
        }
    }

    #[tokio::test]
    async fn a_look_up_ends_at_its_limit() {
        let silent = within(Duration::from_millis(10), std::future::pending::<io::Result<()>>()).await;
        assert!(matches!(silent, Err(LookupError::NoAnswer)), "{silent:?}");
        let unresolved = unresolved(["192.0.2.1", "::1"].map(str::to_owned).into_iter()).await;
        assert!(unresolved.is_empty(), "addresses are not looked up");
    }

    #[test]
    fn a_name_is_usable_when_it_leads_here() {
        let (here, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let checked =
            |found| check_resolved("db-0", found, |address| address == here).map_err(|problem| problem.to_string());
        assert_eq!(checked(Ok(vec![here])), Ok(()));
        let wrong = [
            (Err("NXDOMAIN".to_owned()), "does not resolve (NXDOMAIN); waiting"),
            (Ok(Vec::new()), "no address"),
            (Ok(vec![other]), "resolves to 192.0.2.2, which is not an address of this host"),
            (Ok(vec![here, other]), "192.0.2.1, 192.0.2.2"),
        ];
        for (found, words) in wrong {
            let message = checked(found).unwrap_err();
            assert!(message.contains("db-0") && message.contains(words), "{message}");
        }
        assert!(is_local("127.0.0.1".parse().unwrap()) && !is_local("203.0.113.77".parse().unwrap()));
    }
}
