//! `ovnkube db`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube db serve nb --host 192.0.2.1 --peers-service ovnkube-db    run and manage a member of the northbound database
  ovnkube db status                                                  members of both databases, and what is wrong
  ovnkube db status sb -o json
  ovnkube db backup nb /backup/nb.db                                 a copy of the database
  ovnkube db restore nb /backup/nb.db                                a new cluster from it, if the old one is lost
  ovnkube db replace-member sb                                       this member joins again; its file is put aside
  ovnkube db rebuild nb                                              a new, empty cluster; controllers refill it

All but `status` run where a member runs: kubectl -n ovn-kubernetes exec ds/ovnkube-db -c nbdb -- ovnkube db …";

/// A database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatabaseName {
    /// Northbound
    Nb,
    /// Southbound
    Sb,
}

impl DatabaseName {
    pub(crate) fn kind(self) -> database::Kind {
        match self {
            Self::Nb => database::Kind::Northbound,
            Self::Sb => database::Kind::Southbound,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbVerb {
    /// Run a member of a database and manage it: bootstrap, join, care, stop
    #[command(after_help = "\
Examples:
  ovnkube db serve nb --host 192.0.2.1 --peers-service ovnkube-db
  ovnkube db serve sb --host db-0.db.ns.svc --peers db-0.db.ns.svc,db-1.db.ns.svc,db-2.db.ns.svc

The first member creates the raft cluster and records its ID in ConfigMap ovnkube-db; every other member joins it. A member
that lost its volume joins again. Files of another cluster and damaged files are refused, never overwritten.

Exit status: 0 stopped on request; 1 cannot start; 2 wrong usage or invalid settings.")]
    Serve(Serve),

    /// Show the members of the databases, their roles and lag, and what is wrong
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ds/ovnkube-db -- ovnkube db status
  ovnkube db status nb -o json

Members are the servers of [ovnnorth] and [ovnsouth] address. In a pod with a member, the table also has what its server
tells locally: term, election timer, log.

Exit status: 0 every member is connected to a leader; 1 a member is not; 2 wrong usage.")]
    Status(Status),

    /// Copy the database of this member to a file
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ds/ovnkube-db -c nbdb -- ovnkube db backup nb /etc/ovn/nb.backup

The copy is a standalone database. FILE.json beside it names the database, the cluster and the time.

Exit status: 0 written; 1 failure; 2 wrong usage.")]
    Backup(Backup),

    /// Replace a lost cluster by a new one with the rows of a backup
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ds/ovnkube-db -c nbdb -- ovnkube db restore nb /etc/ovn/nb.backup

Refused while the database is alive, and for a backup of another database or cluster. The other members put their files
aside and join the new cluster. See docs/runbooks/databases.md.

Exit status: 0 restored; 1 refused or failed, and nothing was changed; 2 wrong usage.")]
    Restore(Restore),

    /// Put this member's file aside and join the cluster again with a new server ID
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ovnkube-db-x8rq6 -c sbdb -- ovnkube db replace-member sb

For a damaged file, or one of another cluster. The old file is kept beside the new one; the leader removes the old server.

Exit status: 0 done; 1 refused or failed, and nothing was changed; 2 wrong usage.")]
    ReplaceMember(Replace),

    /// Replace a lost cluster by a new, empty one, which controllers and northd refill
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ds/ovnkube-db -c nbdb -- ovnkube db rebuild nb

Refused while the database is alive. Pods keep their addresses, and established connections continue: nodes keep their flows
until the database is filled again. The other members put their files aside and join the new cluster.

Exit status: 0 done; 1 refused or failed, and nothing was changed; 2 wrong usage.")]
    Rebuild(Replace),
}

/// Options about the member of this host.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// The database
    #[arg(value_enum)]
    pub(crate) database: DatabaseName,

    /// Host name or address by which the other members reach this one
    #[arg(long, value_name = "HOST", env = "OVNKUBE_DB_HOST")]
    pub(crate) host: String,

    /// Name of this member in logs and in the record [default: POD_NAME or the host name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub(crate) member: Option<String>,

    /// Directory of the database file
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/ovn")]
    pub(crate) data_dir: PathBuf,

    /// Directory of the sockets
    #[arg(long, value_name = "DIRECTORY", default_value = "/run/ovn", env = "OVN_RUNDIR")]
    pub(crate) run_dir: PathBuf,

    /// Directory of OVN's schema files
    #[arg(long, value_name = "DIRECTORY", default_value = "/usr/share/ovn", hide = true)]
    pub(crate) schema_dir: PathBuf,

    /// Port between members [default: 6643 nb, 6644 sb]
    #[arg(long)]
    pub(crate) raft_port: Option<u16>,

    /// Raft election timer in milliseconds [default: by the number of nodes]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub(crate) election_timer: Option<u64>,

    /// Namespace of ConfigMap ovnkube-db
    #[arg(long, value_name = "NAMESPACE", default_value = "ovn-kubernetes", env = "POD_NAMESPACE")]
    pub(crate) namespace: String,
}

/// Options of `db serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// Service whose endpoints are the members
    #[arg(long, value_name = "NAME", conflicts_with = "peers", required_unless_present = "peers")]
    pub(crate) peers_service: Option<String>,

    /// Host names or addresses of all members, separated by commas
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,

    /// Address to listen on for clients
    #[arg(long, value_name = "ADDRESS", default_value = "::")]
    pub(crate) listen: String,

    /// Port for clients [default: 6641 nb, 6642 sb]
    #[arg(long)]
    pub(crate) port: Option<u16>,
}

/// Options of `db backup`.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// File to write; an existing one is replaced when the copy is complete
    pub(crate) file: PathBuf,
}

/// Options of `db restore`.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// File of `db backup`
    pub(crate) file: PathBuf,

    /// Restore even if the database is alive, or the backup is of another cluster
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `db replace-member` and `db rebuild`.
#[derive(Debug, Args)]
pub(crate) struct Replace {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// Do it even if the member or the database is alive
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `db status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Database to show [default: both]
    #[arg(value_enum)]
    pub(crate) database: Option<DatabaseName>,

    /// Directory of the sockets, for what only a local server tells
    #[arg(long, value_name = "DIRECTORY", default_value = "/run/ovn", env = "OVN_RUNDIR")]
    pub(crate) run_dir: PathBuf,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}
