//! Nodes.

use std::borrow::Cow;
use std::net::IpAddr;

use netmodel::{GatewayMode, InterfaceAddress, Mac, Prefix};
use serde::Deserialize;

use super::annotation::{default_network, read_subnets, shortened};
use super::{Annotated, Labels, Metadata};
use crate::Name;

/// Annotation: the pod subnets of the node.
pub const NODE_SUBNETS: &str = "k8s.ovn.org/node-subnets";
/// Annotation: the node ID, from which the join address follows.
pub const NODE_ID: &str = "k8s.ovn.org/node-id";
const GATEWAY: &str = "k8s.ovn.org/l3-gateway-config";
const CHASSIS: &str = "k8s.ovn.org/node-chassis-id";
const PRIMARY: &str = "k8s.ovn.org/node-primary-ifaddr";
const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";
/// The former name of `host-cidrs`.
const HOST_ADDRESSES: &str = "k8s.ovn.org/host-addresses";
/// Annotation: the MACs of the management ports, by network.
pub const MANAGEMENT_MACS: &str = "k8s.ovn.org/node-mgmt-port-mac-addresses";
/// The former name of `node-mgmt-port-mac-addresses`.
const MANAGEMENT_MAC: &str = "k8s.ovn.org/node-mgmt-port-mac-address";

/// Annotation: the `nb_cfg` that the chassis must apply. Written by the controller for a chassis that lags, read by the
/// node agent.
pub const EXPECTED_NB_CFG: &str = "k8s.ovn.org/expected-nb-cfg";
/// The node condition that the node agent maintains.
pub const NETWORK_READY: &str = "k8s.ovn.org/NodeNetworkReady";

const ZONE: &str = "topology.kubernetes.io/zone";

/// The fields of a Node that the network depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Unique among nodes at one time.
    pub name: Name,
    /// Differs if a machine was replaced under the same name.
    pub uid: Name,
    /// `creationTimestamp`; compares as time does.
    pub created: Box<str>,
    /// Annotation `k8s.ovn.org/node-subnets`.
    pub subnets: Annotated<Vec<Prefix>>,
    /// Annotation `k8s.ovn.org/node-id`.
    pub id: Annotated<u32>,
    /// As its agent reports it; `Valid(None)` if disabled.
    pub gateway: Annotated<Option<GatewayFacts>>,
    /// The `system-id` of its Open vSwitch.
    pub chassis: Option<Box<str>>,
    /// All addresses of the host, from `host-cidrs`, else `node-primary-ifaddr`, else the older `host-addresses`.
    pub host_addresses: Annotated<Box<[IpAddr]>>,
    /// Absent if the default, derived MAC is used.
    pub management_mac: Annotated<Mac>,
    /// The condition `NetworkUnavailable`; None if missing.
    pub network_unavailable: Option<bool>,
    /// The condition `Ready`; true if missing.
    pub ready: bool,
    /// AdminNetworkPolicies select nodes by them.
    pub labels: Labels,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<Name>,
    /// Ignored by comparisons.
    pub agent: AgentReport,
}

/// What the node agent reports about itself. All values are equal: no row depends on it, and a heartbeat must not
/// requeue the node.
#[derive(Debug, Clone, Default)]
pub struct AgentReport {
    /// Whether the condition [`NETWORK_READY`] is `True`.
    pub ready: bool,
    /// Its `lastHeartbeatTime`, unparsed.
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

/// The node's gateway to networks outside the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayFacts {
    /// The path of pods' packets.
    pub mode: GatewayMode,
    /// Name of the localnet port.
    pub interface_id: Box<str>,
    /// MAC of the external bridge, shared with the gateway router.
    pub mac: Mac,
    /// Addresses of the external bridge; the first of each family is the gateway router's.
    pub addresses: Box<[InterfaceAddress]>,
    /// Default gateways.
    pub next_hops: Box<[IpAddr]>,
    /// None: untagged.
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
    /// Parses the object's JSON.
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
            chassis: metadata.annotation(CHASSIS).filter(|chassis| is_chassis(chassis)).map(Into::into),
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

    /// The first invalid annotation, and why.
    pub fn broken(&self) -> Option<&str> {
        let gateway = self.gateway.broken().or(self.host_addresses.broken()).or(self.management_mac.broken());
        gateway.or(self.subnets.broken()).or(self.id.broken())
    }
}

/// Refuses group addresses and zero.
fn usable(mac: Mac) -> Result<Mac, String> {
    if mac.is_usable() { Ok(mac) } else { Err(format!("mac-address: {mac} cannot be the MAC of an interface")) }
}

fn default_mac(text: &str) -> Result<Mac, String> {
    default_network::<String>(text)?.parse().map_err(|error: netmodel::MacError| error.to_string())
}

/// A JSON list of addresses, with or without prefix length.
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
            .map_err(|_| format!("mode: {} is not one of shared, local, disabled", shortened(text)))?,
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
                .ok_or_else(|| format!("vlan-id: {} is not a VLAN ID (0 to 4094)", shortened(text)))?,
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

/// Whether a chassis can have this name: what no database stores is taken for no chassis.
fn is_chassis(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
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
    fn a_complete_node_is_parsed() {
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
    fn invalid_annotations_are_named() {
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
