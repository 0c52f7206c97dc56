//! Whether a node gets the certificate that it requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::chassis::record::Record;
use crate::chassis::request::{self, ChassisRequest, Content};
use crate::chassis::revoked::Revoked;
use crate::{CHASSIS_NAME, CHASSIS_USAGES};

/// Longest common name that X.509 allows.
const LONGEST_CHASSIS: usize = 64;

/// Limits, and the account of the node agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Namespace of the account `ovnkube-node`.
    pub namespace: String,
    /// How long a request may wait until its Node names its chassis.
    pub patience: Duration,
    /// Certificates that a node gets in an hour.
    pub most_per_hour: usize,
    /// Certificates of a node that are neither expired nor revoked: the record has a place for each.
    pub most_valid: usize,
}

impl Rules {
    /// The default limits.
    pub fn new(namespace: &str) -> Self {
        let patience = Duration::from_secs(600);
        Self { namespace: namespace.to_owned(), patience, most_per_hour: 20, most_valid: 40 }
    }

    fn account(&self) -> String {
        format!("system:serviceaccount:{}:ovnkube-node", self.namespace)
    }
}

/// What is known of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    /// Its UID.
    pub uid: String,
    /// The chassis that it announces ([`crate::CHASSIS_ANNOTATION`]).
    pub chassis: Option<String>,
}

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Issue this.
    Sign(Grant),
    /// Refuse it.
    Deny(Denial),
    /// Judge it again later; why.
    Wait(String),
}

/// What is issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Common name.
    pub chassis: String,
    /// Name of the Node.
    pub node: String,
    /// Its UID.
    pub node_uid: String,
    /// DNS names.
    pub names: BTreeSet<String>,
    /// `SubjectPublicKeyInfo` in DER.
    pub public_key: Vec<u8>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The rule.
    pub reason: DenialReason,
    /// A sentence with cause and remedy.
    pub message: String,
}

/// The rule that a request violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DenialReason {
    /// Another account than the node agents', or a token that names no Node.
    WrongRequester,
    /// The token's Node does not exist.
    NodeUnknown,
    /// Another usage.
    UsageNotAllowed,
    /// No PKCS#10 request.
    RequestInvalid,
    /// Its signature is wrong.
    ProofInvalid,
    /// Its key is weak, or of an unknown type.
    KeyWeak,
    /// It asks for something that nodes do not get.
    ExtensionNotAllowed,
    /// It has names other than the node's.
    NameNotAllowed,
    /// The Node did not announce its chassis in time.
    ChassisUnknown,
    /// Its common name is not the Node's chassis.
    ChassisMismatch,
    /// The chassis ID has characters that cannot be recorded.
    ChassisInvalid,
    /// The chassis belongs to another Node.
    ChassisHeld,
    /// Several Nodes announce the chassis, and it belongs to none.
    ChassisAmbiguous,
    /// The record of this chassis cannot be read.
    RecordDamaged,
    /// The node has too many certificates.
    TooManyCertificates,
}

impl DenialReason {
    /// Every rule.
    pub const ALL: [Self; 15] = [
        Self::WrongRequester,
        Self::NodeUnknown,
        Self::UsageNotAllowed,
        Self::RequestInvalid,
        Self::ProofInvalid,
        Self::KeyWeak,
        Self::ExtensionNotAllowed,
        Self::NameNotAllowed,
        Self::ChassisUnknown,
        Self::ChassisMismatch,
        Self::ChassisInvalid,
        Self::ChassisHeld,
        Self::ChassisAmbiguous,
        Self::RecordDamaged,
        Self::TooManyCertificates,
    ];

