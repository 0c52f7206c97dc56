//! Carries out a step on the objects that it was planned for: creates keys and certificates, and returns what to write.

use jiff::Timestamp;

use crate::domain::Domain;
use crate::issue::{Authority, IssueError, create_authority_of, issue_leaf};
use crate::plan::Step;
use crate::policy::Policy;
use crate::stored::{AuthoritySet, Bundle, Former, Observed, Requests};

/// The content of one object of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The Secret of the CAs: data, and the requests that remain.
    Authorities(Box<AuthoritySet>),
    /// The ConfigMap of the bundle: the text of `ca-bundle.crt`.
    Bundle(String),
    /// Secret `ovn-cert`.
    Leaf {
        /// Certificate and key.
        pair: Box<Authority>,
        /// The request that it answers.
        issued_for: Option<String>,
    },
}

/// What a step writes. `None` if it does not fit the objects that it was planned for.
pub fn apply(step: &Step, policy: &Policy, observed: &Observed, now: Timestamp) -> Result<Option<Write>, IssueError> {
    if let Step::Create { adopt } = step {
        let signing = create_authority_of(observed.domain(), policy, now)?;
        let set = AuthoritySet { signing, next: None, previous: adopt.clone(), requests: Requests::default() };
        return Ok(Some(Write::Authorities(Box::new(set))));
    }
    let Some(set) = observed.authorities.present() else { return Ok(None) };
    let mut changed = set.clone();
    match step {
        Step::Create { .. } => return Ok(None),
        Step::AddNext { .. } => {
            changed.next = Some(create_authority_of(observed.domain(), policy, now)?);
            changed.requests.rotate_ca = None;
        }
        Step::Promote { retire_after } => {
            let Some(next) = changed.next.take() else { return Ok(None) };
            let former = std::mem::replace(&mut changed.signing, next);
            let (certificate, retire_after) = (former.certificate, *retire_after);
            changed.previous.push(Former { certificate, retire_after, retired: false });
        }
        Step::Adopt(former) => changed.previous.extend(former.iter().cloned()),
        Step::Retire(certificates) => {
            for former in &mut changed.previous {
                former.retired |= certificates.contains(&former.certificate.fingerprint);
            }
        }
        Step::Forget(certificates) => {
            changed.previous.retain(|former| !certificates.contains(&former.certificate.fingerprint));
        }
        Step::RetireDone => changed.requests.retire = None,
        Step::Publish { certificates } => return Ok(Some(Write::Bundle(Bundle::text(certificates)))),
        Step::Issue { .. } if observed.domain() != Domain::ControlPlane => return Ok(None),
        Step::Issue { .. } => {
            let pair = issue_leaf(&set.signing, policy, now)?;
            let issued_for = set.requests.rotate_leaf.clone();
            return Ok(Some(Write::Leaf { pair: Box::new(pair), issued_for }));
        }
    }
    Ok(Some(Write::Authorities(Box::new(changed))))
}
