//! For how long the published objects have been as they are, by the clock that does not jump.
//!
//! A distribution delay that is measured with the wall clock would end early when that is set forward, and a time in an
//! annotation could be written by another process whose clock is wrong. So each process measures what it has seen itself. A
//! process that starts in the middle of a rotation waits for the whole delay again, which does no harm.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::certificate::Fingerprint;
use crate::stored::{Bundle, Leaf, Observed, Stored};

/// For how long the published certificates are known to have been published, without a gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ages {
    /// Of each CA in the bundle.
    pub bundle: BTreeMap<Fingerprint, Duration>,
    /// Of the certificate of the control plane.
    pub leaf: Duration,
}

/// Remembers since when each certificate is published.
#[derive(Debug, Default)]
pub struct Seen {
    bundle: BTreeMap<Fingerprint, Instant>,
    leaf: Option<(Fingerprint, Instant)>,
}

impl Seen {
    /// Records what is published now.
    pub fn observe(&mut self, observed: &Observed, now: Instant) -> Ages {
        let none = Bundle::default();
        let bundle = observed.bundle.present().unwrap_or(&none);
        self.bundle.retain(|fingerprint, _| bundle.contains(*fingerprint));
        for certificate in &bundle.certificates {
            self.bundle.entry(certificate.fingerprint).or_insert(now);
        }
        let leaf = match &observed.leaf {
            Stored::Present(Leaf { pair, .. }) => Some(pair.certificate.fingerprint),
            Stored::Missing | Stored::Unusable(_) => None,
        };
        self.leaf = match (leaf, self.leaf) {
            (Some(leaf), Some((before, since))) if leaf == before => Some((leaf, since)),
            (leaf, _) => leaf.map(|leaf| (leaf, now)),
        };
        let age = |since: Instant| now.saturating_duration_since(since);
        Ages {
            bundle: self.bundle.iter().map(|(fingerprint, since)| (*fingerprint, age(*since))).collect(),
            leaf: self.leaf.map_or(Duration::ZERO, |(_, since)| age(since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::tests::{authority, leaf};

    #[test]
    fn a_gap_restarts_the_age() {
        let (one, other) = (authority(0), authority(1));
        let published = |authorities: &[&crate::Authority], issuer: &crate::Authority| Observed {
            authorities: Stored::Missing,
            bundle: Stored::Present(Bundle {
                certificates: authorities.iter().map(|authority| authority.certificate.clone()).collect(),
                unreadable: Vec::new(),
            }),
            leaf: Stored::Present(Leaf { pair: leaf(issuer, 0), intermediates: Vec::new(), issued_for: None }),
        };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut seen = Seen::default();
        let first = published(&[&one, &other], &one);
        assert_eq!(seen.observe(&first, at(0)).leaf, Duration::ZERO);
        let ages = seen.observe(&first, at(5));
        assert_eq!(ages.leaf, Duration::from_secs(5));
        assert_eq!(ages.bundle[&other.certificate.fingerprint], Duration::from_secs(5));
        let second = published(&[&one], &other);
        let ages = seen.observe(&second, at(6));
        assert_eq!((ages.leaf, ages.bundle.len()), (Duration::ZERO, 1));
        let ages = seen.observe(&first, at(7));
        assert_eq!(ages.bundle[&one.certificate.fingerprint], Duration::from_secs(7));
        assert_eq!(ages.bundle[&other.certificate.fingerprint], Duration::ZERO, "it was not there");
    }
}
