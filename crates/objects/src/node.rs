//! What we need to know of a Node.

use std::borrow::Cow;
use std::net::IpAddr;

use netmodel::{GatewayMode, InterfaceAddress, Mac, Prefix};
use serde::Deserialize;

use super::annotation::{default_network, read_subnets, shortened};
use super::{Annotated, Labels, Metadata};
use crate::Name;

/// The subnets of a node's pods.
pub const NODE_SUBNETS: &str = "k8s.ovn.org/node-subnets";
/// The node's number, from which its join address follows.
pub const NODE_ID: &str = "k8s.ovn.org/node-id";
const GATEWAY: &str = "k8s.ovn.org/l3-gateway-config";
const CHASSIS: &str = "k8s.ovn.org/node-chassis-id";
const PRIMARY: &str = "k8s.ovn.org/node-primary-ifaddr";
const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";
/// What `host-cidrs` was called before.
const HOST_ADDRESSES: &str = "k8s.ovn.org/host-addresses";
/// The MACs of its management ports.
pub const MANAGEMENT_MACS: &str = "k8s.ovn.org/node-mgmt-port-mac-addresses";
/// What the one above was called before.
const MANAGEMENT_MAC: &str = "k8s.ovn.org/node-mgmt-port-mac-address";

/// The `nb_cfg` that the node's chassis must have applied: written by the controller for a chassis that lags behind, read by
/// the node's agent.
pub const EXPECTED_NB_CFG: &str = "k8s.ovn.org/expected-nb-cfg";
/// The condition that the node's agent maintains.
pub const NETWORK_READY: &str = "k8s.ovn.org/NodeNetworkReady";

const ZONE: &str = "topology.kubernetes.io/zone";

/// What we need to know of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: Name,
    /// Its identity: a machine that was replaced under the same name has another one.
    pub uid: Name,
    /// When it was created.
    pub created: Box<str>,
    /// The subnets that stand on it.
    pub subnets: Annotated<Vec<Prefix>>,
    /// The number that stands on it.
    pub id: Annotated<u32>,
    /// Its gateway to the outside, as its agent found it; `Valid(None)` if it has none on purpose.
    pub gateway: Annotated<Option<GatewayFacts>>,
    /// The `system-id` of its Open vSwitch.
    pub chassis: Option<Box<str>>,
    /// The host's own addresses.
    pub host_addresses: Annotated<Box<[IpAddr]>>,
    /// The MAC of its management port, where it is not computed.
    pub management_mac: Annotated<Mac>,
    /// What the condition `NetworkUnavailable` says, if it is there.
    pub network_unavailable: Option<bool>,
    /// Whether its kubelet says that it works; unknown counts as yes.
    pub ready: bool,
    /// Its labels.
    pub labels: Labels,
    /// The zone that it stands in, if its labels say so.
    pub zone: Option<Name>,
    /// What its agent reports about itself.
    pub agent: AgentReport,
}

/// What a node's agent reports about itself. It never makes two [`NodeFacts`] differ: no row depends on it, and a heartbeat
/// must not reconcile the node.
#[derive(Debug, Clone, Default)]
pub struct AgentReport {
    /// Whether the condition [`NETWORK_READY`] is `True`.
    pub ready: bool,
    /// Its `lastHeartbeatTime`, as it was written.
    pub heartbeat: Box<str>,
    /// The annotation [`EXPECTED_NB_CFG`].
    pub expected: Option<i64>,
}

impl PartialEq for AgentReport {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for AgentReport {}

/// A node's gateway to the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayFacts {
    /// How pods leave.
    pub mode: GatewayMode,
    /// The name of the localnet port.
    pub interface_id: Box<str>,
    /// The MAC of the external bridge.
    pub mac: Mac,
    /// Its addresses.
    pub addresses: Box<[InterfaceAddress]>,
    /// The routers behind it.
    pub next_hops: Box<[IpAddr]>,
    /// The VLAN of the external network.
    pub vlan: Option<u16>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, rename = "lastHeartbeatTime")]
    heartbeat: Option<Cow<'a, str>>,
}