    /// As reason of a condition, and in metrics.
    pub fn text(self) -> &'static str {
        match self {
            Self::WrongRequester => "WrongRequester",
            Self::NodeUnknown => "NodeUnknown",
            Self::UsageNotAllowed => "UsageNotAllowed",
            Self::RequestInvalid => "RequestInvalid",
            Self::ProofInvalid => "ProofInvalid",
            Self::KeyWeak => "KeyWeak",
            Self::ExtensionNotAllowed => "ExtensionNotAllowed",
            Self::NameNotAllowed => "NameNotAllowed",
            Self::ChassisUnknown => "ChassisUnknown",
            Self::ChassisMismatch => "ChassisMismatch",
            Self::ChassisInvalid => "ChassisInvalid",
            Self::ChassisHeld => "ChassisHeld",
            Self::ChassisAmbiguous => "ChassisAmbiguous",
            Self::RecordDamaged => "RecordDamaged",
            Self::TooManyCertificates => "TooManyCertificates",
        }
    }
}

impl Denial {
    pub(super) fn new(reason: DenialReason, message: String) -> Self {
        Self { reason, message }
    }
}

/// Judges a request. `nodes` are all Nodes by name; the requester's own must be up to date.
pub fn judge(
    rules: &Rules,
    request: &ChassisRequest,
    nodes: &BTreeMap<String, KnownNode>,
    record: &Record,
    revoked: &Revoked,
    now: Timestamp,
) -> Verdict {
    let judge = Judge { rules, request, nodes, record, revoked, now };
    judge.verdict().unwrap_or_else(Verdict::Deny)
}

struct Judge<'a> {
    rules: &'a Rules,
    request: &'a ChassisRequest,
    nodes: &'a BTreeMap<String, KnownNode>,
    record: &'a Record,
    revoked: &'a Revoked,
    now: Timestamp,
}

fn denied<T>(reason: DenialReason, message: String) -> Result<T, Denial> {
    Err(Denial::new(reason, message))
}

