//! Services.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use netmodel::Prefix;
use serde::Deserialize;

use super::annotation::shortened;
use super::{Metadata, Protocol};
use crate::{Name, ObjectKey};

/// Label: another proxy serves the Service.
const FOREIGN_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Label of Services and EndpointSlices that are not proxied, as with kube-proxy.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

/// Limit of external addresses times ports. Each is a flow on every node and several in OVN; a thousand cost northd 1 s.
const MOST_EXTERNAL: usize = 4096;

/// The longest affinity timeout that the API allows, in seconds.
const LONGEST_AFFINITY: i64 = 86_400;

/// The fields of a Service that load balancers depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Unique among objects of its kind at one time.
    pub key: Arc<ObjectKey>,
    /// Tells objects apart that had the same name one after the other.
    pub uid: Name,
    /// `creationTimestamp`; compares as time does.
    pub created: Box<str>,
    /// None if nothing is proxied: headless, `ExternalName`, without an address yet, or of another proxy.
    pub spec: Option<Box<ServiceSpec>>,
    /// The first invalid field, and why; `spec` is None then.
    pub broken: Option<Box<str>>,
}

/// The fields of a Service that affect the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// `spec.type`; ClusterIP unless given.
    pub kind: ServiceType,
    /// One of each family at most.
    pub cluster_ips: Box<[IpAddr]>,
    /// Without duplicates of protocol and port, node port or name.
    pub ports: Box<[ServicePort]>,
    /// `externalIPs`; routed to the nodes by others.
    pub external_ips: Box<[IpAddr]>,
    /// Addresses of load balancers with `ipMode: VIP`, which keep the destination address.
    pub ingress_ips: Box<[IpAddr]>,
    /// Clients that may use `ingress_ips`; empty means all.
    pub source_ranges: Box<[Prefix]>,
    /// `sessionAffinity: ClientIP`.
    pub affinity: bool,
    /// `internalTrafficPolicy: Local`: endpoints on the node of the client.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`: endpoints of the node that the client reached.
    pub external_local: bool,
    /// `publishNotReadyAddresses`: readiness of endpoints is ignored.
    pub publish_not_ready: bool,
    /// Load balancers ask there whether the node has endpoints.
    pub health_check_node_port: Option<u16>,
}

/// `type`; each includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    /// Reachable inside the cluster only.
    ClusterIp,
    /// Also a port of every node.
    NodePort,
    /// Also addresses of an external load balancer.
    LoadBalancer,
}

/// An entry of `spec.ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Equal to the name of the endpoints' port; empty if the port is the only one.
    pub name: Box<str>,
    /// TCP unless given.
    pub protocol: Protocol,
    /// At the Service's own addresses.
    pub port: u16,
    /// None for type ClusterIP.
    pub node_port: Option<u16>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: Spec<'a>,
    #[serde(borrow, default)]
    status: Status<'a>,
}

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Word<'a>>,
    #[serde(borrow, rename = "clusterIP")]
    cluster_ip: Option<Word<'a>>,
    #[serde(borrow, rename = "clusterIPs")]
    cluster_ips: Option<Vec<Word<'a>>>,
    #[serde(borrow)]
    ports: Option<Vec<Port<'a>>>,
    #[serde(borrow, rename = "externalIPs")]
    external_ips: Option<Vec<Word<'a>>>,
    #[serde(borrow)]
    load_balancer_source_ranges: Option<Vec<Word<'a>>>,
    #[serde(borrow)]
    session_affinity: Option<Word<'a>>,
    session_affinity_config: Option<AffinityConfig>,
    #[serde(borrow)]
    internal_traffic_policy: Option<Word<'a>>,
    #[serde(borrow)]
    external_traffic_policy: Option<Word<'a>>,
    publish_not_ready_addresses: Option<bool>,
    health_check_node_port: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port<'a> {
    #[serde(borrow)]
    name: Option<Word<'a>>,
    #[serde(borrow)]
    protocol: Option<Word<'a>>,
    port: i64,
    node_port: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIp>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientIp {
    timeout_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    load_balancer: Option<LoadBalancer<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoadBalancer<'a> {
    #[serde(borrow)]
    ingress: Option<Vec<Ingress<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ingress<'a> {
    #[serde(borrow)]
    ip: Option<Word<'a>>,
    #[serde(borrow)]
    ip_mode: Option<Word<'a>>,
}