impl NodeFacts {
    /// Reads the object's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check("Node")?;
        let conditions = status.conditions.unwrap_or_default();
        let condition =
            |kind: &str| conditions.iter().find(|condition| condition.kind == kind).map(|condition| &*condition.status);
        let reported = conditions.iter().find(|condition| condition.kind == NETWORK_READY);
        let agent = AgentReport {
            ready: reported.is_some_and(|condition| condition.status == "True"),
            heartbeat: reported.and_then(|condition| condition.heartbeat.as_deref()).unwrap_or_default().into(),
            expected: metadata.annotation(EXPECTED_NB_CFG).and_then(|text| text.parse().ok()),
        };
        let host = metadata.annotated(HOST_CIDRS, read_addresses);
        let primary = metadata.annotated(PRIMARY, read_primary);
        Ok(Self {
            name: metadata.name.as_ref().into(),
            uid: metadata.uid.as_ref().into(),
            created: metadata.created(),
            subnets: metadata.annotated(NODE_SUBNETS, read_subnets),
            id: metadata.annotated(NODE_ID, |text| {
                text.parse().map_err(|_| format!("{} is not a whole number", shortened(text)))
            }),
            gateway: metadata.annotated(GATEWAY, read_gateway),
            chassis: metadata.annotation(CHASSIS).filter(|chassis| !chassis.is_empty()).map(Into::into),
            host_addresses: match (host, primary) {
                (Annotated::Absent, Annotated::Absent) => metadata.annotated(HOST_ADDRESSES, read_addresses),
                (Annotated::Absent, primary) => primary,
                (host, _) => host,
            },
            management_mac: match metadata.annotated(MANAGEMENT_MACS, default_mac) {
                Annotated::Absent => metadata.annotated(MANAGEMENT_MAC, |text| {
                    text.parse().map_err(|error: netmodel::MacError| error.to_string())
                }),
                found => found,
            },
            network_unavailable: condition("NetworkUnavailable").map(|status| status == "True"),
            ready: condition("Ready").is_none_or(|status| status == "True"),
            zone: metadata.label(ZONE).map(Into::into),
            labels: metadata.labels,
            agent,
        })
    }

    /// Everything on it that cannot be used.
    pub fn broken(&self) -> Option<&str> {
        let gateway = self.gateway.broken().or(self.host_addresses.broken()).or(self.management_mac.broken());
        gateway.or(self.subnets.broken()).or(self.id.broken())
    }
}

/// A MAC that a host can have.
fn usable(mac: Mac) -> Result<Mac, String> {
    if mac.is_usable() { Ok(mac) } else { Err(format!("mac-address: {mac} is no interface's MAC")) }
}

fn default_mac(text: &str) -> Result<Mac, String> {
    default_network::<String>(text)?.parse().map_err(|error: netmodel::MacError| error.to_string())
}

/// Addresses with or without a length.
fn read_addresses(text: &str) -> Result<Box<[IpAddr]>, String> {
    let texts: Vec<String> = serde_json::from_str(text)
        .map_err(|error| format!("{} is not a JSON list of addresses: {error}", shortened(text)))?;
    let bare = |text: &String| -> Result<IpAddr, String> {
        let address = text.split_once('/').map_or(text.as_str(), |(address, _)| address);
        address.parse().map_err(|_| format!("{} is not an IP address", shortened(text)))
    };
    texts.iter().map(bare).collect()
}

