//! Parses parties and destinations: `ns/pod`, `ns/service`, a node, an address or a network; destinations may have `:port` and `/protocol`.

use std::net::IpAddr;

use netmodel::{Family, Prefix};
use objects::{ObjectKey, Protocol};
use topology::store::Store;

use super::{Destination, Party};

/// Parses `ns/pod:80/udp`, `ns/service:443`, `node:10250`, `192.0.2.0/24`, `192.0.2.7:53/udp`, `[2001:db8::7]:80`.
pub fn parse_destination(store: &Store, text: &str) -> Result<Destination, String> {
    // Addresses and networks also contain ':' and '/'.
    if let Some(prefix) = network(text) {
        return Ok(Destination { party: Party::Network(prefix), protocol: Protocol::Tcp, port: None });
    }
    let Some((party, service_port)) = text.rsplit_once(':') else {
        return Ok(Destination { party: parse_party(store, text)?, protocol: Protocol::Tcp, port: None });
    };
    let (port, protocol) = match service_port.split_once('/') {
        Some((port, protocol)) => (port, read_protocol(protocol)?),
        None => (service_port, Protocol::Tcp),
    };
    let number: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
        let hint = "a port is a number from 1 to 65535, such as default/web:80 or default/dns:53/udp";
        format!("{port:?} in {text:?} is not a port; hint: {hint}")
    })?;
    Ok(Destination { party: parse_party(store, party)?, protocol, port: Some(number) })
}

/// Parses a party, without a port.
pub fn parse_party(store: &Store, text: &str) -> Result<Party, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Some(prefix) = network(bare) {
        return Ok(Party::Network(prefix));
    }
    if let Some((namespace, name)) = text.split_once('/') {
        let key = ObjectKey::new(namespace, name);
        if let Some(pod) = store.pod(&key) {
            return Ok(Party::Pod(pod.key.clone()));
        }
        if let Some(service) = store.service(&key) {
            return Ok(Party::Service(service.key.clone()));
        }
        let pods: Vec<&str> = store.pods_in(namespace).map(|pod| &*pod.key.name).take(5).collect();
        let hint = if pods.is_empty() {
            format!("namespace {namespace} has no pods here")
        } else {
            format!("pods of {namespace} are {}", pods.join(", "))
        };
        return Err(format!("no pod or Service {text}; hint: {hint}"));
    }
    match store.node(text) {
        Some(node) => Ok(Party::Node(node.name.clone())),
        None => Err(format!(
            "{text:?} is not a node, address or network; hint: pods and Services are written namespace/name"
        )),
    }
}

fn network(text: &str) -> Option<Prefix> {
    let single = |address: IpAddr| Prefix::new(address, Family::of(address).bits()).ok();
    text.parse().ok().or_else(|| text.parse().ok().and_then(single))
}

fn read_protocol(text: &str) -> Result<Protocol, String> {
    let named = Protocol::ALL.into_iter().find(|protocol| protocol.ovn_name().eq_ignore_ascii_case(text));
    named.ok_or_else(|| format!("{text:?} is not a protocol; hint: tcp, udp or sctp"))
}