impl ServiceFacts {
    /// Parses the object's JSON. An invalid field is reported in [`ServiceFacts::broken`], not as an error.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata, spec, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check("Service")?;
        let foreign = [FOREIGN_PROXY, HEADLESS].iter().any(|label| metadata.label(label).is_some());
        let read = if foreign { Ok(None) } else { spec.read(&status) };
        let (spec, broken) = match read {
            Ok(spec) => (spec.map(Box::new), None),
            Err(why) => (None, Some(why.into())),
        };
        Ok(Self {
            key: Arc::new(ObjectKey::new(&metadata.namespace, &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            created: metadata.created(),
            spec,
            broken,
        })
    }
}

impl Spec<'_> {
    fn read(&self, status: &Status<'_>) -> Result<Option<ServiceSpec>, String> {
        let kind = match self.kind.as_ref().map(|kind| &*kind.0) {
            None | Some("ClusterIP") => ServiceType::ClusterIp,
            Some("NodePort") => ServiceType::NodePort,
            Some("LoadBalancer") => ServiceType::LoadBalancer,
            Some("ExternalName") => return Ok(None),
            Some(other) => return Err(format!("spec.type: {} is not a Service type", shortened(other))),
        };
        let cluster_ips: Vec<&Word<'_>> = match &self.cluster_ips {
            Some(many) if !many.is_empty() => many.iter().collect(),
            _ => self.cluster_ip.iter().collect(),
        };
        // Headless, or without an address yet.
        if cluster_ips.iter().any(|ip| ip.0 == "None") || cluster_ips.iter().all(|ip| ip.0.is_empty()) {
            return Ok(None);
        }
        let external = self.external_ips.iter().flatten();
        let ranges = self.load_balancer_source_ranges.iter().flatten();
        let local = |field: &str, policy: &Option<Word<'_>>| match policy.as_ref().map(|policy| &*policy.0) {
            None | Some("" | "Cluster") => Ok(false),
            Some("Local") => Ok(true),
            Some(other) => Err(format!("spec.{field}: {} is neither Cluster nor Local", shortened(other))),
        };
        let spec = ServiceSpec {
            kind,
            cluster_ips: addresses("spec.clusterIPs", cluster_ips.into_iter())?,
            ports: self.read_ports(kind)?,
            external_ips: addresses("spec.externalIPs", external)?,
            ingress_ips: match kind {
                ServiceType::LoadBalancer => status.read_ingress()?,
                // Left over from another type.
                ServiceType::ClusterIp | ServiceType::NodePort => Box::default(),
            },
            source_ranges: ranges
                .enumerate()
                .map(|(index, range)| read_range(index, &range.0))
                .collect::<Result<_, _>>()?,
            affinity: self.read_affinity()?,
            internal_local: local("internalTrafficPolicy", &self.internal_traffic_policy)?,
            external_local: local("externalTrafficPolicy", &self.external_traffic_policy)?,
            publish_not_ready: self.publish_not_ready_addresses.unwrap_or_default(),
            health_check_node_port: match self.health_check_node_port {
                None | Some(0) => None,
                Some(port) => Some(number(format_args!("spec.healthCheckNodePort"), port)?),
            },
        };
        let entries = (spec.external_ips.len() + spec.ingress_ips.len()) * spec.ports.len();
        if entries > MOST_EXTERNAL {
            return Err(format!(
                "spec.externalIPs: external and ingress addresses times ports are {entries} load-balancer entries, more than the \
                 {MOST_EXTERNAL} that one Service may have"
            ));
        }
        Ok(Some(spec))
    }

    fn read_ports(&self, kind: ServiceType) -> Result<Box<[ServicePort]>, String> {
        let (mut numbers, mut node_ports, mut names) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut ports = Vec::new();
        for (index, port) in self.ports.iter().flatten().enumerate() {
            let field = format!("spec.ports[{index}]");
            let name = port.name.as_ref().map_or("", |name| &*name.0);
            let read = ServicePort {
                name: name.into(),
                protocol: Protocol::read(&format!("{field}.protocol"), port.protocol.as_ref().map(|word| &*word.0))?,
                port: number(format_args!("{field}.port"), port.port)?,
                node_port: match port.node_port {
                    None | Some(0) => None,
                    Some(node_port) => Some(number(format_args!("{field}.nodePort"), node_port)?),
                },
            };
            if !numbers.insert((read.protocol, read.port)) {
                return Err(format!("{field}.port: {} {} is a duplicate", read.protocol.name(), read.port));
            }
            if let Some(node_port) = read.node_port.filter(|node_port| !node_ports.insert((read.protocol, *node_port)))
            {
                return Err(format!("{field}.nodePort: {} {node_port} is a duplicate", read.protocol.name()));
            }
            if !names.insert(name) {
                return Err(format!("{field}.name: {} is a duplicate", shortened(name)));
            }
            // A node port left over from another type is not opened.
            let open = kind != ServiceType::ClusterIp;
            ports.push(ServicePort { node_port: read.node_port.filter(|_| open), ..read });
        }
        Ok(ports.into())
    }

    fn read_affinity(&self) -> Result<bool, String> {
        match self.session_affinity.as_ref().map(|word| &*word.0) {
            None | Some("" | "None") => Ok(false),
            Some("ClientIP") => {
                let config = self.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
                match config.and_then(|client| client.timeout_seconds) {
                    Some(seconds) if !(1..=LONGEST_AFFINITY).contains(&seconds) => {
                        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
                        Err(format!("{field}: {seconds} is not between 1 and {LONGEST_AFFINITY}"))
                    }
                    _ => Ok(true),
                }
            }
            Some(other) => Err(format!("spec.sessionAffinity: {} is neither None nor ClientIP", shortened(other))),
        }
    }
}

