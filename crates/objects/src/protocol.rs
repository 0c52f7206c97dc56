//! Transport protocols.

use super::annotation::shortened;

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// The default where an object names none.
    Tcp,
    /// Protocol number 17.
    Udp,
    /// Protocol number 132.
    Sctp,
}

impl Protocol {
    /// Every protocol that Kubernetes knows.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Upper case, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Lower case, as in OVN's match expressions and load balancers.
    pub fn ovn_name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Parses the API's name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == text)
    }

    /// Parses a field; TCP if it is missing.
    pub(super) fn read(field: &str, text: Option<&str>) -> Result<Self, String> {
        let text = text.unwrap_or("TCP");
        Self::parse(text).ok_or_else(|| format!("{field}: {} is not one of TCP, UDP, SCTP", shortened(text)))
    }
}
