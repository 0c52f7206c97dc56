//! The rules that all kinds of policies are made of: who, over which ports.

use std::net::IpAddr;

use netmodel::Prefix;
use serde_json::Value;

use super::annotation::shortened;
use super::field;
use super::labels::LabelSelector;
use super::protocol::Protocol;
use crate::Name;

/// Which ports of a protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ports {
    /// All.
    All,
    /// From one to another, both included.
    Range(u16, u16),
    /// Those that containers call so.
    Named(Name),
}

/// Ports of one protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRule {
    /// The protocol.
    pub protocol: Protocol,
    /// Its ports.
    pub ports: Ports,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Pods, of the selected namespaces or of the policy's own.
    Pods {
        /// Whose pods; the policy's own namespace if none.
        namespaces: Option<LabelSelector>,
        /// Which of them.
        pods: LabelSelector,
    },
    /// Nodes.
    Nodes(LabelSelector),
    /// Addresses, without some.
    Block {
        /// These.
        cidr: Prefix,
        /// But not these.
        except: Box<[Prefix]>,
    },
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The connection may be.
    Allow,
    /// It may not.
    Deny,
    /// Others decide.
    Pass,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it does.
    pub action: Action,
    /// What the administrator calls it.
    pub name: Option<Name>,
    /// With whom; with everybody if none.
    pub peers: Option<Box<[Peer]>>,
    /// Over which ports; over all, and all protocols, if empty.
    pub ports: Box<[PortRule]>,
}

/// Reads a protocol; TCP if it is missing.
pub(super) fn protocol(value: &Value, path: &str) -> Result<Protocol, String> {
    let Some(name) = field::get(value, "protocol") else { return Ok(Protocol::Tcp) };
    let path = format!("{path}.protocol");
    let name = field::text(name, &path)?;
    Protocol::parse(name).ok_or_else(|| format!("{path}: {} is none of TCP, UDP, SCTP", shortened(name)))
}

/// Reads a network; bits behind its length do not matter.
pub(super) fn prefix(text: &str, path: &str) -> Result<Prefix, String> {
    let wrong = || format!("{path}: {} is no network, as in 10.0.0.0/8", shortened(text));
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    Prefix::containing(address, length).map_err(|_| wrong())
}

/// Reads the name of a port: as the API allows it, so that it can be part of other names.
pub(super) fn port_name(text: &str, path: &str) -> Result<Name, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let letter = text.bytes().any(|byte| byte.is_ascii_lowercase());
    if text.len() > 15 || !letter || !text.bytes().all(plain) {
        let text = shortened(text);
        if text.parse::<u16>().is_ok() {
            return Err(format!("{path}: {text} is a text, and a number of a port is none: write it without quotes"));
        }
        return Err(format!(
            "{path}: {text} is no name of a port (at most 15 lower-case letters, digits and '-', one letter at least)"
        ));
    }
    Ok(text.into())
}