impl Status<'_> {
    /// Addresses of load balancers with `ipMode: VIP`; with `Proxy`, the load balancer terminates connections itself.
    fn read_ingress(&self) -> Result<Box<[IpAddr]>, String> {
        let mut read: Vec<IpAddr> = Vec::new();
        let ingress = self.load_balancer.iter().flat_map(|balancer| balancer.ingress.iter().flatten());
        for (index, ingress) in ingress.enumerate() {
            let field = format!("status.loadBalancer.ingress[{index}]");
            match ingress.ip_mode.as_ref().map(|mode| &*mode.0) {
                None | Some("" | "VIP") => {}
                Some("Proxy") => continue,
                Some(other) => return Err(format!("{field}.ipMode: {} is neither VIP nor Proxy", shortened(other))),
            }
            let Some(ip) = ingress.ip.as_ref().filter(|ip| !ip.0.is_empty()) else { continue };
            let address = address(format_args!("{field}.ip"), &ip.0)?;
            if !read.contains(&address) {
                read.push(address);
            }
        }
        Ok(read.into())
    }
}

/// A port, never 0.
pub(super) fn number(field: fmt::Arguments<'_>, number: i64) -> Result<u16, String> {
    let read = u16::try_from(number).ok().filter(|port| *port != 0);
    read.ok_or_else(|| format!("{field}: {number} is not a port (1 to 65535)"))
}

fn addresses<'a>(field: &str, words: impl Iterator<Item = &'a Word<'a>>) -> Result<Box<[IpAddr]>, String> {
    let mut read: Vec<IpAddr> = Vec::new();
    for (index, word) in words.enumerate() {
        let address = address(format_args!("{field}[{index}]"), &word.0)?;
        if !read.contains(&address) {
            read.push(address);
        }
    }
    Ok(read.into())
}

