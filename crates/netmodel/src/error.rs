//! Errors of parsing network values. Each message is one line with the text and the remedy.

use std::net::IpAddr;

use thiserror::Error;

use crate::Prefix;

/// Why a text is no [`Prefix`] or [`InterfaceAddress`](crate::InterfaceAddress).
///
/// Texts are shown quoted and escaped, so that a stray newline in a configuration file cannot break the line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressError {
    /// There is no `/` in the text.
    #[error("{text:?} has no prefix length: add one, as in {example}")]
    NoLength {
        /// The text as it was given.
        text: String,
        /// The same address with a length.
        example: String,
    },
    /// The part before the `/` is not an IP address.
    #[error("{text:?} does not start with an IP address: write it like 10.128.0.0/14 or fd01::/48")]
    NotAnAddress {
        /// The text as it was given.
        text: String,
    },
    /// The part after the `/` is not a prefix length of this family.
    #[error("{text:?} has no valid prefix length: write a whole number from 0 to {longest} after the slash")]
    BadLength {
        /// The text as it was given.
        text: String,
        /// The longest prefix of the address's family.
        longest: u8,
    },
    /// A network was asked for, but the address is one inside it.
    #[error("{address}/{length} is an address in a network, not a network: did you mean {meant}?")]
    HostBits {
        /// The address as it was given.
        address: IpAddr,
        /// The length as it was given.
        length: u8,
        /// The network that the address is in.
        meant: Prefix,
    },
    /// The text is neither `IPv4` nor `IPv6`.
    #[error("unknown IP family {text:?}: expected IPv4 or IPv6")]
    NotAFamily {
        /// The text as it was given.
        text: String,
    },
}

/// Why a text is no [`ClusterCidr`](crate::ClusterCidr), or its node length does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterCidrError {
    /// The part before the second `/` is not a network.
    #[error(transparent)]
    Network(#[from] AddressError),
    /// There is no `/` in the text.
    #[error("{text:?} has no prefix length: write it like 10.128.0.0/14/23 or fd01::/48/64")]
    NoLength {
        /// The text as it was given.
        text: String,
    },
    /// The part after the second `/` is not a number.
    #[error("{text:?} has no valid node length: write a whole number after the second slash, as in {example}")]
    BadNodeLength {
        /// The text as it was given.
        text: String,
        /// The same network with the usual node length.
        example: String,
    },
    /// A node's subnet would be larger than the network that it is taken from.
    #[error("{text:?} gives a node more than the whole network: write a node length from {shortest} to {longest}")]
    NodeTooLarge {
        /// The network and its node length.
        text: String,
        /// The length of the network.
        shortest: u8,
        /// The longest node length of the family.
        longest: u8,
    },
    /// A node's subnet would be too small to use.
    #[error("{text:?} leaves a node no address for pods: write a network and a node length of at most {longest}")]
    NodeTooSmall {
        /// The network and its node length.
        text: String,
        /// The longest node length of the family.
        longest: u8,
    },
}

/// Why a text is no [`Mac`](crate::Mac).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a MAC address: write six pairs of hex digits joined by colons, like 0a:58:0a:82:00:05")]
pub struct MacError {
    /// The text as it was given.
    pub text: String,
}
