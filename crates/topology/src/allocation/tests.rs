//! Allocations, and refusals with their messages.

mod nodes;
mod pods;

use std::net::IpAddr;

use objects::{NETWORK_ALLOCATED, NodeFacts, PodFacts, record_network};
use serde_json::json;

use super::{Allocatable, Allocator, KnownNode, KnownPort, PodState};
use crate::identity::Owner;
use crate::refusal::Refusal;
use crate::settings::ClusterSettings;

const SUBNETS: &str = "k8s.ovn.org/node-subnets";
const ID: &str = "k8s.ovn.org/node-id";
const NETWORK: &str = "k8s.ovn.org/pod-networks";
const REQUEST: &str = "v1.multus-cni.io/default-network";

fn allocator(cluster: &[&str]) -> Allocator {
    let cluster = cluster.iter().map(|text| text.parse().unwrap()).collect();
    Allocator::new(&ClusterSettings::new(cluster, Vec::new())).unwrap()
}

/// Four nodes with 13 pods each.
fn small() -> Allocator {
    allocator(&["10.128.0.0/26/28"])
}

fn node(name: &str, uid: &str, annotations: &[(&str, &str)]) -> NodeFacts {
    let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
    let object = json!({"metadata": {"name": name, "uid": uid, "annotations": annotations}});
    NodeFacts::parse(&object.to_string()).unwrap()
}

/// A pod whose network, if its annotations have one, was recorded by a controller.
fn pod(name: &str, annotations: &[(&str, &str)]) -> PodFacts {
    pod_on("n1", name, &format!("uid-{name}"), annotations)
}

fn pod_on(node: &str, name: &str, uid: &str, annotations: &[(&str, &str)]) -> PodFacts {
    let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
    let mut object = json!({"metadata": {"name": name, "namespace": "ns", "uid": uid, "annotations": annotations},
        "spec": {"nodeName": node}, "status": {"phase": "Running"}});
    if let Some(network) = annotations.get(NETWORK) {
        record_network(&mut object, network);
    }
    PodFacts::parse(&object.to_string()).unwrap()
}

/// A pod whose annotation was written by another client, without a record.
fn forger(name: &str, network: &str) -> PodFacts {
    let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
        "annotations": {NETWORK: network}}, "spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}});
    PodFacts::parse(&object.to_string()).unwrap()
}

fn finished(pod: &PodFacts) -> PodFacts {
    PodFacts { finished: true, ..pod.clone() }
}

/// The annotation of a pod with these addresses.
fn network(mac: &str, addresses: &[&str]) -> String {
    json!({"default": {"mac_address": mac, "ip_addresses": addresses}}).to_string()
}

fn request(words: &serde_json::Value) -> String {
    json!([words]).to_string()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn allocate(allocator: &mut Allocator, name: &str, annotations: &[(&str, &str)]) -> Result<(), Refusal> {
    allocator.allocate_node(&node(name, &format!("uid-{name}"), annotations), &KnownNode::default())
}

/// A node's allocation as text: its subnets, then its node ID.
fn of_node(allocator: &Allocator, name: &str) -> Vec<String> {
    let Some(own) = allocator.node(name) else { return Vec::new() };
    own.subnets().map(|subnet| subnet.to_string()).chain([own.id.to_string()]).collect()
}

/// A pod's allocation as text: its addresses, then its MAC.
fn of_pod(allocator: &Allocator, pod: &PodFacts) -> Vec<String> {
    let Some(own) = allocator.pod(&pod.key) else { return Vec::new() };
    own.addresses().map(|address| address.to_string()).chain([own.mac.to_string()]).collect()
}

/// The rows of an owner are removed, and every node has acknowledged it.
fn acknowledge_removal(allocator: &mut Allocator, owner: &Owner) -> Vec<String> {
    allocator.quarantine_mut().committed(owner);
    allocator.quarantine_mut().raised(1);
    allocator.release_acknowledged(|_, _| true).iter().map(ToString::to_string).collect()
}

/// Asserts the refusal's reason, and that its message contains all of these.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>, reason: &str, words: &[&str]) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.reason, reason, "{refusal}");
    for word in words {
        assert!(refusal.message.contains(word), "{refusal:?} does not name {word:?}");
    }
}
