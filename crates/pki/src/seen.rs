//! For how long the published objects have been as they are, by the clock that does not jump.
//!
//! A distribution delay that is measured with the wall clock would end early when that is set forward, and a time in an
//! annotation could be written by another process whose clock is wrong. So each process measures what it has seen itself. A
//! process that starts in the middle of a rotation waits for the whole delay again, which does no harm.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::certificate::Fingerprint;
use crate::stored::{Bundle, Issued, Observed};

/// For how long the published certificates are known to have been published, without a gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ages {
    /// Of each CA in the bundle.
    pub bundle: BTreeMap<Fingerprint, Duration>,
    /// Of the published certificate; of the first CA in a bundle whose CAs issue on request.
    pub announced: Duration,
}

/// Remembers since when each certificate is published.
#[derive(Debug, Default)]
pub struct Seen {
    bundle: BTreeMap<Fingerprint, Instant>,
    announced: Option<(Fingerprint, Instant)>,
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
        let announced = match &observed.issued {
            Issued::Published(leaf) => leaf.present().map(|leaf| leaf.pair.certificate.fingerprint),
            Issued::OnRequest(_) => bundle.certificates.first().map(|first| first.fingerprint),
        };
        self.announced = match (announced, self.announced) {
            (Some(now_announced), Some((before, since))) if now_announced == before => Some((before, since)),
            (announced, _) => announced.map(|announced| (announced, now)),
        };
        let age = |since: Instant| now.saturating_duration_since(since);
        Ages {
            bundle: self.bundle.iter().map(|(fingerprint, since)| (*fingerprint, age(*since))).collect(),
            announced: self.announced.map_or(Duration::ZERO, |(_, since)| age(since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::tests::{authority, leaf};
    use crate::stored::{Leaf, Stored};

    #[test]
    fn a_gap_restarts_the_age() {
        let (one, other) = (authority(0), authority(1));
        let published = |authorities: &[&crate::Authority], issuer: &crate::Authority| Observed {
            authorities: Stored::Missing,
            bundle: Stored::Present(Bundle {
                certificates: authorities.iter().map(|authority| authority.certificate.clone()).collect(),
                unreadable: Vec::new(),
            }),
            issued: Issued::Published(Box::new(Stored::Present(Leaf {
                pair: leaf(issuer, 0),
                intermediates: Vec::new(),
                issued_for: None,
            }))),
        };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut seen = Seen::default();
        let first = published(&[&one, &other], &one);
        assert_eq!(seen.observe(&first, at(0)).announced, Duration::ZERO);
        let ages = seen.observe(&first, at(5));
        assert_eq!(ages.announced, Duration::from_secs(5));
        assert_eq!(ages.bundle[&other.certificate.fingerprint], Duration::from_secs(5));
        let second = published(&[&one], &other);
        let ages = seen.observe(&second, at(6));
        assert_eq!((ages.announced, ages.bundle.len()), (Duration::ZERO, 1));
        let ages = seen.observe(&first, at(7));
        assert_eq!(ages.bundle[&one.certificate.fingerprint], Duration::from_secs(7));
        assert_eq!(ages.bundle[&other.certificate.fingerprint], Duration::ZERO, "it was not there");
    }

    #[test]
    fn nodes_are_told_the_first_ca() {
        let (one, other) = (authority(0), authority(1));
        let published = |authorities: [&crate::Authority; 2]| Observed {
            authorities: Stored::Missing,
            bundle: Stored::Present(Bundle {
                certificates: authorities.map(|authority| authority.certificate.clone()).to_vec(),
                unreadable: Vec::new(),
            }),
            issued: Issued::OnRequest(Vec::new()),
        };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut seen = Seen::default();
        seen.observe(&published([&one, &other]), at(0));
        assert_eq!(seen.observe(&published([&one, &other]), at(5)).announced, Duration::from_secs(5));
        let ages = seen.observe(&published([&other, &one]), at(6));
        assert_eq!(ages.announced, Duration::ZERO);
        assert_eq!(ages.bundle[&one.certificate.fingerprint], Duration::from_secs(6), "the order is not its age");
    }
}
