//! When the agent needs another certificate. Pure: what was read and the time are inputs.
//!
//! | reason | the present certificate |
//! |---|---|
//! | missing or unusable, another chassis, revoked, not valid now | is of no use |
//! | another CA signs now, half of its lifetime has passed | stays in effect until its replacement is there |

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use pki::{Certificate, Fingerprint};

use super::files::Held;

/// A certificate of another CA than the first one of the bundle is not replaced for so long, or a hundredth of its lifetime, if the
/// bundle has not changed since it was issued: the bundle that this node sees may be older than what the signer does.
const SETTLING: SignedDuration = SignedDuration::from_mins(5);

/// What the decision depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// Name of the Node; it spreads renewals.
    pub(super) node: &'a str,
    /// `system-id` of this node's Open vSwitch.
    pub(super) chassis: &'a str,
    /// The certificate with its key, or why there is none.
    pub(super) held: Result<&'a Held, &'a str>,
    /// The CA that signs certificates of nodes; none if that is not known.
    pub(super) authority: Option<&'a Certificate>,
    /// The same when the last certificate was issued to this process.
    pub(super) authority_before: Option<Fingerprint>,
    /// Fingerprints of revoked certificates.
    pub(super) revoked: &'a BTreeSet<String>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before this time, if nothing changes.
    Wait(Timestamp),
    /// Request a certificate.
    Request(Reason),
}

/// Why a certificate is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is none that can be used.
    Unusable(String),
    /// It is for another chassis: `system-id` was changed.
    OtherChassis(String),
    /// Its fingerprint is in the list.
    Revoked,
    /// The clock is not within its validity.
    NotValid { from: Timestamp, until: Timestamp },
    /// Another CA signs now.
    OtherAuthority,
    /// Half of its lifetime has passed.
    HalfOfLifetime,
}

impl Reason {
    /// Whether the present certificate can be used until there is another one.
    pub(super) fn is_renewal(&self) -> bool {
        matches!(self, Self::OtherAuthority | Self::HalfOfLifetime)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => f.write_str(why),
            Self::OtherChassis(found) => write!(f, "its certificate is for another chassis, {found:?}"),
            Self::Revoked => f.write_str("its certificate was revoked"),
            Self::NotValid { from, until } => write!(f, "its certificate is valid from {from:.0} to {until:.0} only"),
            Self::OtherAuthority => f.write_str("its certificate is of a CA that does not sign any more"),
            Self::HalfOfLifetime => f.write_str("half of its certificate's lifetime has passed"),
        }
    }
}

/// What to do at this time.
pub(super) fn next(facts: Facts<'_>, now: Timestamp) -> Next {
    let held = match facts.held {
        Ok(held) => held,
        Err(why) => return Next::Request(Reason::Unusable(why.to_owned())),
    };
    let own = &held.own;
    let Certificate { not_before: from, not_after: until, .. } = own.certificate;
    if own.chassis != facts.chassis {
        return Next::Request(Reason::OtherChassis(own.chassis.clone()));
    }
    if facts.revoked.contains(&own.fingerprint) {
        return Next::Request(Reason::Revoked);
    }
    if !own.certificate.is_valid_at(now) {
        return Next::Request(Reason::NotValid { from, until });
    }
    let due = renewal(held, facts.node);
    if now >= due {
        return Next::Request(Reason::HalfOfLifetime);
    }
    match facts.authority {
        Some(authority) if !own.certificate.is_accepted_by(authority, &[], now) => {
            let settled = held.issued.checked_add(SETTLING.max(lifetime(held) / 100)).unwrap_or(now);
            let changed = facts.authority_before != Some(authority.fingerprint);
            if changed || now < held.issued || now >= settled {
                Next::Request(Reason::OtherAuthority)
            } else {
                Next::Wait(due.min(settled))
            }
        }
        _ => Next::Wait(due),
    }
}

/// From when it was issued to its end.
fn lifetime(held: &Held) -> SignedDuration {
    held.own.certificate.not_after.duration_since(held.issued).max(SignedDuration::ZERO)
}

