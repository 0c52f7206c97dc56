//! `ovnkube pki`.

use clap::{Args, Subcommand};

use super::Output;

pub(super) const EXAMPLES: &str = "\
Examples:
  ovnkube pki serve                 create and renew OVN's CA and certificate
  ovnkube pki status                all certificates: names, issuers, when they expire, which pods use them
  ovnkube pki rotate                a new certificate now
  ovnkube pki rotate --ca           a new CA, then a new certificate
  ovnkube pki rotate --nodes        a new CA of the nodes, then new certificates for all of them
  ovnkube pki revoke worker-7       end the sessions of a node's certificates, and accept them no more

`status`, `rotate` and `revoke` need an administrator's kubeconfig, or run where a signer runs:
kubectl -n ovn-kubernetes exec ds/ovnkube-pki -- ovnkube pki status";

#[derive(Debug, Subcommand)]
pub(crate) enum PkiVerb {
    /// Run the signer: create OVN's CAs and certificate, renew them with overlapping trust, and sign the nodes' certificates
    #[command(after_help = "\
Examples:
  ovnkube pki serve --namespace ovn-kubernetes
  ovnkube pki serve --leaf-lifetime 30d --leaf-renew-after 15d

The signer keeps the CA with its key in Secret ovn-ca, the trusted CAs in ConfigMap ovn-ca (ca-bundle.crt), and the
certificate of databases and controllers in Secret ovn-cert. The CA of the nodes is in Secret and ConfigMap ovn-node-ca; nodes
request their certificates with CertificateSigningRequests of the signer k8s.ovn.org/chassis, and what they got is recorded in
ConfigMap ovn-chassis. Certificates of deleted Nodes are revoked. Run as many as you like: one leads.
Durations are a number with a unit: d, h, m or s. See docs/pki.md.

Exit status: 0 stopped on request; 1 cannot start; 2 wrong usage or invalid settings.")]
    Serve(PkiServe),

    /// Show all certificates, also those of nodes: names, issuers, when they expire, and which pods use them
    #[command(after_help = "\
Examples:
  ovnkube pki status
  ovnkube pki status -o json

Exit status: 0 the certificate is valid and trusted; 1 it is not, or it cannot be read; 2 wrong usage.")]
    Status(PkiStatus),

    /// Request a new certificate, or a new CA
    #[command(after_help = "\
Examples:
  ovnkube pki rotate                    a new certificate, at once
  ovnkube pki rotate --ca               a new CA: it is published first, and signs after the distribution delay
  ovnkube pki rotate --ca --retire      the key of the CA was stolen: trust in it also ends as soon as possible
  ovnkube pki rotate --nodes            a new CA of the nodes; when it signs, each node requests a new certificate
  ovnkube pki rotate --nodes --retire   the same, and the former CA is not trusted when all nodes have renewed, or after three delays

The request is an annotation of Secret ovn-ca or ovn-node-ca; the signer that leads carries it out. Without --retire, the former
CA stays trusted until everything that it issued has expired.

Exit status: 0 requested; 1 failure; 2 wrong usage.")]
    Rotate(PkiRotate),

    /// Revoke all certificates of nodes
    #[command(after_help = "\
Examples:
  ovnkube pki revoke worker-7
  ovnkube pki revoke worker-7 worker-8

Adds the certificates of these nodes that have not expired to key `revoked` of ConfigMap ovn-node-ca. The southbound listeners close
their sessions and accept them no more. A node's agent then requests a new certificate with its pod's token: to keep a stolen node
out, delete its Node and its pods too, which ends their tokens.

Exit status: 0 revoked; 1 failure, or a node without certificates; 2 wrong usage.")]
    Revoke(PkiRevoke),
}

/// Where the certificates are.
#[derive(Debug, Args)]
pub(crate) struct PkiNamespace {
    /// Namespace of the Secrets, the ConfigMap and the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "ovn-kubernetes", env = "POD_NAMESPACE")]
    pub(crate) namespace: String,
}

/// Options of `pki serve`.
#[derive(Debug, Args)]
pub(crate) struct PkiServe {
    #[command(flatten)]
    pub(crate) location: PkiNamespace,

    /// Unique identity in the Lease [default: POD_NAME or the host name, and a random number]
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,

    /// How long a CA is valid
    #[arg(long, value_name = "DURATION", default_value = "3650d", env = "OVNKUBE_PKI_CA_LIFETIME")]
    pub(crate) ca_lifetime: String,

    /// Age at which a CA is replaced [default: nine tenths of its lifetime]
    #[arg(long, value_name = "DURATION", env = "OVNKUBE_PKI_CA_RENEW_AFTER")]
    pub(crate) ca_renew_after: Option<String>,

    /// How long the certificate is valid
    #[arg(long, value_name = "DURATION", default_value = "180d", env = "OVNKUBE_PKI_LEAF_LIFETIME")]
    pub(crate) leaf_lifetime: String,

    /// Age at which the control plane's certificate is replaced [default: half of its lifetime]
    #[arg(long, value_name = "DURATION", env = "OVNKUBE_PKI_LEAF_RENEW_AFTER")]
    pub(crate) leaf_renew_after: Option<String>,

    /// How long a new CA is published before it signs: longer than kubelets need to update mounted ConfigMaps
    #[arg(long, value_name = "DURATION", default_value = "10m", env = "OVNKUBE_PKI_DISTRIBUTION_DELAY")]
    pub(crate) distribution_delay: String,

    /// How long a Node is gone until its certificates are revoked
    #[arg(long, value_name = "DURATION", default_value = "10m", env = "OVNKUBE_PKI_REVOKE_DELETED_AFTER")]
    pub(crate) revoke_deleted_after: String,

    /// DNS names and addresses of the certificate, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "ovn", env = "OVNKUBE_PKI_NAMES")]
    pub(crate) names: Vec<String>,
}

/// Options of `pki status`.
#[derive(Debug, Args)]
pub(crate) struct PkiStatus {
    #[command(flatten)]
    pub(crate) location: PkiNamespace,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}

/// Options of `pki rotate`.
#[derive(Debug, Args)]
pub(crate) struct PkiRotate {
    #[command(flatten)]
    pub(crate) location: PkiNamespace,

    /// Replace the CA, too
    #[arg(long)]
    pub(crate) ca: bool,

    /// Replace the CA of the nodes instead
    #[arg(long, conflicts_with = "ca")]
    pub(crate) nodes: bool,

    /// End the trust in former CAs when the published certificate does not need them, not when all that they issued has expired
    #[arg(long)]
    pub(crate) retire: bool,
}

/// Options of `pki revoke`.
#[derive(Debug, Args)]
pub(crate) struct PkiRevoke {
    #[command(flatten)]
    pub(crate) location: PkiNamespace,

    /// Names of Nodes
    #[arg(required = true, value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
}
