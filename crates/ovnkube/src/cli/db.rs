//! `ovnkube db`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube db serve nb --host 192.0.2.1 --peers-service ovnkube-db    run and manage a member of the northbound database
  ovnkube db relay --upstream-service ovnkube-db                     run a relay of the southbound database near the nodes
  ovnkube db status                                                  members of both databases, and what is wrong
  ovnkube db status sb -o json
  ovnkube db backup nb /backup/nb.db                                 a copy of the database
  ovnkube db restore nb /backup/nb.db                                a new cluster from it, if the old one is lost
  ovnkube db replace-member sb                                       this member joins again; its file is put aside
  ovnkube db rebuild nb                                              a new, empty cluster; controllers refill it
  ovnkube db rename nb db-0.old=db-0.new db-1.old=db-1.new           the volumes run under other names

All but `status` and `relay` run where a member runs: kubectl -n ovn-kubernetes exec ds/ovnkube-db -c nbdb -- ovnkube db …";

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

/// How members keep a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A raft cluster: a majority of the members acknowledges each write
    Raft,
    /// One server is active, the others replicate from it, asynchronously
    ActiveBackup,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbVerb {
    /// Run a member of a database and manage it: bootstrap, join, monitor, stop
    #[command(after_help = "\
Examples:
  ovnkube db serve nb --host 192.0.2.1 --peers-service ovnkube-db
  ovnkube db serve nb --service ovnkube-master-internal --replicas 3      in a pod of a StatefulSet
  ovnkube db serve sb --host db-0.db.ns.svc --peers db-0.db.ns.svc,db-1.db.ns.svc,db-2.db.ns.svc
  ovnkube db serve nb --form active-backup --host 192.0.2.1 --nb-endpoints-service ovnkube-nb
  ovnkube db serve sb --host 192.0.2.1 --peers-service ovnkube-db --node-authorities /ovn-node-ca/ca-bundle.crt

The first member creates the raft cluster and records its ID in ConfigMap ovnkube-db; every other member joins it. A member
that lost its volume joins again. Files of another cluster and damaged files are refused, never overwritten.

With --form active-backup one server is active and the others replicate from it. A Lease decides which; it is published as the
EndpointSlice of the Service [ovnnorth] or [ovnsouth] endpoints-service, which clients follow.

With --node-authorities, nodes have certificates of their own and OVN's role ovn-controller at the port for clients. Controllers,
northd, relays and commands use --control-port.

Exit status: 0 stopped on request; 1 cannot start; 2 wrong usage or invalid settings.")]
    Serve(Serve),

    /// Run a relay of the southbound database: a copy near the nodes that forwards their writes to a member
    #[command(after_help = "\
Examples:
  ovnkube db relay                                                  the members are those of [ovnsouth] address
  ovnkube db relay --upstream ssl:192.0.2.1:6642,ssl:192.0.2.2:6642
  ovnkube db relay --upstream-service ovnkube-db                    follow the members of databases.yaml
  ovnkube db relay --node-authorities /ovn-node-ca/ca-bundle.crt    every node has a certificate of its own
  ovnkube db relay --role ovn-controller                            the same, of the CA of the control plane

The relay keeps no file. It is ready while it has a complete copy and a member executes the writes that it forwards. The
members see the relay's certificate for every node: only --node-authorities or --role limit what a node may write. See docs/databases.md.

Exit status: 0 stopped on request; 1 cannot start; 2 wrong usage or invalid settings.")]
    Relay(Relay),

    /// Show the members of the databases, their roles and lag, and what is wrong
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ds/ovnkube-db -- ovnkube db status
  ovnkube db status nb -o json
  ovnkube db status --watch

Members are the servers of [ovnnorth] and [ovnsouth] address, or those of endpoints-service. The manager of each member is asked
for the rest: term, log, clients, disk, memory, schema, and findings, also while its server does not run. One that does not
reply is shown with the reason. Run it in the pod of a member: its certificate is needed, and it knows the backups of an
active server.

Exit status: 0 every member is connected to a leader; 1 a member is not; 2 wrong usage.")]
    Status(Status),

    /// Copy the database of this member to a file
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ds/ovnkube-db -c nbdb -- ovnkube db backup nb /etc/ovn/nb.backup

The copy is a standalone database. FILE.json next to it names the database, the cluster and the time.

Exit status: 0 written; 1 failure; 2 wrong usage.")]
    Backup(Backup),

    /// Replace a lost cluster by a new one with the rows of a backup
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ds/ovnkube-db -c nbdb -- ovnkube db restore nb /etc/ovn/nb.backup

Refused while the database is alive, and for a backup of another database, or of another or an unknown cluster. The other members put their files
aside and join the new cluster. See docs/runbooks/databases.md.

Exit status: 0 restored; 1 refused or failed, and nothing was changed; 2 wrong usage.")]
    Restore(Restore),

    /// Put this member's file aside and join the cluster again with a new server ID
    #[command(after_help = "\
Examples:
  kubectl -n ovn-kubernetes exec ovnkube-db-x8rq6 -c sbdb -- ovnkube db replace-member sb

For a damaged file, or one of another cluster, while the database has a leader. Refused while this member works, and if no
other member works: this file may then be the last good copy. The old file is kept next to the new one; the leader removes the
old server.

Exit status: 0 done; 1 refused or failed, and nothing was changed; 2 wrong usage.")]
    ReplaceMember(Replace),

    /// Give the members of a cluster other names, when their volumes run elsewhere
    #[command(after_help = "\
Examples:
  for N in 0 1 2; do kubectl -n new exec ovnkube-master-$N -c nbdb -- ovnkube db rename nb \\
    ovnkube-master-0.ovnkube-master-internal.old.svc.cluster.local=ovnkube-master-0.ovnkube-master-internal.new.svc.cluster.local \\
    ovnkube-master-1.ovnkube-master-internal.old.svc.cluster.local=ovnkube-master-1.ovnkube-master-internal.new.svc.cluster.local \\
    ovnkube-master-2.ovnkube-master-internal.old.svc.cluster.local=ovnkube-master-2.ovnkube-master-internal.new.svc.cluster.local; done

Run it for every member, with the same list of all members. Data, cluster ID and server IDs stay; the original file is kept
next to the new one. Refused if the list does not fit the file, and while the cluster works under its old names.

Exit status: 0 done, or nothing to do; 1 refused or failed, and nothing was changed; 2 wrong usage.")]
    Rename(Rename),

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
    /// Which of OVN's two databases; each has a member of its own on this host
    #[arg(value_enum)]
    pub(crate) database: DatabaseName,

    /// Host name or address by which the other members reach this one
    #[arg(long, value_name = "HOST", env = "OVNKUBE_DB_HOST", required_unless_present = "service")]
    pub(crate) host: Option<String>,

    /// Headless Service of the StatefulSet whose pods are the members; instead of --host and --peers
    #[arg(long, value_name = "NAME", env = "OVNKUBE_DB_SERVICE", requires = "replicas")]
    pub(crate) service: Option<String>,

    /// Number of replicas of that StatefulSet
    #[arg(long, value_name = "NUMBER", env = "OVNKUBE_DB_REPLICAS")]
    pub(crate) replicas: Option<u32>,

    /// DNS domain of Services
    #[arg(long, value_name = "DOMAIN", default_value = database::names::CLUSTER_DOMAIN, env = "OVNKUBE_CLUSTER_DOMAIN")]
    pub(crate) cluster_domain: String,

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

    /// Port for clients [default: 6641 nb, 6642 sb]
    #[arg(long, env = "OVNKUBE_DB_PORT")]
    pub(crate) port: Option<u16>,

    /// Port between members [default: 6643 nb, 6644 sb]
    #[arg(long, env = "OVNKUBE_DB_RAFT_PORT")]
    pub(crate) raft_port: Option<u16>,

    /// Raft election timer in milliseconds [default: by the number of nodes]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub(crate) election_timer: Option<u64>,

    /// Namespace of ConfigMap ovnkube-db
    #[arg(long, value_name = "NAMESPACE", default_value = "ovn-kubernetes", env = "POD_NAMESPACE")]
    pub(crate) namespace: String,
}

