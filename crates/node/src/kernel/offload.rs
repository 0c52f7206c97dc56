//! Transmit offload of an interface, over the `ethtool` family of generic netlink.

use std::io::{self, Error, ErrorKind};
use std::sync::OnceLock;

use netlink_packet_core::NLM_F_ACK;

use super::attributes::{NESTED, attribute, text};
use super::netlink_socket::{NetlinkSocket, u16_at};

/// The family that resolves names of families.
const GENL_CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Messages and attributes of the family `ethtool`.
const SET_FEATURES: u8 = 12;
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const HEADER_NAME: u16 = 2;
const BITSET_BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;

/// Features that `ethtool -K tx off` disables; those that depend on them, such as segmentation, are disabled too.
const CHECKSUMS: [&str; 4] = ["tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-sctp"];

/// Disables checksum offload of an interface in the current network namespace: the userspace datapath would forward frames whose
/// checksums no hardware completes.
pub(crate) fn disable_transmit_offload(interface: &str) -> io::Result<()> {
    let mut socket = NetlinkSocket::generic()?;
    let family = family(&mut socket)?;
    let bits: Vec<u8> = CHECKSUMS
        // A bit without a value is cleared.
        .iter()
        .flat_map(|name| attribute(BIT | NESTED, &attribute(BIT_NAME, &text(name))))
        .collect();
    let mut body = vec![SET_FEATURES, 1, 0, 0];
    body.extend(attribute(FEATURES_HEADER | NESTED, &attribute(HEADER_NAME, &text(interface))));
    body.extend(attribute(FEATURES_WANTED | NESTED, &attribute(BITSET_BITS | NESTED, &bits)));
    socket.query_raw(family, NLM_F_ACK, &body).map(|_| ())
}

/// ID of the family `ethtool`, which is constant while the kernel runs.
fn family(socket: &mut NetlinkSocket) -> io::Result<u16> {
    static FAMILY: OnceLock<u16> = OnceLock::new();
    if let Some(family) = FAMILY.get() {
        return Ok(*family);
    }
    let mut body = vec![GET_FAMILY, 1, 0, 0];
    body.extend(attribute(FAMILY_NAME, &text("ethtool")));
    let responses = socket.query_raw(GENL_CONTROL, 0, &body)?;
    let mut rest = responses.first().and_then(|response| response.get(4..)).unwrap_or_default();
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0)?);
        if u16_at(rest, 2)? & !NESTED == FAMILY_ID {
            return Ok(*FAMILY.get_or_init(|| u16_at(rest, 4).unwrap_or_default()));
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    Err(Error::new(ErrorKind::Unsupported, "the kernel has no ethtool netlink family (Linux 5.6 or newer is needed)"))
}