/// When half of the time since it was issued until its end has passed, ±10 % by the node's name: nodes that started together
/// do not renew together.
pub(super) fn renewal(held: &Held, node: &str) -> Timestamp {
    let percent = 90 + node.bytes().fold(0_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 21);
    let seconds = lifetime(held).as_secs().saturating_mul(percent) / 200;
    held.issued.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(held.own.certificate.not_after)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Signer, moment};
    use super::*;

    const NODE: &str = "n1";

    struct Case {
        signer: Signer,
        held: Held,
        revoked: BTreeSet<String>,
    }

    impl Case {
        /// A certificate for the chassis `c1`, issued at 0 and valid until 1000.
        fn new() -> Self {
            let signer = Signer::new();
            let held = Held { own: signer.issue("c1", NODE, -3600, 1000), issued: moment(0) };
            Self { signer, held, revoked: BTreeSet::new() }
        }

        fn facts(&self) -> Facts<'_> {
            Facts {
                node: NODE,
                chassis: "c1",
                held: Ok(&self.held),
                authority: Some(&self.signer.authority.certificate),
                authority_before: None,
                revoked: &self.revoked,
            }
        }
    }

    #[test]
    fn a_certificate_is_renewed_after_half_of_its_time_by_the_name_of_the_node() {
        let case = Case::new();
        let mut due = BTreeSet::new();
        for node in (0..200).map(|number| format!("node-{number}")) {
            let facts = Facts { node: &node, ..case.facts() };
            let Next::Wait(at) = next(facts, moment(0)) else { panic!("{:?}", next(facts, moment(0))) };
            assert!((moment(450)..=moment(550)).contains(&at), "{at}");
            assert_eq!(next(facts, at), Next::Request(Reason::HalfOfLifetime));
            assert_eq!(next(facts, at - SignedDuration::from_secs(1)), Next::Wait(at));
            due.insert(at);
        }
        assert!(due.len() > 10, "{due:?}");
        assert!(Reason::HalfOfLifetime.is_renewal());
    }

    #[test]
    fn without_a_usable_certificate_one_is_requested_at_once() {
        let case = Case::new();
        let facts = case.facts();
        let none = Facts { held: Err("no certificate yet"), ..facts };
        assert_eq!(next(none, moment(1)), Next::Request(Reason::Unusable("no certificate yet".into())));
        let renamed = Facts { chassis: "c2", ..facts };
        assert_eq!(next(renamed, moment(1)), Next::Request(Reason::OtherChassis("c1".into())));
        let not_valid = Reason::NotValid { from: moment(-3600), until: moment(1000) };
        // Expired during a suspend; or the clock was set back.
        for now in [1000, 1_000_000, -3601] {
            assert_eq!(next(facts, moment(now)), Next::Request(not_valid.clone()), "{now}");
        }
        let revoked = [case.held.own.fingerprint.clone()].into();
        let revoked = Facts { revoked: &revoked, ..facts };
        assert_eq!(next(revoked, moment(1)), Next::Request(Reason::Revoked));
        for reason in [not_valid, Reason::Revoked, Reason::OtherChassis(String::new()), Reason::Unusable(String::new())]
        {
            assert!(!reason.is_renewal(), "{reason}");
        }
    }

    #[test]
    fn another_ca_that_signs_issues_a_new_certificate_once() {
        let case = Case::new();
        let other = Signer::new().authority.certificate;
        let waits = next(case.facts(), moment(1));
        assert!(matches!(waits, Next::Wait(_)));
        let changed = Facts { authority: Some(&other), ..case.facts() };
        assert_eq!(next(changed, moment(1)), Next::Request(Reason::OtherAuthority));
        // The answer is of the former CA again: the bundle on this node, or the signer, is behind.
        let stale = Facts { authority_before: Some(other.fingerprint), ..changed };
        assert_eq!(next(stale, moment(1)), Next::Wait(moment(300)));
        assert_eq!(next(stale, moment(300)), Next::Request(Reason::OtherAuthority));
        let third = Signer::new().authority.certificate;
        let changed_again = Facts { authority: Some(&third), ..stale };
        assert_eq!(next(changed_again, moment(1)), Next::Request(Reason::OtherAuthority));
        // Without a bundle nothing is known of that.
        assert_eq!(next(Facts { authority: None, ..changed }, moment(1)), waits);
    }

    #[test]
    fn a_clock_that_was_wrong_when_it_was_issued_does_not_prevent_a_renewal() {
        let mut case = Case::new();
        case.held.issued = moment(5000);
        assert!(matches!(next(case.facts(), moment(10)), Next::Wait(at) if at == moment(5000)));
        let other = Signer::new().authority.certificate;
        let facts = Facts { authority: Some(&other), authority_before: Some(other.fingerprint), ..case.facts() };
        assert_eq!(next(facts, moment(10)), Next::Request(Reason::OtherAuthority));
        case.held.issued = moment(-1_000_000);
        assert_eq!(next(case.facts(), moment(10)), Next::Request(Reason::HalfOfLifetime));
    }
}