/// A unicast address, not of loopback.
pub(super) fn address(field: fmt::Arguments<'_>, text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| format!("{field}: {} is not an IP address", shortened(text)))?;
    let not_unicast = match address {
        IpAddr::V4(four) => four.is_broadcast(),
        IpAddr::V6(six) => six.to_ipv4_mapped().is_some(),
    };
    if not_unicast || address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return Err(format!("{field}: {address} is not a unicast address that other hosts can reach"));
    }
    Ok(address)
}

/// Host bits may be set, as the API allows.
fn read_range(index: usize, text: &str) -> Result<Prefix, String> {
    let text = text.trim();
    let read = text.split_once('/').and_then(|(address, length)| {
        let length = length.parse().ok().filter(|_| length.bytes().all(|byte| byte.is_ascii_digit()))?;
        Prefix::containing(address.parse().ok()?, length).ok()
    });
    read.ok_or_else(|| {
        let field = "spec.loadBalancerSourceRanges";
        format!("{field}[{index}]: {} is not a network such as 192.0.2.0/24", shortened(text))
    })
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value, status: Value) -> ServiceFacts {
        let object =
            json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": spec, "status": status});
        ServiceFacts::parse(&object.to_string()).unwrap()
    }

    #[test]
    fn a_complete_service_is_parsed() {
        let spec = json!({"type": "LoadBalancer", "clusterIP": "172.30.0.7", "clusterIPs": ["172.30.0.7", "fd02::7"],
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "protocol": "UDP", "port": 80}],
            "externalIPs": ["192.0.2.7"], "loadBalancerSourceRanges": ["198.51.100.0/24 "],
            "sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local", "publishNotReadyAddresses": true});
        let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}, {"ip": "192.0.2.9", "ipMode": "Proxy"},
            {"hostname": "example.com"}]}});
        let read = service(spec, status);
        let spec = read.spec.unwrap();
        assert_eq!((spec.cluster_ips.len(), spec.ports.len(), spec.affinity), (2, 2, true));
        assert_eq!((spec.external_local, spec.internal_local, spec.publish_not_ready), (true, false, true));
        assert_eq!(spec.ingress_ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.8"]);
        assert_eq!(spec.ports[0].node_port, Some(30080));
        assert_eq!(spec.source_ranges.len(), 1);
    }

    #[test]
    fn headless_and_foreign_services_have_no_spec() {
        for spec in [
            json!({"type": "ExternalName", "externalName": "example.com"}),
            json!({"clusterIP": "None", "ports": [{"port": 80}]}),
            json!({}),
        ] {
            let read = service(spec, json!({}));
            assert_eq!((read.spec, read.broken), (None, None));
        }
        for label in [FOREIGN_PROXY, HEADLESS] {
            let foreign = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u", "labels": {label: ""}},
                "spec": {"clusterIP": "172.30.0.7", "ports": [{"port": 80}]}});
            assert_eq!(ServiceFacts::parse(&foreign.to_string()).unwrap().spec, None);
        }
    }

    fn many_addresses(count: usize) -> Value {
        (0..count).map(|number| format!("192.0.{}.{}", number / 250, number % 250)).collect::<Vec<_>>().into()
    }

    #[test]
    fn invalid_fields_are_named() {
        let good = json!({"clusterIP": "172.30.0.7", "ports": [{"port": 80}]});
        assert_eq!(service(good.clone(), json!({})).broken, None);
        for (field, value, named) in [
            // The API server's own validation may be off.
            ("type", json!("Odd"), "spec.type"),
            ("clusterIPs", json!(["172.30.0.7", "x"]), "spec.clusterIPs[1]"),
            ("externalIPs", json!(["x"]), "spec.externalIPs[0]"),
            ("externalIPs", many_addresses(MOST_EXTERNAL + 1), "spec.externalIPs"),
            ("ports", json!([{"port": 0}]), "spec.ports[0].port"),
            ("ports", json!([{"port": 70_000}]), "spec.ports[0].port"),
            ("ports", json!([{"port": 80, "nodePort": -1}]), "spec.ports[0].nodePort"),
            ("ports", json!([{"port": 80, "protocol": "ICMP"}]), "spec.ports[0].protocol"),
            ("ports", json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]), "spec.ports[1].port"),
            ("ports", json!([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]), "spec.ports[1].name"),
            ("sessionAffinity", json!("Odd"), "spec.sessionAffinity"),
            ("internalTrafficPolicy", json!("Odd"), "spec.internalTrafficPolicy"),
            ("externalTrafficPolicy", json!("Odd"), "spec.externalTrafficPolicy"),
            ("clusterIPs", json!(["127.0.0.1"]), "spec.clusterIPs[0]"),
            ("clusterIP", json!("0.0.0.0"), "spec.clusterIPs[0]"),
            ("externalIPs", json!(["192.0.2.1", "ff02::1"]), "spec.externalIPs[1]"),
            ("externalIPs", json!(["::ffff:192.0.2.1"]), "spec.externalIPs[0]"),
            (
                "ports",
                json!([{"port": 80, "nodePort": 30000, "name": "a"}, {"port": 81, "nodePort": 30000, "name": "b"}]),
                "spec.ports[1].nodePort",
            ),
            (
                "sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": 86_401}}),
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            ),
            ("loadBalancerSourceRanges", json!(["192.0.2.0/99"]), "spec.loadBalancerSourceRanges[0]"),
            ("loadBalancerSourceRanges", json!(["192.0.2.0/24", "::/0", "x/8"]), "spec.loadBalancerSourceRanges[2]"),
            ("loadBalancerSourceRanges", json!(["192.0.2.0"]), "spec.loadBalancerSourceRanges[0]"),
            ("loadBalancerSourceRanges", json!(["192.0.2.0/+8"]), "spec.loadBalancerSourceRanges[0]"),
        ] {
            let mut spec = good.clone();
            if field == "sessionAffinityConfig" {
                spec["sessionAffinity"] = json!("ClientIP");
            }
            spec[field] = value;
            let why = service(spec, json!({})).broken.unwrap();
            assert!(why.starts_with(&format!("{named}: ")), "{why}");
        }
        let balanced = json!({"type": "LoadBalancer", "clusterIP": "172.30.0.7", "ports": [{"port": 80}]});
        for (ingress, named) in [
            (json!([{"ip": "192.0.2.1"}, {"ip": "x"}]), "status.loadBalancer.ingress[1].ip"),
            (json!([{"ip": "192.0.2.1", "ipMode": "Odd"}]), "status.loadBalancer.ingress[0].ipMode"),
        ] {
            let status = json!({"loadBalancer": {"ingress": ingress}});
            let why = service(balanced.clone(), status.clone()).broken.unwrap();
            assert!(why.starts_with(&format!("{named}: ")), "{why}");
            // Ignored if left over from another type.
            assert_eq!(service(good.clone(), status).broken, None);
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let spec = json!({"clusterIP": "172.30.0.7", "trafficDistribution": "PreferOddNodes", "odd": {"odder": [1]},
            "ports": [{"port": 80, "appProtocol": "odd", "odd": true}]});
        assert_eq!(service(spec, json!({"odd": 7})).broken, None);
    }

    #[test]
    fn host_bits_of_source_ranges_are_ignored() {
        let spec = json!({"type": "LoadBalancer", "clusterIP": "172.30.0.7", "ports": [{"port": 80}],
            "loadBalancerSourceRanges": [" 192.0.2.7/24 ", "2001:db8::7/64"]});
        let ranges: Vec<String> =
            service(spec, json!({})).spec.unwrap().source_ranges.iter().map(ToString::to_string).collect();
        assert_eq!(ranges, ["192.0.2.0/24", "2001:db8::/64"]);
    }
}
