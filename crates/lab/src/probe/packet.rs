//! The wire format: a request has its path, number and send time; the reply repeats it and adds the client's address as
//! the server saw it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use netmodel::Family;

/// Identifies the prober's packets.
const MAGIC: u32 = 0x6f76_6e70;
/// Length of a request, in bytes.
pub(super) const REQUEST: usize = 22;
/// Length of a reply, in bytes: the request and what the server saw.
pub(super) const REPLY: usize = REQUEST + 18;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Index of the path in the plan.
    pub(super) path: u16,
    /// Counted from 0 on each path.
    pub(super) number: u64,
    /// Microseconds since the prober started.
    pub(super) sent: u64,
}

impl Request {
    pub(super) fn encode(self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.path.to_be_bytes());
        bytes[6..14].copy_from_slice(&self.number.to_be_bytes());
        bytes[14..22].copy_from_slice(&self.sent.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if word(bytes, 0)? != MAGIC {
            return None;
        }
        Some(Self {
            path: u16::from_be_bytes(bytes.get(4..6)?.try_into().ok()?),
            number: u64::from_be_bytes(bytes.get(6..14)?.try_into().ok()?),
            sent: u64::from_be_bytes(bytes.get(14..22)?.try_into().ok()?),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) request: Request,
    /// As the server saw it.
    pub(super) client: SocketAddr,
}

impl Reply {
    pub(super) fn encode(self) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..REQUEST].copy_from_slice(&self.request.encode());
        let address = match self.client.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes[REQUEST..REQUEST + 16].copy_from_slice(&address.octets());
        bytes[REQUEST + 16..].copy_from_slice(&self.client.port().to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let request = Request::decode(bytes)?;
        let address: [u8; 16] = bytes.get(REQUEST..REQUEST + 16)?.try_into().ok()?;
        let port = u16::from_be_bytes(bytes.get(REQUEST + 16..REPLY)?.try_into().ok()?);
        Some(Self { request, client: SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port) })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Length of the header, in bytes.
const ICMP_HEADER: usize = 8;

/// An ICMP echo request with `request` as payload. The kernel sets identifier and checksum (ping sockets).
pub(super) fn echo_request(request: Request, family: Family) -> Vec<u8> {
    let kind = match family {
        Family::V4 => 8,
        Family::V6 => 128,
    };
    let sequence = u16::try_from(request.number & 0xffff).unwrap_or_default().to_be_bytes();
    let mut bytes = vec![kind, 0, 0, 0, 0, 0, sequence[0], sequence[1]];
    bytes.extend(request.encode());
    bytes
}

/// The request in the payload of an ICMP echo reply.
pub(super) fn echo_reply(bytes: &[u8], family: Family) -> Option<Request> {
    let kind = match family {
        Family::V4 => 0,
        Family::V6 => 129,
    };
    if *bytes.first()? != kind {
        return None;
    }
    Request::decode(bytes.get(ICMP_HEADER..)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST_7: Request = Request { path: 3, number: 7, sent: 1_000_001 };

    #[test]
    fn requests_and_replies_round_trip() {
        assert_eq!(Request::decode(&REQUEST_7.encode()), Some(REQUEST_7));
        for client in ["10.128.0.5:40000", "[fd01::5]:40000"] {
            let reply = Reply { request: REQUEST_7, client: client.parse().unwrap() };
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn foreign_and_short_packets_are_rejected() {
        assert_eq!(Request::decode(b"GET / HTTP/1.0\r\n\r\n......"), None);
        assert_eq!(Request::decode(&REQUEST_7.encode()[..20]), None);
        assert_eq!(Reply::decode(&REQUEST_7.encode()), None);
    }

    #[test]
    fn only_echo_replies_are_accepted() {
        let mut frame = echo_request(REQUEST_7, Family::V4);
        assert_eq!(echo_reply(&frame, Family::V4), None, "a request is not a reply");
        frame[0] = 0;
        assert_eq!(echo_reply(&frame, Family::V4), Some(REQUEST_7));
        assert_eq!(echo_reply(&frame, Family::V6), None);
    }
}
