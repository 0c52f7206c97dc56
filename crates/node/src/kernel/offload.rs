//! Transmit offload of an interface, by the kernel's own `ethtool` family of generic netlink.

use std::io::{self, Error, ErrorKind};
use std::sync::OnceLock;

use netlink_packet_core::NLM_F_ACK;

use super::attributes::{NESTED, attribute, text};
use super::conversation::{Conversation, u16_at};

/// The family that names all others, and how it is asked for one.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// What the family `ethtool` is asked for.
const SET_FEATURES: u8 = 12;
const FEATURES_HEADER: u16 = 1;
const FEATURES_WANTED: u16 = 3;
const HEADER_NAME: u16 = 2;
const BITSET_BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;

/// What `ethtool -K tx off` takes away. What needs checksums, such as segmentation, goes with them.
const CHECKSUMS: [&str; 4] = ["tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-sctp"];

/// Lets an interface of the network that we are in write whole frames with their checksums. A switch that reads frames
/// in userspace would pass on what no card completes.
pub(crate) fn no_transmit_offload(interface: &str) -> io::Result<()> {
    let mut conversation = Conversation::generic()?;
    let family = family(&mut conversation)?;
    let bits: Vec<u8> = CHECKSUMS
        // A bit that is named without a value is one to be cleared.
        .iter()
        .flat_map(|name| attribute(BIT | NESTED, &attribute(BIT_NAME, &text(name))))
        .collect();
    let mut body = vec![SET_FEATURES, 1, 0, 0];
    body.extend(attribute(FEATURES_HEADER | NESTED, &attribute(HEADER_NAME, &text(interface))));
    body.extend(attribute(FEATURES_WANTED | NESTED, &attribute(BITSET_BITS | NESTED, &bits)));
    conversation.ask_raw(family, NLM_F_ACK, &body).map(|_| ())
}

/// The number of the family `ethtool`: one for the whole kernel, for as long as it runs.
fn family(conversation: &mut Conversation) -> io::Result<u16> {
    static FAMILY: OnceLock<u16> = OnceLock::new();
    if let Some(family) = FAMILY.get() {
        return Ok(*family);
    }
    let mut body = vec![GET_FAMILY, 1, 0, 0];
    body.extend(attribute(FAMILY_NAME, &text("ethtool")));
    let answers = conversation.ask_raw(CONTROLLER, 0, &body)?;
    let mut rest = answers.first().and_then(|answer| answer.get(4..)).unwrap_or_default();
    while !rest.is_empty() {
        let length = usize::from(u16_at(rest, 0)?);
        if u16_at(rest, 2)? & !NESTED == FAMILY_ID {
            return Ok(*FAMILY.get_or_init(|| u16_at(rest, 4).unwrap_or_default()));
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    Err(Error::new(ErrorKind::Unsupported, "the kernel has no ethtool by netlink (it is of Linux 5.6 and later)"))
}
