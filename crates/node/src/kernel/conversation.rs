//! Netlink by question and answer, on the thread that asks: what is done in a pod's namespace is a handful of messages
//! that wait for nothing but the kernel.

use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

/// The kernel writes no larger piece of an answer than a reader has room for, up to this.
const ROOM: usize = 32 << 10;
/// A message's header.
const HEADER: usize = 16;
/// The type of a message that says how a request ended.
const ENDED: u16 = 2;
/// The type of a message that ends a list.
const DONE: u16 = 3;
/// The types of the messages around a batch of changes of netfilter.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

/// A socket of the network that it was opened in.
#[derive(Debug)]
pub(crate) struct Conversation {
    socket: OwnedFd,
    sequence: u32,
    room: Vec<u8>,
}

impl Conversation {
    /// About links, addresses and routes.
    pub(crate) fn route() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkRoute)
    }

    /// With the families that have no protocol of their own.
    pub(crate) fn generic() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkGeneric)
    }

    /// With netfilter.
    pub(crate) fn netfilter() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkNetFilter)
    }

    fn open(protocol: SockProtocol) -> io::Result<Self> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0, room: vec![0; ROOM] })
    }

    /// Asks for a change.
    pub(crate) fn tell(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, flags | NLM_F_ACK).map(|_| ())
    }

    /// Asks, and takes all that is answered.
    pub(crate) fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut answers = Vec::new();
        self.ask_each(message, flags, |answer| answers.push(answer))?;
        Ok(answers)
    }

    /// Asks, and hands over each answer as it is read: a list of all links of a host is large.
    pub(crate) fn ask_each(
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

    /// Asks by the bytes of a message behind its header, and takes what is answered, without headers.
    pub(crate) fn ask_raw(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let bytes = self.raw(kind, flags, body)?;
        let mut answers = Vec::new();
        self.exchange(&bytes, |part| {
            answers.push(part[HEADER..].to_vec());
            Ok(())
        })?;
        Ok(answers)
    }

    /// Asks a part of netfilter for several changes, which happen together or not at all. After an error the answers to the
    /// other messages are still unread: the conversation is over.
    pub(crate) fn tell_batch(mut self, subsystem: u16, messages: &[(u16, u16, Vec<u8>)]) -> io::Result<()> {
        // The end of a batch is not answered itself: the last change is what is acknowledged.
        let whole = [&[0, 0][..], &subsystem.to_be_bytes()].concat();
        let mut bytes = self.raw(BATCH_BEGIN, 0, &whole)?;
        let mut last = 0;
        for (place, (kind, flags, body)) in messages.iter().enumerate() {
            let acknowledged = if place + 1 == messages.len() { NLM_F_ACK } else { 0 };
            bytes.extend(self.raw(*kind, flags | acknowledged, body)?);
            last = self.sequence;
        }
        bytes.extend(self.raw(BATCH_END, 0, &whole)?);
        // What is read belongs to the last change, or is the error of one before it.
        self.sequence = last;
        self.send_and_read(&bytes, false, |_| Ok(()))
    }

    /// A message by its bytes.
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

    /// Sends, and reads up to the end of the answer: a list's end, an acknowledgement, or the one message that was asked for.
    fn exchange(&mut self, bytes: &[u8], take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let whole = u16_at(bytes, 6)? & NLM_F_ACK == 0;
        self.send_and_read(bytes, whole, take)
    }

    /// `whole`: a message that is no part of a list is the end of the answer, as no acknowledgement was asked for.
    fn send_and_read(
        &mut self,
        bytes: &[u8],
        whole: bool,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        send(self.socket.as_raw_fd(), bytes, MsgFlags::empty())?;
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut self.room, MsgFlags::empty()) {
                Ok(length) => length,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut rest = &self.room[..length];
            let mut several = false;
            while !rest.is_empty() {
                let length = usize::try_from(u32_at(rest, 0)?).map_err(Error::other)?;
                let part = rest.get(..length).filter(|part| part.len() >= HEADER).ok_or_else(cut)?;
                match u16_at(part, 4)? {
                    ENDED => {
                        let code = u32_at(part, HEADER)?.cast_signed();
                        return if code == 0 { Ok(()) } else { Err(Error::from_raw_os_error(-code)) };
                    }
                    DONE => return Ok(()),
                    _ => {}
                }
                several |= u16_at(part, 6)? & netlink_packet_core::NLM_F_MULTIPART != 0;
                if u32_at(part, 8)? == self.sequence {
                    take(part)?;
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
            if whole && !several {
                return Ok(());
            }
        }
    }
}

fn cut() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the kernel's answer is cut off")
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let bytes = bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).ok_or_else(cut)?;
    Ok(u16::from_ne_bytes(bytes))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(cut)?;
    Ok(u32::from_ne_bytes(bytes))
}
