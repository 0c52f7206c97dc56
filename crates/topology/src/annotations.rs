//! The annotations that the controller writes on Pods and Nodes.

use std::fmt::{self, Write as _};

use objects::{NODE_ID, NODE_SUBNETS};
use serde_json::json;

use crate::allocation::{NodeAllocation, PodAllocation};
use crate::settings::ClusterSettings;

/// The value of `k8s.ovn.org/pod-networks`. Formatted directly: it is written for every pod, and nothing in it needs escaping.
pub(crate) fn pod_annotation(allocation: &PodAllocation, node: &NodeAllocation, settings: &ClusterSettings) -> String {
    let (mut addresses, mut gateways, mut routes) = (String::new(), String::new(), String::new());
    let mut families = 0;
    for address in allocation.addresses() {
        let Some(subnet) = node.subnet_of(address) else { continue };
        let Some(gateway) = subnet.nth(1) else { continue };
        families += 1;
        push(&mut addresses, format_args!("\"{address}/{}\"", subnet.length()));
        push(&mut gateways, format_args!("\"{gateway}\""));
        for dest in settings.pod_routes(subnet.family()) {
            push(&mut routes, format_args!("{{\"dest\":\"{dest}\",\"nextHop\":\"{gateway}\"}}"));
        }
    }
    // Clients that support one family read these.
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

/// Adds an item to a comma-separated list.
fn push(list: &mut String, item: fmt::Arguments<'_>) {
    if !list.is_empty() {
        list.push(',');
    }
    let _ = list.write_fmt(item);
}

/// The annotations of a node: subnets and node ID.
pub(crate) fn node_annotations(allocation: &NodeAllocation) -> [(&'static str, String); 2] {
    let subnets: Vec<String> = allocation.subnets().map(|subnet| subnet.to_string()).collect();
    [(NODE_SUBNETS, json!({ "default": subnets }).to_string()), (NODE_ID, allocation.id.to_string())]
}
