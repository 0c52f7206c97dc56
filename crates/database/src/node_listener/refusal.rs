//! Why nodes are refused: for the log, with the remedy, and for the metrics.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use rustls::{CertificateError, Error};

/// The same refusal of one address is logged once in this time.
const LOG_PERIOD: Duration = Duration::from_secs(60);
/// Most refusals that are remembered for that; more are counted only.
const MOST_REMEMBERED: usize = 256;

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    NoCertificate,
    UnknownAuthority,
    Expired,
    Revoked,
    BadName,
    BadHandshake,
    Timeout,
    TooMany,
    Server,
    Request,
}

impl Reason {
    pub(super) const ALL: [Self; 10] = [
        Self::NoCertificate,
        Self::UnknownAuthority,
        Self::Expired,
        Self::Revoked,
        Self::BadName,
        Self::BadHandshake,
        Self::Timeout,
        Self::TooMany,
        Self::Server,
        Self::Request,
    ];

    /// Its label in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::UnknownAuthority => "unknown_authority",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::BadName => "bad_name",
            Self::BadHandshake => "bad_handshake",
            Self::Timeout => "timeout",
            Self::TooMany => "too_many",
            Self::Server => "server",
            Self::Request => "request",
        }
    }

    /// Why a handshake, or the check of a certificate, failed.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidCertificate(problem) => match problem {
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::Expired,
                CertificateError::Revoked => Self::Revoked,
                CertificateError::Other(_) => Self::BadName,
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
                _ => Self::BadHandshake,
            },
            _ => Self::BadHandshake,
        }
    }

    /// What to do about it.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::NoCertificate | Self::UnknownAuthority => {
                "this port is for nodes, with certificates of the nodes' CA; the agent of the node requests one; other clients use \
                 port south-control"
            }
            Self::Expired => {
                "the agent of the node renews its certificate; check its log, and the clocks of both hosts"
            }
            Self::Revoked => {
                "the agent of the node requests another certificate; it was revoked in ConfigMap ovn-node-ca"
            }
            Self::BadName => {
                "the certificate must have the chassis' system-id as its only common name; the signer k8s.ovn.org/chassis issues it"
            }
            Self::BadHandshake => "the client must use TLS 1.2 or newer, and trust the CA of this server",
            Self::Timeout => "the client, or the network to it, is too slow, or it sends nothing",
            Self::TooMany => {
                "another client at this address, which a node shares with its pods, or with this name, opens many connections; find it"
            }
            Self::Server => {
                "ovsdb-server does not answer its manager, or did not accept its certificate yet; the log before this line says why"
            }
            Self::Request => {
                "ovn-controller does not send that: who uses the certificate of this chassis? Runbook pki.md, A key was stolen"
            }
        }
    }
}

impl EncodeLabelValue for Reason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        self.name().encode(encoder)
    }
}

/// Decides which refusals are logged.
#[derive(Debug, Default)]
pub(super) struct LogLimit(HashMap<(IpAddr, Reason), Instant>);

impl LogLimit {
    /// Whether this refusal is to be logged.
    pub(super) fn is_due(&mut self, peer: IpAddr, reason: Reason, now: Instant) -> bool {
        let recent = |at: &Instant| now.saturating_duration_since(*at) < LOG_PERIOD;
        if self.0.get(&(peer, reason)).is_some_and(recent) {
            return false;
        }
        if self.0.len() >= MOST_REMEMBERED {
            self.0.retain(|_, at| recent(at));
        }
        if self.0.len() >= MOST_REMEMBERED {
            return false;
        }
        self.0.insert((peer, reason), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_logged_once_a_minute_and_a_flood_is_not() {
        let (mut limit, start) = (LogLimit::default(), Instant::now());
        let address = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        assert!(limit.is_due(address(1), Reason::Revoked, start));
        assert!(!limit.is_due(address(1), Reason::Revoked, start + Duration::from_secs(59)));
        assert!(limit.is_due(address(1), Reason::Expired, start));
        assert!(limit.is_due(address(1), Reason::Revoked, start + LOG_PERIOD));
        let later = start + LOG_PERIOD;
        let logged = (2..1000).filter(|number| limit.is_due(address(*number), Reason::Timeout, later)).count();
        assert!(logged <= MOST_REMEMBERED && limit.0.len() <= MOST_REMEMBERED);
        assert!(limit.is_due(address(1000), Reason::Timeout, later + LOG_PERIOD));
    }

    #[test]
    fn reasons_follow_from_the_error() {
        assert_eq!(Reason::of(&CertificateError::UnknownIssuer.into()), Reason::UnknownAuthority);
        assert_eq!(Reason::of(&CertificateError::Revoked.into()), Reason::Revoked);
        assert_eq!(Reason::of(&CertificateError::NotValidYet.into()), Reason::Expired);
        assert_eq!(Reason::of(&Error::NoCertificatesPresented), Reason::NoCertificate);
        assert_eq!(Reason::of(&Error::HandshakeNotComplete), Reason::BadHandshake);
    }
}