/// Options about certificates of nodes.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// CA bundle of the nodes' own certificates (southbound only); file `revoked` next to it lists refused ones. The port for clients
    /// is then for nodes, which may change only the rows of their chassis; all others use the control port
    #[arg(long, value_name = "FILE", env = "OVNKUBE_DB_NODE_AUTHORITIES")]
    pub(crate) node_authorities: Option<String>,

    /// Port for clients that are not nodes, as well [default with --node-authorities, which needs one: the port for clients + 4]
    #[arg(long, value_name = "PORT")]
    pub(crate) control_port: Option<u16>,

    /// With --node-authorities: port of ovsdb-server on 127.0.0.1 [default: the port for clients + 6]
    #[arg(long, value_name = "PORT")]
    pub(crate) local_port: Option<u16>,
}

/// Options of `db serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// How the members keep the database
    #[arg(long, value_enum, default_value = "raft")]
    pub(crate) form: Form,

    /// Service whose endpoints are the members; with active-backup only for `db status`
    #[arg(long, value_name = "NAME", conflicts_with = "peers")]
    pub(crate) peers_service: Option<String>,

    /// Host names or addresses of all members, separated by commas; with active-backup only for `db status`
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,

    /// Address to listen on for clients
    #[arg(long, value_name = "ADDRESS", default_value = "::")]
    pub(crate) listen: String,

    #[command(flatten)]
    pub(crate) nodes: NodeArgs,

    /// Number of nodes that the databases serve, if they are in another cluster; election timer and probes follow it [default: the nodes
    /// of this cluster]
    #[arg(long = "nodes", value_name = "NUMBER", env = "OVNKUBE_DB_NODES")]
    pub(crate) node_count: Option<usize>,

    /// Seconds of silence, and of absence from the list of members, after which the raft leader removes a server
    #[arg(long, value_name = "SECONDS", default_value_t = database::GONE.as_secs(), value_parser = clap::value_parser!(u64).range(10..=86_400))]
    pub(crate) remove_after: u64,
}

