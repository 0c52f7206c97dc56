//! Certificates of nodes: what a node may request, and the record of what it got.
//!
//! ```text
//!   CertificateSigningRequest ─┐
//!   Nodes and their chassis    ├─▶ judge ─▶ sign: into the record (ConfigMap ovn-chassis), then handed out
//!   record, revoked            ┘        └─▶ deny, with the remedy, or wait
//! ```
//!
//! **Invariant.** Certificates for one chassis belong to one Node, by UID, as long as that Node exists: a chassis belongs to the
//! node that got a certificate for it first.
//!
//! When a Node is deleted its certificates are revoked, after a grace period ([`Absences`]).

mod absences;
mod judge;
mod record;
mod request;
mod revoked;

pub use absences::Absences;
pub use judge::{Denial, DenialReason, Grant, KnownNode, Rules, Verdict, judge};
pub use record::{Claim, NodeCertificate, Record};
pub use request::ChassisRequest;
pub(crate) use request::LONGEST_REQUEST;
pub use revoked::Revoked;
