//! The command line of `ovnkube plan`.

use clap::Args;

use super::Output;
use super::ovsdb::{Remotes, remotes};

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube plan -f manifests/                             the rows of these in an empty network
  ovnkube plan -f pod.yaml --sample-nodes 2              pods only, on two assumed nodes
  ovnkube plan -f pod.yaml --kubeconfig admin.conf       what applying it to a cluster would change
  ovnkube plan --kubeconfig admin.conf --nb unix:/run/ovn/ovnnb_db.sock
                                                         whether a database matches its cluster
  helm template web | ovnkube plan -f - --node n1 --summary
  ovnkube plan -f manifests/ --can from=default/web to=default/db:5432
  ovnkube plan -f manifests/ --matrix default:80 -o json

Nothing is written: the controller's core runs in memory. Settings such as --cluster-subnets are those of \
the controller; with --kubeconfig, those that are not given here come from the cluster's ConfigMap ovn-config.

Exit status: 0 nothing would change, or every answer is yes; 1 failure, a question without an answer, or a manifest that \
cannot be read; 2 wrong usage; 3 something would change, or an answer is no, or yes only for some.";

/// Options of `plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// A YAML or JSON file, a directory with such files, or - for stdin; can be repeated
    #[arg(short = 'f', long = "filename", value_name = "DIR|FILE", num_args = 1..)]
    pub(crate) files: Vec<String>,

    /// With --kubeconfig, namespace of the cluster's ConfigMap ovn-config [default: ovn-kubernetes, else the only one that has it]
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) config_namespace: Option<String>,

    /// Compare with this northbound database (unix:PATH, tcp:HOST:PORT, ssl:HOST:PORT) instead of an empty one; it is only
    /// read
    #[arg(long, value_name = "REMOTE[,REMOTE…]", value_parser = remotes)]
    pub(crate) nb: Option<Remotes>,

    /// Node of pods without spec.nodeName
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Assume missing Nodes: those that pods or --node refer to, and if there is none, this many for the other pods
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) sample_nodes: Option<u8>,

    /// Only the number of rows per table
    #[arg(long, conflicts_with_all = ["can", "matrix"])]
    pub(crate) summary: bool,

    /// Evaluate reachability: from=WHO to=WHO[:PORT[/PROTOCOL]], where WHO is NAMESPACE/POD, NAMESPACE/SERVICE,
    /// a node, an address or a network; can be repeated
    #[arg(long, num_args = 2, value_names = ["from=WHO", "to=WHO"], conflicts_with = "matrix")]
    pub(crate) can: Vec<String>,

    /// Evaluate reachability between all pairs of pods of a namespace
    #[arg(long, value_name = "NAMESPACE[:PORT[/PROTOCOL]]")]
    pub(crate) matrix: Option<String>,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}
