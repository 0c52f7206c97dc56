//! A blocking netlink socket, for the few messages that configure a pod's namespace on a thread of their own.

use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

/// The kernel writes parts of a response no larger than this, if the reader has the space.
const BUFFER_SIZE: usize = 32 << 10;
/// Length of a message's header.
const HEADER: usize = 16;
/// Message type: acknowledgement or error.
const NLMSG_ERROR: u16 = 2;
/// Message type: end of a multipart response.
const NLMSG_DONE: u16 = 3;
/// Message types around a netfilter transaction.
const NFNL_BATCH_BEGIN: u16 = 16;
const NFNL_BATCH_END: u16 = 17;

/// Belongs to the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    /// For links, addresses and routes.
    pub(crate) fn route() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkRoute)
    }

    /// For generic netlink families.
    pub(crate) fn generic() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkGeneric)
    }

    /// For nftables and conntrack.
    pub(crate) fn netfilter() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkNetFilter)
    }

    fn open(protocol: SockProtocol) -> io::Result<Self> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_SIZE] })
    }

    /// Requests a change, and waits for the acknowledgement.
    pub(crate) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.query(message, flags | NLM_F_ACK).map(|_| ())
    }

    /// Sends a request, and returns all messages of the response.
    pub(crate) fn query(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut responses = Vec::new();
        self.query_each(message, flags, |response| responses.push(response))?;
        Ok(responses)
    }

    /// Like `query`, but passes each message on as it is read: a list of all links of a host is large.
    pub(crate) fn query_each(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.next_sequence();
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.exchange(&bytes, |part| {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(part).map_err(Error::other)?;
            if let NetlinkPayload::InnerMessage(message) = message.payload {
                take(message);
            }
            Ok(())
        })
    }

    /// Sends a message with this body, and returns the bodies of the response.
    pub(crate) fn query_raw(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let bytes = self.raw(kind, flags, body)?;
        let mut responses = Vec::new();
        self.exchange(&bytes, |part| {
            responses.push(part[HEADER..].to_vec());
            Ok(())
        })?;
        Ok(responses)
    }

    /// Sends changes as one netfilter transaction. It consumes the socket, because after an error the responses to the other messages
    /// are unread.
    pub(crate) fn send_batch(mut self, subsystem: u16, messages: &[(u16, u16, Vec<u8>)]) -> io::Result<()> {
        // The end of a batch is not acknowledged itself, so the last change is.
        let target = [&[0, 0][..], &subsystem.to_be_bytes()].concat();
        let mut bytes = self.raw(NFNL_BATCH_BEGIN, 0, &target)?;
        let mut last = 0;
        for (index, (kind, flags, body)) in messages.iter().enumerate() {
            let acknowledged = if index + 1 == messages.len() { NLM_F_ACK } else { 0 };
            bytes.extend(self.raw(*kind, flags | acknowledged, body)?);
            last = self.sequence;
        }
        bytes.extend(self.raw(NFNL_BATCH_END, 0, &target)?);
        // The response belongs to the last change, or is the error of an earlier one.
        self.sequence = last;
        self.send_and_read(&bytes, false, |_| Ok(()))
    }

    /// Encodes a message.
    fn raw(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        let sequence = self.next_sequence();
        let length = u32::try_from(HEADER + body.len()).map_err(Error::other)?;
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(bytes)
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    /// Sends, and reads until the end of a multipart response, an acknowledgement, or a single message.
    fn exchange(&mut self, bytes: &[u8], take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let single_response = u16_at(bytes, 6)? & NLM_F_ACK == 0;
        self.send_and_read(bytes, single_response, take)
    }

    /// `single_response`: without an acknowledgement, one message that is not multipart is the whole response.
    fn send_and_read(
        &mut self,
        bytes: &[u8],
        single_response: bool,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        send(self.socket.as_raw_fd(), bytes, MsgFlags::empty())?;
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(length) => length,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut rest = &self.buffer[..length];
            let mut multipart = false;
            while !rest.is_empty() {
                let length = usize::try_from(u32_at(rest, 0)?).map_err(Error::other)?;
                let part = rest.get(..length).filter(|part| part.len() >= HEADER).ok_or_else(truncated)?;
                match u16_at(part, 4)? {
                    NLMSG_ERROR => {
                        let code = u32_at(part, HEADER)?.cast_signed();
                        return if code == 0 { Ok(()) } else { Err(Error::from_raw_os_error(-code)) };
                    }
                    NLMSG_DONE => return Ok(()),
                    _ => {}
                }
                multipart |= u16_at(part, 6)? & netlink_packet_core::NLM_F_MULTIPART != 0;
                if u32_at(part, 8)? == self.sequence {
                    take(part)?;
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
            if single_response && !multipart {
                return Ok(());
            }
        }
    }
}

fn truncated() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the kernel's response is truncated")
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let bytes = bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).ok_or_else(truncated)?;
    Ok(u16::from_ne_bytes(bytes))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(truncated)?;
    Ok(u32::from_ne_bytes(bytes))
}