impl Judge<'_> {
    fn verdict(&self) -> Result<Verdict, Denial> {
        let (name, node) = self.requester()?;
        self.check_usages()?;
        let content = request::parse(&self.request.request)?;
        let Some(announced) = &node.chassis else {
            let waited = self.now.duration_since(self.request.created);
            let limit = SignedDuration::try_from(self.rules.patience).unwrap_or(SignedDuration::MAX);
            let message =
                format!("Node {name} does not announce its chassis (annotation {})", crate::CHASSIS_ANNOTATION);
            if waited < limit {
                return Ok(Verdict::Wait(message));
            }
            let message = format!("{message} after {} s; look at the log of ovnkube-node there", waited.as_secs());
            return denied(DenialReason::ChassisUnknown, message);
        };
        self.check_names(name, announced, &content)?;
        self.check_holder(name, node, announced)?;
        self.check_count(name, node)?;
        Ok(Verdict::Sign(Grant {
            chassis: content.common_name,
            node: name.to_owned(),
            node_uid: node.uid.clone(),
            names: content.names,
            public_key: content.public_key,
        }))
    }

    fn requester(&self) -> Result<(&str, &KnownNode), Denial> {
        let (request, account) = (self.request, self.rules.account());
        if request.username != account {
            let message = format!(
                "user {} may not request certificates of this signer; only {account} may, the account of DaemonSet ovnkube",
                request.username
            );
            return denied(DenialReason::WrongRequester, message);
        }
        let Some(name) = request.node.as_deref().filter(|name| !name.is_empty()) else {
            let message = "the requester's token names no node; use the token that kubelet mounts into the agent's pod \
                           (Kubernetes 1.32 or later, or 1.30 with the feature ServiceAccountTokenPodNodeInfo)";
            return denied(DenialReason::WrongRequester, message.into());
        };
        let Some(node) = self.nodes.get(name) else {
            let message = format!(
                "the requester's token is of node {name}, and that Node does not exist; delete the agent's pod"
            );
            return denied(DenialReason::NodeUnknown, message);
        };
        if request.node_uid.as_ref().is_some_and(|uid| *uid != node.uid) {
            let message = format!("the requester's token is of an earlier Node {name}; delete the agent's pod");
            return denied(DenialReason::NodeUnknown, message);
        }
        Ok((name, node))
    }

    fn check_usages(&self) -> Result<(), Denial> {
        match self.request.usages.iter().find(|usage| !CHASSIS_USAGES.contains(&usage.as_str())) {
            None => Ok(()),
            Some(usage) => {
                let message = format!("usage {usage:?} is not allowed; ask for {}", CHASSIS_USAGES.join(", "));
                denied(DenialReason::UsageNotAllowed, message)
            }
        }
    }

    fn check_names(&self, node: &str, announced: &str, content: &Content) -> Result<(), Denial> {
        let chassis = &content.common_name;
        if chassis != announced {
            let message = format!(
                "the request is for chassis {chassis:?}, but Node {node} announces {announced:?}; request a certificate for the \
                 system-id of the node's own Open vSwitch"
            );
            return denied(DenialReason::ChassisMismatch, message);
        }
        if !is_recordable(chassis) {
            let message = format!(
                "chassis ID {chassis:?} cannot be recorded: it must have 1 to {LONGEST_CHASSIS} letters, digits, '-', '_' or '.', \
                 and not start with \"..\"; set another system-id in the node's Open vSwitch"
            );
            return denied(DenialReason::ChassisInvalid, message);
        }
        let wanted = BTreeSet::from([node.to_owned(), CHASSIS_NAME.to_owned()]);
        if content.names != wanted {
            let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!(
                "the request has the DNS names [{}]; ask for exactly [{}]",
                list(&content.names),
                list(&wanted)
            );
            return denied(DenialReason::NameNotAllowed, message);
        }
        Ok(())
    }

    fn check_holder(&self, name: &str, node: &KnownNode, chassis: &str) -> Result<(), Denial> {
        let config_map = crate::CHASSIS_CONFIG_MAP;
        let holder = self.record.claim(chassis).map_err(|why| {
            let message = format!(
                "key {chassis} of ConfigMap {config_map} cannot be read ({why}); remove that key if the chassis is the node's own"
            );
            Denial::new(DenialReason::RecordDamaged, message)
        })?;
        match holder {
            Some(holder) if holder.node_uid == node.uid => return Ok(()),
            Some(holder) if self.nodes.get(&holder.node).is_some_and(|other| other.uid == holder.node_uid) => {
                let message = format!(
                    "chassis {chassis} belongs to Node {}, which got a certificate for it; give node {name} a system-id of its \
                     own, or delete Node {0} if that machine is gone",
                    holder.node
                );
                return denied(DenialReason::ChassisHeld, message);
            }
            // Of a Node that does not exist any more.
            Some(_) | None => {}
        }
        let same = |(other, known): &(&String, &KnownNode)| *other != name && known.chassis.as_deref() == Some(chassis);
        match self.nodes.iter().find(same) {
            None => Ok(()),
            Some((other, _)) => {
                let message = format!(
                    "Nodes {name} and {other} announce the same chassis {chassis}; give each a system-id of its own, or delete \
                     the Node whose machine is gone"
                );
                denied(DenialReason::ChassisAmbiguous, message)
            }
        }
    }

    fn check_count(&self, name: &str, node: &KnownNode) -> Result<(), Denial> {
        let valid = |one: &&crate::NodeCertificate| one.not_after > self.now && !self.revoked.contains(one.fingerprint);
        let hour = SignedDuration::from_hours(1);
        // Revoked ones do not count: a thief's requests must not keep the node from a new certificate.
        let valid: Vec<_> = self.record.of_node(&node.uid).filter(valid).collect();
        let recent = valid.iter().filter(|one| self.now.duration_since(one.issued) < hour).count();
        let valid = valid.len();
        let (rules, what) = (self.rules, "why does its agent ask again? See its log");
        if recent >= rules.most_per_hour {
            let message = format!("node {name} got {recent} certificates within an hour, the limit; {what}");
            return denied(DenialReason::TooManyCertificates, message);
        }
        if valid >= rules.most_valid {
            let message = format!(
                "node {name} has {valid} valid certificates, the limit; {what}, and revoke them: ovnkube pki revoke {name}"
            );
            return denied(DenialReason::TooManyCertificates, message);
        }
        Ok(())
    }
}

/// Whether a chassis ID can be a key of a ConfigMap and a common name.
fn is_recordable(chassis: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=LONGEST_CHASSIS).contains(&chassis.len())
        && chassis.bytes().all(valid)
        && chassis != "."
        && !chassis.starts_with("..")
}
