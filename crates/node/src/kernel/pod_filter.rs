//! nftables chains that drop pods' frames before the host's network stack.
//!
//! ```text
//!  pod eth0 ──▶ host end ──┬─ packet socket ─▶ ovs-vswitchd (datapath_type=netdev)
//!                          └─ ingress hook ──▶ chain of that device: drop
//! ```
//!
//! The userspace datapath reads a pod's frames from a packet socket, which only gets copies: the kernel would also deliver the
//! frame itself, past OVN and every policy. So each host end has a base chain with policy `drop` and no rules in the table
//! `netdev ovnkube-pods`. A chain per device works on every kernel with the netdev family, and no list is rewritten when pods
//! change. `tc` does not work: ovs-vswitchd deletes the ingress qdisc of its ports. Everything is a few netlink messages,
//! without a process.

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP};

use super::attributes::{NESTED, attribute, find, find_text, find_u32, is_absent, text};
use super::netlink_socket::NetlinkSocket;

/// Name of the table, in the family `netdev`.
pub(crate) const TABLE: &str = "ovnkube-pods";
/// Protocol family of the table (NFPROTO_NETDEV).
pub(super) const NETDEV: u8 = 5;

// linux/netfilter/nf_tables.h
pub(super) const NEW_TABLE: u8 = 0;
const DELETE_TABLE: u8 = 2;
pub(super) const NEW_CHAIN: u8 = 3;
const GET_CHAIN: u8 = 4;
pub(super) const DELETE_CHAIN: u8 = 5;
const DELETE_RULE: u8 = 8;
/// The same for tables, chains and rules.
pub(super) const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
pub(super) const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
pub(super) const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const RULE_CHAIN: u16 = 2;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const INGRESS: u32 = 0;
pub(super) const DROP: u32 = 0;
/// Before all other chains of the hook.
const PRIORITY: i32 = -500;

/// A base chain at the ingress of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Named like its device, which may have been deleted meanwhile.
    pub(crate) name: String,
    /// It still drops everything that the device receives.
    pub(crate) intact: bool,
}

/// Drops everything that a device receives from now on. The device must exist; it may be protected already.
pub(crate) fn protect(device: &str) -> io::Result<()> {
    batch(&[table(), new_chain(device)])
}

/// Creates the table, or activates it if another client made it dormant.
pub(crate) fn ensure_table() -> io::Result<()> {
    batch(&[table()])
}

/// Replaces a chain that another client changed, in one transaction.
pub(crate) fn restore(device: &str) -> io::Result<()> {
    batch(&[table(), flush_chain(device), delete_chain(device), new_chain(device)])
}

/// Removes the chain of a device; false if there was none. Older kernels remove it with the device.
pub(crate) fn unprotect(device: &str) -> io::Result<bool> {
    existed(batch(&[flush_chain(device), delete_chain(device)]))
}

/// Removes the table; false if there was none.
pub(crate) fn remove_table() -> io::Result<bool> {
    existed(batch(&[(DELETE_TABLE, 0, attribute(TABLE_NAME, &text(TABLE)))]))
}

pub(crate) fn chains() -> io::Result<Vec<Chain>> {
    let body = [NETDEV, 0, 0, 0];
    let listed = NetlinkSocket::netfilter()?.query_raw(kind(GET_CHAIN), NLM_F_DUMP, &body)?;
    Ok(listed.iter().filter_map(|message| read_chain(message.get(4..)?)).collect())
}

fn read_chain(attributes: &[u8]) -> Option<Chain> {
    if find_text(attributes, TABLE_NAME) != Some(TABLE) {
        return None;
    }
    let name = find_text(attributes, CHAIN_NAME)?.to_owned();
    let hook = find(attributes, CHAIN_HOOK);
    let at_device = hook.is_some_and(|hook| {
        find_u32(hook, HOOK_NUMBER) == Some(INGRESS) && find_text(hook, HOOK_DEVICE) == Some(name.as_str())
    });
    let drops = find_u32(attributes, CHAIN_POLICY) == Some(DROP) && find_u32(attributes, CHAIN_USE).unwrap_or(0) == 0;
    Some(Chain { name, intact: at_device && drops })
}

/// A message of a batch: type, flags and attributes.
type Message = (u8, u16, Vec<u8>);

/// Creates the table without flags, which also clears `dormant`.
fn table() -> Message {
    let body = [attribute(TABLE_NAME, &text(TABLE)), attribute(TABLE_FLAGS, &0_u32.to_be_bytes())].concat();
    (NEW_TABLE, NLM_F_CREATE, body)
}

fn chain(device: &str) -> Vec<u8> {
    [attribute(TABLE_NAME, &text(TABLE)), attribute(CHAIN_NAME, &text(device))].concat()
}

fn new_chain(device: &str) -> Message {
    let hook = [
        attribute(HOOK_NUMBER, &INGRESS.to_be_bytes()),
        attribute(HOOK_PRIORITY, &PRIORITY.to_be_bytes()),
        attribute(HOOK_DEVICE, &text(device)),
    ];
    let body = [
        chain(device),
        attribute(CHAIN_HOOK | NESTED, &hook.concat()),
        attribute(CHAIN_POLICY, &DROP.to_be_bytes()),
        attribute(CHAIN_TYPE, &text("filter")),
    ];
    (NEW_CHAIN, NLM_F_CREATE, body.concat())
}

fn flush_chain(device: &str) -> Message {
    let body = [attribute(TABLE_NAME, &text(TABLE)), attribute(RULE_CHAIN, &text(device))].concat();
    (DELETE_RULE, 0, body)
}

fn delete_chain(device: &str) -> Message {
    (DELETE_CHAIN, 0, chain(device))
}

/// Netlink message type of an nftables message.
fn kind(message: u8) -> u16 {
    (super::filter_changes::NFTABLES << 8) | u16::from(message)
}

/// Sends messages as one transaction.
fn batch(messages: &[Message]) -> io::Result<()> {
    let header = [NETDEV, 0, 0, 0];
    let messages: Vec<_> =
        messages.iter().map(|(message, flags, body)| (kind(*message), *flags, [&header, &body[..]].concat())).collect();
    NetlinkSocket::netfilter()?.send_batch(super::filter_changes::NFTABLES, &messages)
}

fn existed(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_untouched_chain_is_intact() {
        let (_, _, whole) = new_chain("pod012345678901");
        let read = |bytes: &[u8]| read_chain(bytes).unwrap();
        assert_eq!(read(&whole), Chain { name: "pod012345678901".into(), intact: true });
        let used = [whole.clone(), attribute(CHAIN_USE, &1_u32.to_be_bytes())].concat();
        assert!(!read(&used).intact, "another client added a rule");
        let open: Vec<u8> = [attribute(CHAIN_POLICY, &1_u32.to_be_bytes()), whole[..].to_vec()].concat();
        assert!(!read(&open).intact, "another client set the policy to accept");
        assert!(!read(&chain("pod012345678901")).intact, "a chain without a hook sees nothing");
        let foreign = [attribute(TABLE_NAME, &text("other")), attribute(CHAIN_NAME, &text("x"))].concat();
        assert_eq!(read_chain(&foreign), None);
        assert_eq!(read_chain(&[1, 2, 3]), None);
    }
}
