//! The annotations that carry facts: how they are read, and how ours are written.

use std::fmt::{self, Write as _};

use netmodel::Prefix;
use serde::Deserialize;
use serde_json::json;

use super::node::{NODE_ID, NODE_SUBNETS};
use crate::allocation::{NodeAllocation, PodAllocation};
use crate::settings::ClusterSettings;

/// The network of a pod.
pub const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";

/// A value that stands on an object, or why it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Annotated<T> {
    /// Nothing is there.
    #[default]
    Absent,
    /// It can be used.
    Valid(T),
    /// It cannot; why.
    Broken(Box<str>),
}

impl<T> Annotated<T> {
    /// The value, if it can be used.
    pub fn valid(&self) -> Option<&T> {
        if let Self::Valid(value) = self { Some(value) } else { None }
    }

    /// Why it cannot be used, if so.
    pub fn broken(&self) -> Option<&str> {
        if let Self::Broken(why) = self { Some(why) } else { None }
    }
}

/// A text for a message: an annotation may be a megabyte.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// The value of the default network in an annotation that has one for each network.
pub fn default_network<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Networks<T> {
        default: T,
    }
    let networks: Networks<T> = serde_json::from_str(text)
        .map_err(|error| format!("{} is not JSON with a usable \"default\": {error}", shortened(text)))?;
    Ok(networks.default)
}

/// Either one subnet or a list of them, as older and newer controllers write it.
pub(super) fn read_subnets(text: &str) -> Result<Vec<Prefix>, String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Subnets {
        One(String),
        Many(Vec<String>),
    }
    let texts = match default_network(text)? {
        Subnets::One(text) => vec![text],
        Subnets::Many(texts) => texts,
    };
    let subnets: Result<Vec<Prefix>, _> = texts.iter().map(|text| text.parse()).collect();
    let subnets = subnets.map_err(|error: netmodel::AddressError| error.to_string())?;
    if subnets.is_empty() { Err("there is no subnet in it".into()) } else { Ok(subnets) }
}

/// What a pod is told of its network. Written out, because it is written for every pod and nothing in it needs escaping.
pub fn pod_annotation(allocation: &PodAllocation, node: &NodeAllocation, settings: &ClusterSettings) -> String {
    let (mut addresses, mut gateways, mut routes) = (String::new(), String::new(), String::new());
    let mut families = 0;
    for address in allocation.addresses() {
        let Some(subnet) = node.subnet_of(address) else { continue };
        let Some(gateway) = subnet.nth(1) else { continue };
        families += 1;
        push(&mut addresses, format_args!("\"{address}/{}\"", subnet.length()));
        push(&mut gateways, format_args!("\"{gateway}\""));
        for dest in settings.pod_routes(subnet.is_ipv6()) {
            push(&mut routes, format_args!("{{\"dest\":\"{dest}\",\"nextHop\":\"{gateway}\"}}"));
        }
    }
    // Who knows one family only reads these.
    let single = match families {
        1 => format!("\"gateway_ip\":{gateways},\"ip_address\":{addresses},"),
        _ => String::new(),
    };
    let mac = allocation.mac;
    format!(
        "{{\"default\":{{{single}\"gateway_ips\":[{gateways}],\"ip_addresses\":[{addresses}],\"mac_address\":\"{mac}\",\
         \"role\":\"primary\",\"routes\":[{routes}]}}}}"
    )
}

/// Adds an item to a list.
fn push(list: &mut String, item: fmt::Arguments<'_>) {
    if !list.is_empty() {
        list.push(',');
    }
    let _ = list.write_fmt(item);
}

/// What a node is told: its subnets and its number.
pub fn node_annotations(allocation: &NodeAllocation) -> [(&'static str, String); 2] {
    let subnets: Vec<String> = allocation.subnets().map(|subnet| subnet.to_string()).collect();
    [(NODE_SUBNETS, json!({ "default": subnets }).to_string()), (NODE_ID, allocation.id.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_of_both_forms() {
        assert_eq!(read_subnets(r#"{"default":"10.128.0.0/23"}"#).unwrap().len(), 1);
        assert_eq!(read_subnets(r#"{"default":["10.128.0.0/23","fd01:0:0:2::/64"]}"#).unwrap().len(), 2);
        for bad in ["", "[]", r#"{"default":[]}"#, r#"{"default":["10.128.0.1/23"]}"#, r#"{"other":"10.0.0.0/8"}"#] {
            assert!(read_subnets(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_huge_annotation_makes_no_huge_message() {
        let why = crate::objects::PodNetwork::read(&"é".repeat(500_000)).unwrap_err();
        assert!(why.len() < 400, "{}", why.len());
    }
}