fn read_primary(text: &str) -> Result<Box<[IpAddr]>, String> {
    #[derive(Deserialize)]
    struct Primary {
        ipv4: Option<InterfaceAddress>,
        ipv6: Option<InterfaceAddress>,
    }
    let primary: Primary = serde_json::from_str(text).map_err(|error| format!("{}: {error}", shortened(text)))?;
    Ok([primary.ipv4, primary.ipv6].into_iter().flatten().map(InterfaceAddress::address).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Gateway {
    mode: String,
    #[serde(default)]
    interface_id: String,
    #[serde(default)]
    mac_address: String,
    #[serde(default)]
    ip_addresses: Vec<String>,
    #[serde(default)]
    ip_address: Option<String>,
    #[serde(default)]
    next_hops: Vec<String>,
    #[serde(default)]
    next_hop: Option<String>,
    #[serde(default)]
    vlan_id: Option<String>,
}

fn read_gateway(text: &str) -> Result<Option<GatewayFacts>, String> {
    let gateway: Gateway = default_network(text)?;
    let mode = match gateway.mode.as_str() {
        "" | "disabled" => return Ok(None),
        text => text
            .parse::<GatewayMode>()
            .map_err(|_| format!("mode: {} is none of shared, local, disabled", shortened(text)))?,
    };
    let either =
        |many: Vec<String>, one: Option<String>| if many.is_empty() { one.into_iter().collect() } else { many };
    let mut addresses: Vec<InterfaceAddress> = Vec::new();
    for text in either(gateway.ip_addresses, gateway.ip_address) {
        addresses.push(text.parse().map_err(|error| format!("ip-addresses: {error}"))?);
    }
    let mut next_hops: Vec<IpAddr> = Vec::new();
    for text in either(gateway.next_hops, gateway.next_hop) {
        next_hops.push(text.parse().map_err(|_| format!("next-hops: {} is not an IP address", shortened(&text)))?);
    }
    if addresses.is_empty() {
        return Err("ip-addresses is empty".into());
    }
    if gateway.interface_id.is_empty() {
        return Err("interface-id is empty".into());
    }
    let vlan = match gateway.vlan_id.as_deref() {
        None | Some("" | "0") => None,
        Some(text) => Some(
            text.parse::<u16>()
                .ok()
                .filter(|vlan| *vlan < 4095)
                .ok_or_else(|| format!("vlan-id: {} is no VLAN (0 to 4094)", shortened(text)))?,
        ),
    };
    Ok(Some(GatewayFacts {
        mode,
        interface_id: gateway.interface_id.into(),
        mac: usable(gateway.mac_address.parse().map_err(|error| format!("mac-address: {error}"))?)?,
        addresses: addresses.into(),
        next_hops: next_hops.into(),
        vlan,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotations: &[(&str, &str)]) -> NodeFacts {
        let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
        let object = serde_json::json!({
            "metadata": {"name": "n1", "uid": "u", "annotations": annotations},
            "status": {"conditions": [{"type": "NetworkUnavailable", "status": "True"}, {"type": "Ready", "status": "False"}]},
        });
        NodeFacts::parse(&object.to_string()).unwrap()
    }

    #[test]
    fn a_whole_node_is_read() {
        let node = node(&[
            (NODE_SUBNETS, r#"{"default":["10.130.0.0/23","fd01:0:0:2::/64"]}"#),
            (NODE_ID, "7"),
            (CHASSIS, "chassis-1"),
            (PRIMARY, r#"{"ipv4":"10.0.0.5/24"}"#),
            (
                GATEWAY,
                r#"{"default":{"mode":"shared","bridge-id":"br-ex","interface-id":"br-ex_n1","mac-address":"52:54:00:00:00:01",
                "ip-addresses":["10.0.0.5/24"],"ip-address":"10.0.0.5/24","next-hops":["10.0.0.1"],"next-hop":"10.0.0.1",
                "node-port-enable":"true","vlan-id":"0"}}"#,
            ),
        ]);
        assert_eq!(node.id, Annotated::Valid(7));
        assert_eq!(node.subnets.valid().unwrap().len(), 2);
        let gateway = node.gateway.valid().unwrap().as_ref().unwrap();
        assert_eq!((gateway.mode, gateway.vlan, gateway.next_hops.len()), (GatewayMode::Shared, None, 1));
        assert_eq!(node.host_addresses.valid().unwrap()[0].to_string(), "10.0.0.5");
        assert_eq!((node.network_unavailable, node.ready), (Some(true), false));
        assert_eq!(node.broken(), None);
    }

    #[test]
    fn what_is_broken_is_named() {
        for (key, value) in [
            (NODE_SUBNETS, "10.130.0.0/23"),
            (NODE_ID, "seven"),
            (GATEWAY, r#"{"default":{"mode":"odd"}}"#),
            (
                GATEWAY,
                r#"{"default":{"mode":"shared","interface-id":"x","mac-address":"zz","ip-addresses":["10.0.0.5/24"]}}"#,
            ),
            (HOST_CIDRS, "{}"),
            (MANAGEMENT_MACS, r#"{"default":"x"}"#),
        ] {
            let node = node(&[(key, value)]);
            let why = node.broken().unwrap();
            assert!(why.starts_with(&format!("annotation {key}: ")), "{why}");
        }
        assert_eq!(node(&[(GATEWAY, r#"{"default":{"mode":"disabled"}}"#)]).gateway, Annotated::Valid(None));
    }
}