/// Options of `db rename`.
#[derive(Debug, Args)]
pub(crate) struct Rename {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// Old and new host name of every member
    #[arg(value_name = "OLD=NEW", required = true)]
    pub(crate) hosts: Vec<String>,
}

/// Options of `db relay`.
#[derive(Debug, Args)]
pub(crate) struct Relay {
    /// Members of the southbound database, separated by commas [default: those of `[ovnsouth] address`]
    #[arg(long, value_name = "REMOTES")]
    pub(crate) upstream: Option<String>,

    /// Service whose endpoints are the members; until they are known, those of --upstream
    #[arg(long, value_name = "NAME")]
    pub(crate) upstream_service: Option<String>,

    /// Port of the Service's endpoints [default: their port south-control or south]
    #[arg(long, value_name = "PORT")]
    pub(crate) upstream_port: Option<u16>,

    /// RBAC role of the clients; needs TLS, and a certificate for each node whose common name is its system-id
    #[arg(long, value_name = "ROLE", conflicts_with = "node_authorities")]
    pub(crate) role: Option<String>,

    /// CA bundle of the nodes' own certificates; file `revoked` next to it lists refused ones. Nodes may then change only the rows of
    /// their chassis
    #[arg(long, value_name = "FILE", env = "OVNKUBE_DB_NODE_AUTHORITIES")]
    pub(crate) node_authorities: Option<String>,

    /// With --node-authorities: port of ovsdb-server on 127.0.0.1 [default: the port for clients + 6]
    #[arg(long, value_name = "PORT")]
    pub(crate) local_port: Option<u16>,

    /// Address to listen on for clients
    #[arg(long, value_name = "ADDRESS", default_value = "::")]
    pub(crate) listen: String,

    /// Port for clients; must differ from the port of a member on the same host
    #[arg(long, default_value = "16642")]
    pub(crate) port: u16,

    /// Directory of the sockets
    #[arg(long, value_name = "DIRECTORY", default_value = "/run/ovn", env = "OVN_RUNDIR")]
    pub(crate) run_dir: PathBuf,

    /// Namespace of the Service
    #[arg(long, value_name = "NAMESPACE", default_value = "ovn-kubernetes", env = "POD_NAMESPACE")]
    pub(crate) namespace: String,
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

    /// Restore even if the database is alive, or the backup is of another or an unknown cluster
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `db replace-member` and `db rebuild`.
#[derive(Debug, Args)]
pub(crate) struct Replace {
    #[command(flatten)]
    pub(crate) member: MemberArgs,

    /// Do it even if the member or the database is alive; replace-member: also if no other member works
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `db status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Database to show [default: both]
    #[arg(value_enum)]
    pub(crate) database: Option<DatabaseName>,

    /// Directory of the sockets of the member on this host
    #[arg(long, value_name = "DIRECTORY", default_value = "/run/ovn", env = "OVN_RUNDIR")]
    pub(crate) run_dir: PathBuf,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,

    /// Repeat on every change until interrupted; with `-o json`, one document per line
    #[arg(short, long)]
    pub(crate) watch: bool,
}
