//! Routes from the API server to pods. In most clusters it runs on a node and reaches pods through that node; here it
//! has a separate machine, which gets a route to each node's pods through that node.
//!
//! The node forwards these packets through the management port and masquerades them with its own address, like traffic
//! of the host: a pod's reply to an external address would take another path, with SNAT.

use std::net::IpAddr;

use netmodel::Prefix;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::supervisor::Supervisor;
use crate::underlay::CONTROL;

const NODE_SUBNETS: &str = "k8s.ovn.org/node-subnets";
const MANAGEMENT_PORT: &str = "ovn-k8s-mp0";

/// Adds the routes; the nodes must have their subnets.
pub(crate) fn start(supervisor: &Supervisor) -> Result<()> {
    let control = supervisor.machine(CONTROL)?;
    let nodes = control.run(&["kubectl", "get", "nodes", "-o", "json"])?;
    let mut batch = String::new();
    for name in supervisor.nodes() {
        let addresses: Vec<IpAddr> = supervisor.plan.addresses(&name).iter().map(|own| own.address()).collect();
        for subnet in subnets(&nodes, &name)? {
            let next = addresses.iter().find(|address| address.is_ipv6() == subnet.is_ipv6());
            let next =
                next.ok_or_else(|| Error::Invalid(format!("node {name} has no address of the family of {subnet}")))?;
            batch.push_str(&format!("route replace {subnet} via {next}\n"));
        }
        forward_from_control(supervisor, &supervisor.machine(&name)?)?;
    }
    control.run_with_input(&["ip", "-batch", "-"], &batch).map(|_| ())
}

/// From the annotation that the controller sets.
fn subnets(nodes: &str, name: &str) -> Result<Vec<Prefix>> {
    let missing = || {
        Error::Invalid(format!("node {name} has no annotation {NODE_SUBNETS}; check that the controller is running"))
    };
    let nodes: Value = serde_json::from_str(nodes).map_err(|_| missing())?;
    let items = nodes["items"].as_array().ok_or_else(missing)?;
    let node = items.iter().find(|node| node["metadata"]["name"] == name).ok_or_else(missing)?;
    let text = node["metadata"]["annotations"][NODE_SUBNETS].as_str().ok_or_else(missing)?;
    let annotation: Value = serde_json::from_str(text).map_err(|_| missing())?;
    let subnets = match &annotation["default"] {
        Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(one) => vec![one.clone()],
        _ => Vec::new(),
    };
    if subnets.is_empty() {
        return Err(missing());
    }
    let parse =
        |text: &String| text.parse().map_err(|error| Error::Invalid(format!("{NODE_SUBNETS} of {name}: {error}")));
    subnets.iter().map(parse).collect()
}

/// Lets a node forward packets of the control machine to its pods.
fn forward_from_control(supervisor: &Supervisor, node: &Machine) -> Result<()> {
    let mut rules = String::new();
    for own in supervisor.plan.addresses(CONTROL) {
        let family = if own.address().is_ipv4() { "ip" } else { "ip6" };
        rules.push_str(&format!("oifname {MANAGEMENT_PORT} {family} saddr {} masquerade\n", own.address()));
    }
    let table = format!(
        "table inet lab {{\n chain control {{\n type nat hook postrouting priority srcnat; policy accept;\n{rules} }}\n}}\n"
    );
    node.run_with_input(&["nft", "-f", "-"], &table)?;
    let mut settings = vec![
        format!("net.ipv4.conf.{MANAGEMENT_PORT}.forwarding=1"),
        format!("net.ipv4.conf.{}.forwarding=1", crate::node::EXTERNAL_BRIDGE),
    ];
    if supervisor.spec.family.has_v6() {
        settings.push("net.ipv6.conf.all.forwarding=1".into());
    }
    let args: Vec<&str> = ["sysctl", "-qw"].into_iter().chain(settings.iter().map(String::as_str)).collect();
    node.run(&args).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_read_from_the_annotation() {
        let node = |value: &str| {
            serde_json::json!({ "items": [{ "metadata": { "name": "n1", "annotations": { NODE_SUBNETS: value } } }] })
                .to_string()
        };
        let read =
            |value: &str| subnets(&node(value), "n1").map(|found| found.iter().map(ToString::to_string).collect());
        let found: Vec<String> = read(r#"{"default":["10.128.0.0/23","fd01::/64"]}"#).unwrap();
        assert_eq!(found, ["10.128.0.0/23", "fd01::/64"]);
        assert_eq!(read(r#"{"default":"10.128.2.0/23"}"#).unwrap(), ["10.128.2.0/23"]);
        for odd in ["", "{}", "[1]", r#"{"default":[]}"#, r#"{"default":["x"]}"#] {
            let message = read(odd).unwrap_err().to_string();
            assert!(message.contains("n1"), "{message}");
        }
        assert!(subnets(&node("{}"), "n2").unwrap_err().to_string().contains("n2"));
    }
}
