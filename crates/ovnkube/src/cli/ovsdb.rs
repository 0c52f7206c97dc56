//! The command line of `ovnkube ovsdb`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube ovsdb dump unix:/run/ovn/ovnnb_db.sock
  ovnkube ovsdb dump tcp:10.0.0.1:6641 OVN_Northbound Logical_Switch --columns name,ports
  ovnkube ovsdb watch unix:/run/ovn/ovnsb_db.sock OVN_Southbound Port_Binding
  ovnkube ovsdb transact unix:/run/openvswitch/db.sock Open_vSwitch \\
      '[{\"op\": \"select\", \"table\": \"Bridge\", \"where\": [], \"columns\": [\"name\"]}]'

A REMOTE is unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT; for a raft cluster, give all members, separated by commas.

Exit status: 0 success; 1 failure; 2 wrong usage.";

#[derive(Debug, Subcommand)]
pub(crate) enum OvsdbVerb {
    /// Print the rows of tables
    #[command(after_help = "\
Examples:
  ovnkube ovsdb dump unix:/run/ovn/ovnnb_db.sock                      every table that has rows
  ovnkube ovsdb dump unix:/run/ovn/ovnnb_db.sock OVN_Northbound ACL   one table
  ovnkube ovsdb dump tcp:10.0.0.1:6641,tcp:10.0.0.2:6641 OVN_Northbound ACL -o json
  ovnkube ovsdb dump ssl:10.0.0.1:6642 OVN_Southbound Chassis --columns name,hostname \\
      -p key.pem -c cert.pem -C ca.pem

Rows are in the order of their names, or of their uuids where there are no names. In the table form, columns that are \
empty in every row are only listed by name, and on a terminal long values are truncated; -o json has everything.

Exit status: 0 success; 1 failure; 2 wrong usage.")]
    Dump(Dump),

    /// Print the rows of tables, then every change
    #[command(after_help = "\
Examples:
  ovnkube ovsdb watch unix:/run/ovn/ovnnb_db.sock OVN_Northbound Logical_Switch Logical_Switch_Port
  ovnkube ovsdb watch unix:/run/ovn/ovnsb_db.sock OVN_Southbound Port_Binding \\
      --columns chassis,up --changes-only
  ovnkube ovsdb watch tcp:10.0.0.1:6641 OVN_Northbound NB_Global \\
      --changes-only --count 1 --timeout 60 -o json

  = Logical_Switch sw0 36bef046-…  ports=[…]      was there
  + Logical_Switch sw1 0a58c4f1-…                 is new
  ~ Logical_Switch sw1 0a58c4f1-…  ports: [] → …  has changed
  - Logical_Switch sw1 0a58c4f1-…                 is gone

Changes that come faster than they can be printed are merged, row by row. It reconnects automatically, and then \
prints what changed meanwhile. Ctrl-C ends it.

Exit status: 0 success; 1 failure, or --timeout passed before --count changes came; 2 wrong usage.")]
    Watch(Watch),

    /// Execute operations in the JSON of RFC 7047, all or none
    #[command(after_help = "\
Examples:
  ovnkube ovsdb transact unix:/run/ovn/ovnnb_db.sock OVN_Northbound \\
      '[{\"op\": \"insert\", \"table\": \"Logical_Switch\", \"row\": {\"name\": \"sw0\"}}]'
  ovnkube ovsdb transact unix:/run/ovn/ovnnb_db.sock OVN_Northbound @operations.json --dry-run
  … | ovnkube ovsdb transact unix:/run/ovn/ovnnb_db.sock OVN_Northbound -

The server executes a dry run and rolls it back. What only a commit checks (references, unique columns) is not \
checked by it. Operations are counted from 0.

Exit status: 0 committed; 1 rejected, or failed; 2 wrong usage.")]
    Transact(Transact),
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The database; optional if the server has only one
    pub(crate) database: Option<String>,
    /// The tables (default: all)
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// Only these columns, separated by commas; may include _uuid
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
    /// Timeout in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) timeout: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Name of the database, such as OVN_Northbound
    pub(crate) database: String,
    /// Names of the tables to follow
    #[arg(value_name = "TABLE", required = true)]
    pub(crate) tables: Vec<String>,
    /// Only these columns, separated by commas
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Skip the initial rows
    #[arg(long)]
    pub(crate) changes_only: bool,
    /// Text, or one JSON object per line
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
    /// Exit after this many changes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Exit after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) timeout: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct Transact {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Name of the database, such as OVN_Northbound
    pub(crate) database: String,
    /// A JSON array of operations; - reads stdin, @FILE a file
    pub(crate) operations: String,
    /// Let the server execute it and roll it back
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Timeout in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) timeout: u32,
}

/// Address and TLS options of the server.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT; several separated by commas
    #[arg(value_name = "REMOTE[,REMOTE…]", value_parser = remotes)]
    pub(crate) remote: Remotes,
    /// For ssl: private key (PEM)
    #[arg(short = 'p', long, value_name = "FILE", requires_all = ["certificate", "ca_cert"])]
    pub(crate) private_key: Option<PathBuf>,
    /// For ssl: certificate (PEM)
    #[arg(short = 'c', long, value_name = "FILE", requires_all = ["private_key", "ca_cert"])]
    pub(crate) certificate: Option<PathBuf>,
    /// For ssl: trusted certificate authorities (PEM)
    #[arg(short = 'C', long, value_name = "FILE", requires_all = ["private_key", "certificate"])]
    pub(crate) ca_cert: Option<PathBuf>,
    /// For ssl: require that the server's certificate has the host of the remote
    #[arg(long, requires = "ca_cert")]
    pub(crate) verify_host_name: bool,
    /// Use any member of a raft cluster, also one that lags
    #[arg(long)]
    pub(crate) no_leader_only: bool,
}

/// One or more remotes.
#[derive(Debug, Clone)]
pub(crate) struct Remotes(pub(crate) Vec<ovsdb::client::Remote>);

pub(super) fn remotes(text: &str) -> Result<Remotes, ovsdb::client::RemoteError> {
    ovsdb::client::Remote::parse_list(text).map(Remotes)
}
