//! Pod: one logical switch port, and memberships in the sets of its namespace and of selectors; QoS rules and host ports
//! if requested.

use netmodel::Family;
use objects::PodKey;
use ovn_schema::northbound::{AddressSet, LogicalRouter, LogicalSwitch, LogicalSwitchPort, Nat, PortGroup};

use super::cluster::ALL_PODS_KEY;
use super::{Inputs, bandwidth, gateway, host_port, namespace, node, selector};
use crate::contribution::{Contribution, Draft};
use crate::identity::Owner;

/// Row key of a pod's port.
pub const PORT_KEY: &str = "port";

pub(super) fn desired(key: &PodKey, inputs: Inputs<'_>) -> Contribution {
    let Some(pod) = inputs.store.pod(key) else { return Contribution::default() };
    let (Some(own), Some(node_facts)) =
        (inputs.allocator.pod(key), pod.node.as_ref().and_then(|node| inputs.store.node(node)))
    else {
        return Contribution::default();
    };
    let owner = Owner::Pod(pod.key.clone());
    let mut draft = Draft::new(&owner, &own.uid, inputs.aliases);
    let addresses: Vec<String> = own.addresses().map(|address| address.to_string()).collect();
    let words = format!("{} {}", own.mac, addresses.join(" "));
    let chassis = node_facts.chassis.as_deref().unwrap_or(&node_facts.name);
    let port = LogicalSwitchPort {
        name: key.port_name(),
        addresses: [words.clone()].into(),
        port_security: [words].into(),
        options: [
            ("iface-id-ver".to_owned(), own.uid.to_string()),
            ("requested-chassis".to_owned(), chassis.to_owned()),
        ]
        .into(),
        external_ids: draft.mark(&[("namespace", &key.namespace), ("pod", "true")]),
        ..Default::default()
    };
    let switch = node::switch_of(&draft, node_facts);
    let uuid = draft.child(LogicalSwitch::ports, switch, PORT_KEY, &port);
    for (address, text) in own.addresses().zip(&addresses) {
        let set = namespace::address_set(&draft, &key.namespace, Family::of(address));
        draft.member(AddressSet::addresses, set, text);
    }
    for (words, selector) in inputs.store.selectors_of(pod) {
        selector::join(&mut draft, words, selector, own, uuid, inputs.aliases);
    }
    if inputs.settings.multicast {
        let all = draft.of_cluster::<PortGroup>(ALL_PODS_KEY);
        draft.member(PortGroup::ports, all, &uuid);
        if namespace::has_multicast(&key.namespace, inputs) {
            let group = namespace::port_group(&draft, &key.namespace);
            draft.member(PortGroup::ports, group, &uuid);
        }
    }
    if let Some(options) = &pod.options {
        bandwidth::add(&mut draft, switch, &port.name, options, inputs);
        host_port::add(&mut draft, pod, own, node_facts, inputs);
    }
    if inputs.settings.snat_per_pod
        && let Some(gateway) = gateway::of(node_facts)
    {
        let router = gateway::router_of(&draft, node_facts);
        for (address, text) in own.addresses().zip(&addresses) {
            let outside = gateway.addresses.iter().find(|outside| Family::of(outside.address()) == Family::of(address));
            let Some(outside) = outside else { continue };
            let nat = Nat {
                kind: "snat".into(),
                external_ip: outside.address().to_string(),
                logical_ip: text.clone(),
                external_port_range: gateway::snat_ports(inputs),
                external_ids: draft.mark(&[]),
                ..Default::default()
            };
            draft.child(LogicalRouter::nat, router, &format!("snat {text}"), &nat);
        }
    }
    draft.finish()
}
