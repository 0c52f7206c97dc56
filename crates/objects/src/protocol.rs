//! The transport protocols.

use super::annotation::shortened;

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// As Kubernetes calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// As OVN calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Reads the API's name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == text)
    }

    /// Reads a field; what is not said is TCP.
    pub(super) fn read(field: &str, text: Option<&str>) -> Result<Self, String> {
        let text = text.unwrap_or("TCP");
        Self::parse(text).ok_or_else(|| format!("{field}: {} is none of TCP, UDP, SCTP", shortened(text)))
    }
}
