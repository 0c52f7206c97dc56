//! The next step towards certificates that are valid, strong and trusted by all. Pure: objects, ages and the time go in.
//!
//! **Invariant.** A certificate is published only if its CA has been in the bundle for the distribution delay, and a CA leaves
//! the bundle only when no certificate of it has been published for the distribution delay. So every process accepts every
//! other one, whichever versions of the objects have reached them. The exception is a state without trust (nothing published
//! yet, or expired): then waiting would protect nothing.
//!
//! The nodes' CA publishes no certificate: nodes request theirs, and renew them when another CA is the first of the bundle. So what
//! is announced to them is that first CA, and a former CA leaves the bundle when no node's certificate needs it.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::{Certificate, Fingerprint};
use crate::domain::Domain;
use crate::findings::{Finding, findings, not_accepted};
use crate::issue::later;
use crate::policy::Policy;
use crate::seen::Ages;
use crate::stored::{AuthoritySet, Bundle, Former, Issued, Observed, Stored};

/// Former CAs end on request after this many distribution delays, even if nodes have not renewed their certificates: they may be
/// switched off, and renew when they return.
const NODES_RENEW_WITHIN: u32 = 3;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create the Secret with a new CA.
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
    /// Write the ConfigMap of the bundle.
    Publish {
        /// All trusted CAs; the one that signs is the first, if it may issue.
        certificates: Vec<Certificate>,
    },
    /// Issue a certificate and write Secret `ovn-cert`.
    Issue {
        /// For the log: what is wrong with the present one, or its age.
        why: String,
    },
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
    /// Whether certificates may be issued on request: every process trusts the CA that signs.
    pub may_issue: bool,
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
    let bundle_exists = observed.bundle.present().is_some();
    let domain = observed.domain();
    let planner = Planner { policy, domain, bundle, bundle_exists, issued: &observed.issued, ages, now };
    match &observed.authorities {
        Stored::Missing => plan.step = Some(Step::Create { adopt: planner.unknown(None) }),
        Stored::Unusable(_) => {}
        Stored::Present(set) => {
            (plan.step, plan.waiting) = planner.next_step(set);
            plan.may_issue = planner.may_issue(set);
        }
    }
    plan
}

struct Planner<'a> {
    policy: &'a Policy,
    domain: Domain,
    bundle: &'a Bundle,
    bundle_exists: bool,
    issued: &'a Issued,
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
        if matches!(self.issued, Issued::OnRequest(_)) && !self.may_issue(set) {
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
            certificate.is_ca_of(self.domain)
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
        let known = self.issued.issuances().into_iter().filter(|issued| issued.issuer == authority.subject);
        known.map(|issued| issued.not_after).fold(newest, Timestamp::max).min(authority.not_after)
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
        let signing = Some(&set.signing.certificate);
        let is_first = self.bundle.certificates.first() == signing;
        let announce = self.may_issue(set);
        if !announce && !is_first && wanted.first() == signing {
            // Nodes would request certificates that cannot be issued yet.
            wanted.rotate_left(1);
        }
        // Administrators' own stay. One of ours that the Secret does not have is known to a newer one than was read.
        let kept = self.bundle.certificates.iter().filter(|certificate| {
            !set.contains(certificate.fingerprint)
                && (!certificate.is_ca_of(self.domain) || self.now < certificate.not_after)
        });
        wanted.extend(kept.cloned());
        let same = (is_first || !announce || wanted.first() != signing)
            && wanted.len() == self.bundle.certificates.len()
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

    /// Whether a CA issued the published certificate, and programs accept it; or one of a node that is valid.
    fn issued(&self, authority: &Certificate) -> bool {
        match self.issued {
            Issued::Published(leaf) => leaf
                .present()
                .is_some_and(|leaf| leaf.pair.certificate.is_accepted_by(authority, &leaf.intermediates, self.now)),
            Issued::OnRequest(issued) => {
                issued.iter().any(|issued| issued.issuer == authority.subject && issued.not_after > self.now)
            }
        }
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
        let trust_to_keep = match self.issued.leaf() {
            Some(leaf) => self.bundle.accepts(leaf, self.now),
            // Running processes may still have one of a former CA.
            None => set.previous.iter().any(|former| former.certificate.is_valid_at(self.now)),
        };
        !trust_to_keep
    }

    /// Why a certificate must be issued.
    fn leaf_due(&self, set: &AuthoritySet) -> Option<String> {
        let Issued::Published(leaf) = self.issued else { return None };
        let leaf = match leaf.as_ref() {
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
        let signing = &set.signing.certificate;
        let announced = match self.issued {
            Issued::Published(_) => self.issued(signing),
            Issued::OnRequest(_) => self.bundle.certificates.first() == Some(signing),
        };
        if !announced || self.ages.announced < self.policy.distribution_delay {
            return Vec::new();
        }
        let requested = set.requests.retire.is_some() && set.next.is_none() && set.requests.rotate_ca.is_none();
        let patient = self.ages.announced < self.policy.distribution_delay * NODES_RENEW_WITHIN;
        let issued = self.issued.issuances();
        let unnecessary = |former: &&Former| {
            let authority = &former.certificate;
            let valid = |newest: bool| {
                let mut of = issued.iter().filter(|one| one.issuer == authority.subject && one.not_after > self.now);
                of.any(|one| one.newest || !newest)
            };
            !former.retired
                && (requested && !(patient && valid(true))
                    || former.retire_after <= self.now && !valid(false)
                    || authority.not_after <= self.now)
        };
        set.previous.iter().filter(unnecessary).map(|former| former.certificate.fingerprint).collect()
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
