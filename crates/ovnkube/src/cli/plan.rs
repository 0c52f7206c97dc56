//! The command line of `ovnkube plan`.

use clap::Args;

use super::Output;
use super::ovsdb::{Remotes, remotes};

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube plan -f manifests/                             what these would make of an empty network
  ovnkube plan -f pod.yaml --sample-nodes 2              pods only: on two nodes that are assumed
  ovnkube plan -f pod.yaml --kubeconfig admin.conf       what applying it would change in a cluster
  ovnkube plan --kubeconfig admin.conf --nb unix:/run/ovn/ovnnb_db.sock
                                                         whether a database is as its cluster asks for
  helm template web | ovnkube plan -f - --node n1 --summary
  ovnkube plan -f manifests/ --can from=default/web to=default/db:5432
  ovnkube plan -f manifests/ --matrix default:80 -o json

Nothing is written anywhere: the controller's own core runs in memory. Settings such as --cluster-subnets are those of \
the controller; with --kubeconfig, those that are not given here come from the cluster's ConfigMap ovn-config.

Exit status: 0 nothing would change, or every answer is yes; 1 failure, a question without an answer, or a manifest that \
cannot be read; 2 wrong usage; 3 something would change, or an answer is no, or yes only for some.";

/// What is asked.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// A file of YAML or JSON, a folder with such files, or - for stdin; can be repeated
    #[arg(short = 'f', long = "filename", value_name = "DIR|FILE", num_args = 1..)]
    pub(crate) files: Vec<String>,

    /// With --kubeconfig, where the cluster's ConfigMap ovn-config is; otherwise in ovn-kubernetes, or wherever it is found
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) config_namespace: Option<String>,

    /// Compare with this northbound database (unix:PATH, tcp:HOST:PORT, ssl:HOST:PORT) instead of an empty one; it is only
    /// read
    #[arg(long, value_name = "REMOTE[,REMOTE…]", value_parser = remotes)]
    pub(crate) nb: Option<Remotes>,

    /// The node of pods that say none
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Assume Nodes: those that pods or --node name and that are missing, and if there is none, so many for the other pods
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) sample_nodes: Option<u8>,

    /// Only how many rows of each table
    #[arg(long, conflicts_with_all = ["can", "matrix"])]
    pub(crate) summary: bool,

    /// Whether one may talk to the other: from=WHO to=WHO[:PORT[/PROTOCOL]], where WHO is NAMESPACE/POD, NAMESPACE/SERVICE,
    /// a node, an address or a network; can be repeated
    #[arg(long, num_args = 2, value_names = ["from=WHO", "to=WHO"], conflicts_with = "matrix")]
    pub(crate) can: Vec<String>,

    /// Whether the pods of a namespace may talk to each other, all pairs
    #[arg(long, value_name = "NAMESPACE[:PORT[/PROTOCOL]]")]
    pub(crate) matrix: Option<String>,

    /// How to print it
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}
