//! OVN's certificates: a CA and a certificate of the control plane, and a second CA for the nodes, created and renewed with
//! overlapping trust.
//!
//! ```text
//!   Secret ovn-ca      signing CA, next CA, former CAs ┐                    ┌─▶ write Secret ovn-ca
//!   ConfigMap ovn-ca   ca-bundle.crt: what all trust   ├─▶ plan(…, now) ─▶ ├─▶ write ConfigMap ovn-ca
//!   Secret ovn-cert    tls.crt, tls.key: what all show ┘    one step        └─▶ write Secret ovn-cert
//! ```
//!
//! The objects reach the pods late and in any order, so a rotation of the CA takes several steps: the next CA is published
//! in the bundle; after a *distribution delay* it signs; a former CA leaves the bundle when nothing that it issued is valid or
//! in use. [`plan()`] names the next step, and [`apply()`] creates keys and certificates for it. Each step is one write, guarded by
//! the resourceVersion that was read, so it can be interrupted anywhere and repeated by another process.
//!
//! The nodes' CA has the same objects, named `ovn-node-ca`, and the same plan. It issues on request: [`judge`] decides which node
//! gets a certificate for which chassis.
//!
//! Without the feature `signer` the crate has no clock and no client. With it, [`signer`] is the role `ovnkube pki serve`.

mod apply;
mod certificate;
mod chassis;
mod domain;
mod findings;
mod issue;
mod plan;
mod policy;
mod report;
mod request;
mod seen;
mod stored;

#[cfg(feature = "signer")]
pub mod signer;

pub use apply::{Write, apply};
pub use certificate::{Certificate, CertificateError, Fingerprint};
pub use chassis::{
    Absences, ChassisRequest, Claim, Denial, DenialReason, Grant, KnownNode, NodeCertificate, Record, Revoked, Rules,
    Verdict, judge,
};
pub use domain::{Domain, Object};
pub use findings::{Finding, FindingKind};
pub use issue::{Authority, IssueError, PrivateKey, create_authority, create_authority_of, issue_chassis, issue_leaf};
pub use plan::{Plan, Step, Waiting, plan};
pub use policy::{Policy, PolicyError, parse_duration};
pub use report::{Entry, NodeEntry, Role, node_report, report};
pub use request::{CHASSIS_REQUEST_PREFIX, CHASSIS_USAGES, ChassisCertificate, ChassisError, ChassisKey};
pub use seen::{Ages, Seen};
pub use stored::{AuthoritySet, Bundle, Data, Former, Issuance, Issued, Leaf, Observed, Requests, Stored};

/// Name of the Secret with the CAs and their keys.
pub const CA_SECRET: &str = "ovn-ca";
/// Name of the ConfigMap with the trusted CAs.
pub const CA_CONFIG_MAP: &str = "ovn-ca";
/// Key of the trusted CAs in that ConfigMap.
pub const BUNDLE_KEY: &str = "ca-bundle.crt";
/// Name of the Secret with the certificate of the control plane.
pub const LEAF_SECRET: &str = "ovn-cert";
/// Name of the Secret with the nodes' CAs and their keys, and of the ConfigMap with those that are trusted.
pub const NODE_CA_SECRET: &str = "ovn-node-ca";
/// Key of the revoked certificates in the latter.
pub const REVOKED_KEY: &str = "revoked";
/// Name of the ConfigMap with the record of issued node certificates, by chassis.
pub const CHASSIS_CONFIG_MAP: &str = "ovn-chassis";
/// Name of the signer in requests of nodes.
pub const CHASSIS_SIGNER: &str = "k8s.ovn.org/chassis";
/// DNS name in every node's certificate, besides the node's name: for scrapers of its metrics.
pub const CHASSIS_NAME: &str = "ovnkube-node";
/// Annotation of a Node that names its chassis.
pub const CHASSIS_ANNOTATION: &str = "k8s.ovn.org/node-chassis-id";
/// Annotation of Secret `ovn-ca` that requests a new CA.
pub const ROTATE_CA: &str = "k8s.ovn.org/pki-rotate-ca";
/// Annotation of Secret `ovn-ca` that requests a new certificate. Its value is copied to [`ISSUED_FOR`] when that is done.
pub const ROTATE_LEAF: &str = "k8s.ovn.org/pki-rotate-certificate";
/// Annotation of Secret `ovn-ca` that requests to end the trust in former CAs as soon as nothing published needs it.
pub const RETIRE: &str = "k8s.ovn.org/pki-retire";
/// Annotation of Secret `ovn-cert`: the request that it answers.
pub const ISSUED_FOR: &str = "k8s.ovn.org/pki-issued-for";
