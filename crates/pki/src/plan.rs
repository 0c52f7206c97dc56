//! The next step towards certificates that are valid, strong and trusted by all. Pure: objects, ages and the time go in.
//!
//! **Invariant.** A certificate is published only if its CA has been in the bundle for the distribution delay, and a CA leaves
//! the bundle only when no certificate of it has been published for the distribution delay. So every process accepts every
//! other one, whichever versions of the objects have reached them. The exception is a state without trust (nothing published
//! yet, or expired): then waiting would protect nothing.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::{Certificate, Fingerprint};
use crate::issue::later;
use crate::policy::Policy;
use crate::seen::Ages;
use crate::stored::{AuthoritySet, Bundle, Former, Leaf, Observed, Stored};

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create Secret `ovn-ca` with a new CA.
    Create {
        /// CAs of an earlier Secret that are still trusted.
        adopt: Vec<Former>,
    },
    /// Add a next CA to the Secret.
    AddNext {
        /// Why the present one is replaced.
        why: String,
    },
    /// The next CA signs from now on.
    Promote {
        /// When the present one becomes unnecessary.
        retire_after: Timestamp,
    },
    /// Record CAs of ours that are trusted but not in the Secret.
    Adopt(Vec<Former>),
    /// Mark former CAs that leave the bundle.
    Retire(Vec<Fingerprint>),
    /// Remove former CAs that left it.
    Forget(Vec<Fingerprint>),
    /// Remove the request to retire former CAs: there is none.
    RetireDone,
    /// Write ConfigMap `ovn-ca`.
    Publish {
        /// All trusted CAs.
        certificates: Vec<Certificate>,
    },
    /// Issue a certificate and write Secret `ovn-cert`.
    Issue {
        /// For the log: what is wrong with the present one, or its age.
        why: String,
    },
}

/// The objects that hold certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// Secret `ovn-ca`.
    CaSecret,
    /// ConfigMap `ovn-ca`.
    CaConfigMap,
    /// Secret `ovn-cert`.
    LeafSecret,
}

impl Object {
    /// Kind and name, for messages.
    pub fn text(self) -> &'static str {
        match self {
            Self::CaSecret => "Secret ovn-ca",
            Self::CaConfigMap => "ConfigMap ovn-ca",
            Self::LeafSecret => "Secret ovn-cert",
        }
    }
}

/// What is wrong with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Secret `ovn-ca` cannot be used. Nothing can be renewed until an administrator has decided.
    AuthorityUnusable,
    /// The CA is weak; it is replaced.
    AuthorityWeak,
    /// The CA has expired, or its validity has not begun; it is replaced.
    AuthorityNotValid,
    /// Parts of the bundle are not certificates; they are removed.
    BundleUnreadable,
    /// Secret `ovn-cert` cannot be used; it is replaced.
    CertificateUnusable,
    /// Programs do not accept the certificate; it is replaced.
    CertificateNotAccepted,
}

impl FindingKind {
    /// Reason of its Event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::AuthorityUnusable => "AuthorityUnusable",
            Self::AuthorityWeak => "AuthorityWeak",
            Self::AuthorityNotValid => "AuthorityNotValid",
            Self::BundleUnreadable => "BundleUnreadable",
            Self::CertificateUnusable => "CertificateUnusable",
            Self::CertificateNotAccepted => "CertificateNotAccepted",
        }
    }

    /// Whether it stays until an administrator acts.
    pub fn blocks(self) -> bool {
        self == Self::AuthorityUnusable
    }
}

/// A problem, for Events and logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// Where.
    pub object: Object,
    /// A sentence with the cause and what happens next, or the remedy.
    pub message: String,
}

/// What to do next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The next write; plan again afterwards.
    pub step: Option<Step>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What a rotation waits for.
    pub waiting: Option<Waiting>,
}

/// A step of a rotation that is due when the distribution delay of a CA has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// What happens then.
    pub what: &'static str,
    /// Time until then.
    pub left: Duration,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} s, when every process trusts it", self.what, self.left.as_secs())
    }
}

