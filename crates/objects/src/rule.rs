//! Rules, as all kinds of policies have them: peers and ports.

use std::net::IpAddr;

use netmodel::Prefix;
use serde_json::Value;

use super::annotation::shortened;
use super::field;
use super::labels::LabelSelector;
use super::protocol::Protocol;
use crate::Name;

/// Which ports of a protocol a rule admits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ports {
    /// Every port of the protocol.
    All,
    /// First and last port, inclusive.
    Range(u16, u16),
    /// Container ports of this name, whose number may differ from pod to pod.
    Named(Name),
}

/// Ports of one protocol that a rule admits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRule {
    /// Never a wildcard.
    pub protocol: Protocol,
    /// Destination ports; source ports are never compared.
    pub ports: Ports,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Pods, of the selected namespaces or of the policy's own.
    Pods {
        /// None: the policy's own namespace.
        namespaces: Option<LabelSelector>,
        /// Within those namespaces; an empty selector selects all.
        pods: LabelSelector,
    },
    /// Addresses of the selected nodes.
    Nodes(LabelSelector),
    /// Addresses outside the cluster's pods.
    Block {
        /// Network whose addresses are selected.
        cidr: Prefix,
        /// Excluded parts of it.
        except: Box<[Prefix]>,
    },
}

/// The effect of a rule that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Later tiers are not evaluated.
    Allow,
    /// Packets are dropped.
    Deny,
    /// NetworkPolicies and the baseline decide.
    Pass,
}

/// One entry of `ingress` or `egress`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Always `Allow` in a NetworkPolicy.
    pub action: Action,
    /// Only for people.
    pub name: Option<Name>,
    /// None: everything.
    pub peers: Option<Box<[Peer]>>,
    /// Empty: all ports of all protocols.
    pub ports: Box<[PortRule]>,
}

/// Parses the field `protocol`; TCP if it is missing.
pub(super) fn protocol(value: &Value, path: &str) -> Result<Protocol, String> {
    let Some(name) = field::get(value, "protocol") else { return Ok(Protocol::Tcp) };
    let path = format!("{path}.protocol");
    let name = field::text(name, &path)?;
    Protocol::parse(name).ok_or_else(|| format!("{path}: {} is not one of TCP, UDP, SCTP", shortened(name)))
}

/// Parses a network; host bits may be set.
pub(super) fn prefix(text: &str, path: &str) -> Result<Prefix, String> {
    let wrong = || format!("{path}: {} is not a network such as 10.0.0.0/8", shortened(text));
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    Prefix::containing(address, length).map_err(|_| wrong())
}

/// Parses a port name by the API's rules, so that it can be part of other names.
pub(super) fn port_name(text: &str, path: &str) -> Result<Name, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let letter = text.bytes().any(|byte| byte.is_ascii_lowercase());
    if text.len() > 15 || !letter || !text.bytes().all(plain) {
        let text = shortened(text);
        if text.parse::<u16>().is_ok() {
            return Err(format!("{path}: {text} is a string: write port numbers without quotes"));
        }
        return Err(format!(
            "{path}: {text} is not a port name (at most 15 lower-case letters, digits and '-', one letter at least)"
        ));
    }
    Ok(text.into())
}