/// The next step.
pub fn plan(policy: &Policy, observed: &Observed, ages: &Ages, now: Timestamp) -> Plan {
    let empty = Bundle::default();
    let bundle = observed.bundle.present().unwrap_or(&empty);
    let mut plan = Plan { findings: findings(observed, bundle, now), ..Plan::default() };
    let planner =
        Planner { policy, bundle, bundle_exists: observed.bundle.present().is_some(), leaf: &observed.leaf, ages, now };
    match &observed.authorities {
        Stored::Missing => plan.step = Some(Step::Create { adopt: planner.unknown(None) }),
        Stored::Unusable(_) => {}
        Stored::Present(set) => (plan.step, plan.waiting) = planner.next_step(set),
    }
    plan
}

struct Planner<'a> {
    policy: &'a Policy,
    bundle: &'a Bundle,
    bundle_exists: bool,
    leaf: &'a Stored<Leaf>,
    ages: &'a Ages,
    now: Timestamp,
}

impl Planner<'_> {
    fn next_step(&self, set: &AuthoritySet) -> (Option<Step>, Option<Waiting>) {
        let step = |step| (Some(step), None);
        let unknown = self.unknown(Some(set));
        if !unknown.is_empty() {
            return step(Step::Adopt(unknown));
        }
        if let Some(why) = self.authority_due(set) {
            return step(Step::AddNext { why });
        }
        if let Some(certificates) = self.changed_bundle(set) {
            return step(Step::Publish { certificates });
        }
        let mut waiting = None;
        if let Some(next) = &set.next {
            if self.is_distributed(&next.certificate) || !set.signing.certificate.is_valid_at(self.now) {
                return step(Step::Promote { retire_after: self.needed_until(&set.signing.certificate) });
            }
            waiting = Some(self.waiting("the next CA signs", &next.certificate));
        }
        if let Some(why) = self.leaf_due(set) {
            if self.may_issue(set) {
                return step(Step::Issue { why });
            }
            waiting = Some(self.waiting("the new CA signs", &set.signing.certificate));
        }
        let retire = self.retirable(set);
        if !retire.is_empty() {
            return step(Step::Retire(retire));
        }
        let gone = |former: &&Former| former.retired && !self.bundle.contains(former.certificate.fingerprint);
        let forget: Vec<_> = set.previous.iter().filter(gone).map(|former| former.certificate.fingerprint).collect();
        if !forget.is_empty() {
            return step(Step::Forget(forget));
        }
        let requests = &set.requests;
        let idle = set.previous.is_empty() && set.next.is_none() && requests.rotate_ca.is_none();
        if requests.retire.is_some() && idle {
            return step(Step::RetireDone);
        }
        (None, waiting)
    }

    /// CAs of ours in the bundle that the Secret does not have: it was deleted, or replaced by an older one. They stay trusted
    /// for as long as a certificate that they issued may be valid.
    fn unknown(&self, set: Option<&AuthoritySet>) -> Vec<Former> {
        let unknown = |certificate: &&Certificate| {
            certificate.is_our_ca()
                && self.now < certificate.not_after
                && !set.is_some_and(|set| set.contains(certificate.fingerprint))
        };
        let former = |certificate: &Certificate| Former {
            certificate: certificate.clone(),
            retire_after: self.needed_until(certificate),
            retired: false,
        };
        self.bundle.certificates.iter().filter(unknown).map(former).collect()
    }

    /// When everything that a CA has issued will have expired: lifetimes of certificates end there, too.
    fn needed_until(&self, authority: &Certificate) -> Timestamp {
        let newest = later(self.now, self.policy.leaf_lifetime).unwrap_or(authority.not_after);
        let published = self.leaf.present().map(|leaf| &leaf.pair.certificate);
        let published = published.filter(|leaf| leaf.issuer == authority.subject).map(|leaf| leaf.not_after);
        published.map_or(newest, |published| published.max(newest)).min(authority.not_after)
    }

    /// Why a next CA must be created.
    fn authority_due(&self, set: &AuthoritySet) -> Option<String> {
        let certificate = &set.signing.certificate;
        if let Some(next) = &set.next {
            // A signer that was off for years.
            return (!next.certificate.is_valid_at(self.now)).then(|| "the next CA is not valid".into());
        }
        let left = certificate.seconds_left(self.now);
        let overlap = seconds(self.policy.ca_lifetime.saturating_sub(self.policy.ca_renew_after));
        if let Some(weakness) = &certificate.weakness {
            Some(format!("the CA is weak: {weakness}"))
        } else if certificate.not_before > self.now {
            Some(format!("the validity of the CA begins only at {}", certificate.not_before))
        } else if left <= overlap {
            Some(format!("the CA is valid until {}", certificate.not_after))
        } else {
            set.requests.rotate_ca.as_ref().map(|_| "requested".into())
        }
    }

    /// The bundle that should be published, if it differs.
    fn changed_bundle(&self, set: &AuthoritySet) -> Option<Vec<Certificate>> {
        let mut wanted: Vec<Certificate> = set.trusted().cloned().collect();
        // Administrators' own stay. One of ours that the Secret does not have is known to a newer one than was read.
        let kept = self.bundle.certificates.iter().filter(|certificate| {
            !set.contains(certificate.fingerprint) && (!certificate.is_our_ca() || self.now < certificate.not_after)
        });
        wanted.extend(kept.cloned());
        let same = wanted.len() == self.bundle.certificates.len()
            && wanted.iter().all(|certificate| self.bundle.contains(certificate.fingerprint));
        (!same || !self.bundle_exists || !self.bundle.unreadable.is_empty()).then_some(wanted)
    }

    fn age(&self, authority: &Certificate) -> Duration {
        self.ages.bundle.get(&authority.fingerprint).copied().unwrap_or_default()
    }

    /// Whether every process trusts a CA.
    fn is_distributed(&self, authority: &Certificate) -> bool {
        self.bundle.contains(authority.fingerprint) && self.age(authority) >= self.policy.distribution_delay
    }

    fn waiting(&self, what: &'static str, authority: &Certificate) -> Waiting {
        Waiting { what, left: self.policy.distribution_delay.saturating_sub(self.age(authority)) }
    }

    /// Whether a CA issued the published certificate, and programs accept it.
    fn issued(&self, authority: &Certificate) -> bool {
        self.leaf
            .present()
            .is_some_and(|leaf| leaf.pair.certificate.is_accepted_by(authority, &leaf.intermediates, self.now))
    }

    /// Whether the signing CA may issue.
    fn may_issue(&self, set: &AuthoritySet) -> bool {
        let authority = &set.signing.certificate;
        if !authority.is_valid_at(self.now) || !self.bundle.contains(authority.fingerprint) {
            return false;
        }
        // A CA whose certificate is in use was distributed when that was issued.
        if self.is_distributed(authority) || self.issued(authority) {
            return true;
        }
        let trust_to_keep = match self.leaf {
            Stored::Present(leaf) => self.bundle.accepts(leaf, self.now),
            // Running processes may still have one of a former CA.
            Stored::Missing | Stored::Unusable(_) => {
                set.previous.iter().any(|former| former.certificate.is_valid_at(self.now))
            }
        };
        !trust_to_keep
    }

    /// Why a certificate must be issued.
    fn leaf_due(&self, set: &AuthoritySet) -> Option<String> {
        let leaf = match self.leaf {
            Stored::Missing => return Some("there was none".into()),
            Stored::Unusable(why) => return Some(why.clone()),
            Stored::Present(leaf) => leaf,
        };
        let certificate = &leaf.pair.certificate;
        if !self.bundle.accepts(leaf, self.now) {
            return Some(not_accepted(certificate, self.now));
        }
        if !self.issued(&set.signing.certificate) {
            return Some(format!("its CA is replaced: {}", certificate.issuer));
        }
        if let Some(weakness) = &certificate.weakness {
            return Some(weakness.clone());
        }
        if let Some(name) = self.policy.names.iter().find(|name| !certificate.names.contains(*name)) {
            return Some(format!("it lacks the name {name}"));
        }
        if set.requests.rotate_leaf.is_some() && set.requests.rotate_leaf != leaf.issued_for {
            return Some("requested".into());
        }
        let left = certificate.seconds_left(self.now);
        let renewed = seconds(self.policy.leaf_lifetime).min(set.signing.certificate.seconds_left(self.now));
        let due = seconds(self.policy.leaf_lifetime.saturating_sub(self.policy.leaf_renew_after));
        // One that ends with its CA cannot be replaced by a longer one.
        (left <= due && renewed > left).then(|| format!("it is valid until {}", certificate.not_after))
    }

    /// Former CAs that nothing needs any more.
    fn retirable(&self, set: &AuthoritySet) -> Vec<Fingerprint> {
        let settled = self.issued(&set.signing.certificate) && self.ages.leaf >= self.policy.distribution_delay;
        if !settled {
            return Vec::new();
        }
        let requested = set.requests.retire.is_some() && set.next.is_none() && set.requests.rotate_ca.is_none();
        let unnecessary = |former: &&Former| {
            !former.retired
                && (requested || former.retire_after <= self.now || former.certificate.not_after <= self.now)
        };
        set.previous.iter().filter(unnecessary).map(|former| former.certificate.fingerprint).collect()
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn not_accepted(certificate: &Certificate, now: Timestamp) -> String {
    if certificate.not_after <= now {
        format!("it expired at {}", certificate.not_after)
    } else if certificate.not_before > now {
        format!("its validity begins only at {}", certificate.not_before)
    } else {
        format!("the bundle has no CA that issued it ({})", certificate.issuer)
    }
}

fn findings(observed: &Observed, bundle: &Bundle, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |kind, object, message| findings.push(Finding { kind, object, message });
    match &observed.authorities {
        Stored::Missing => {}
        Stored::Unusable(why) => find(
            FindingKind::AuthorityUnusable,
            Object::CaSecret,
            format!(
                "{why}. Certificates stay as they are, and none is renewed. Restore the Secret from a backup, or delete it \
                 (kubectl delete secret {}): then a new CA is created, and the old one stays trusted meanwhile",
                crate::CA_SECRET
            ),
        ),
        Stored::Present(set) => {
            let certificate = &set.signing.certificate;
            if let Some(weakness) = &certificate.weakness {
                let message = format!("{weakness}; a new CA replaces it");
                find(FindingKind::AuthorityWeak, Object::CaSecret, message);
            }
            if !certificate.is_valid_at(now) {
                let (from, until) = (certificate.not_before, certificate.not_after);
                let message =
                    format!("the CA is valid from {from} to {until}, and it is {now}; a new CA replaces it at once");
                find(FindingKind::AuthorityNotValid, Object::CaSecret, message);
            }
        }
    }
    for why in &bundle.unreadable {
        let message = format!("{} has a part that is not a certificate ({why}); it is removed", crate::BUNDLE_KEY);
        find(FindingKind::BundleUnreadable, Object::CaConfigMap, message);
    }
    match &observed.leaf {
        Stored::Missing => {}
        Stored::Unusable(why) => {
            let message = format!("{why}; a new certificate replaces it");
            find(FindingKind::CertificateUnusable, Object::LeafSecret, message);
        }
        Stored::Present(leaf) if bundle.accepts(leaf, now) => {}
        Stored::Present(leaf) => {
            let message = format!("{}; a new certificate replaces it", not_accepted(&leaf.pair.certificate, now));
            find(FindingKind::CertificateNotAccepted, Object::LeafSecret, message);
        }
    }
    findings
}
