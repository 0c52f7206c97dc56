//! What the node's agent needs to know of a pod.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use cni::Route;
use netmodel::{InterfaceAddress, Mac, Prefix};
use serde::Deserialize;
use topology::identity::PodKey;
use topology::objects::{Annotated, POD_NETWORKS, Protocol};

/// What the node's agent needs to know of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub key: Arc<PodKey>,
    /// Its identity: a pod made again under the same name has another one.
    pub uid: Box<str>,
    /// The identity that kubelet knows it by, if that is another one: a pod of the node's own manifests has only a mirror in
    /// the API.
    pub mirrored: Option<Box<str>>,
    /// The node that it was given to.
    pub node: Box<str>,
    /// Whether it uses its node's network and needs none of ours.
    pub host_network: bool,
    /// Whether all its containers have ended for good.
    pub finished: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The network that was written on it.
    pub network: Annotated<Arc<PodNetwork>>,
    /// The ports of the host that it asks for.
    pub host_ports: Box<[HostPort]>,
}

/// A pod's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetwork {
    /// Its addresses, with the lengths of their networks.
    pub addresses: Box<[InterfaceAddress]>,
    /// Its MAC.
    pub mac: Mac,
    /// Its ways out, one of each family at most.
    pub gateways: Box<[IpAddr]>,
    /// Its routes, beside those by the gateways.
    pub routes: Box<[Route]>,
}

/// A port of the host that leads to one of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The protocol of both.
    pub protocol: Protocol,
    /// The host's address, if it is not all of them.
    pub address: Option<IpAddr>,
    /// The host's port.
    pub host: u16,
    /// The pod's port.
    pub pod: u16,
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

/// The annotations that are kept; the others are skipped.
#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "k8s.ovn.org/pod-networks")]
    networks: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirrored: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Cow<'a, str>,
    host_network: bool,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container<'a> {
    #[serde(borrow)]
    ports: Option<Vec<ContainerPort<'a>>>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerPort<'a> {
    container_port: i64,
    host_port: i64,
    #[serde(rename = "hostIP", borrow)]
    host_address: Option<Cow<'a, str>>,
    #[serde(borrow)]
    protocol: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
}

impl PodFacts {
    /// Reads the object's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata, spec, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if metadata.name.is_empty() || metadata.uid.is_empty() {
            return Err("a Pod without metadata.name or metadata.uid".to_owned());
        }
        let Annotations { networks, mirrored } = metadata.annotations.unwrap_or_default();
        let network = match networks {
            None => Annotated::Absent,
            Some(text) => match PodNetwork::parse(&text) {
                Ok(network) => Annotated::Valid(Arc::new(network)),
                Err(why) => Annotated::Broken(format!("annotation {POD_NETWORKS}: {why}").into()),
            },
        };
        Ok(Self {
            key: Arc::new(PodKey::new(&metadata.namespace, &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            mirrored,
            node: spec.node_name.as_ref().into(),
            host_network: spec.host_network,
            finished: matches!(&*status.phase, "Succeeded" | "Failed"),
            deleting: metadata.deletion_timestamp.is_some(),
            network,
            host_ports: spec.host_ports(),
        })
    }

    /// Whether a runtime that names this identity means this pod.
    pub fn is(&self, uid: &str) -> bool {
        *self.uid == *uid || self.mirrored.as_deref() == Some(uid)
    }
}

impl Spec<'_> {
    fn host_ports(&self) -> Box<[HostPort]> {
        // The runtime itself opens those of pods in the host's network.
        if self.host_network {
            return Box::default();
        }
        let sidecar = |container: &&Container<'_>| container.restart_policy.as_deref() == Some("Always");
        let sidecars = self.init_containers.iter().flatten().filter(sidecar);
        let ports = self.containers.iter().flatten().chain(sidecars).flat_map(|one| one.ports.iter().flatten());
        let number = |port: i64| u16::try_from(port).ok().filter(|port| *port > 0);
        let wanted = ports.filter_map(|port| {
            let address: Option<IpAddr> = port.host_address.as_deref().and_then(|text| text.parse().ok());
            Some(HostPort {
                protocol: port.protocol.as_deref().map_or(Some(Protocol::Tcp), Protocol::parse)?,
                address: address.filter(|address| !address.is_unspecified()),
                host: number(port.host_port)?,
                pod: number(port.container_port)?,
            })
        });
        let mut wanted: Vec<HostPort> = wanted.collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.into()
    }
}

#[derive(Deserialize)]
struct Networks {
    default: Network,
}

#[derive(Deserialize)]
struct Network {
    #[serde(default)]
    ip_addresses: Vec<String>,
    #[serde(default)]
    ip_address: Option<String>,
    mac_address: String,
    #[serde(default)]
    gateway_ips: Vec<String>,
    #[serde(default)]
    gateway_ip: Option<String>,
    #[serde(default)]
    routes: Vec<NetworkRoute>,
}

#[derive(Deserialize)]
struct NetworkRoute {
    dest: String,
    #[serde(rename = "nextHop", default)]
    next_hop: String,
}

impl PodNetwork {
    /// Reads the annotation.
    fn parse(text: &str) -> Result<Self, String> {
        let Networks { default: network } =
            serde_json::from_str(text).map_err(|error| format!("it is not JSON with a usable \"default\": {error}"))?;
        let mac: Mac = network.mac_address.parse().map_err(|error| format!("mac_address: {error}"))?;
        if !mac.is_usable() {
            return Err(format!("mac_address: {mac} is of no interface"));
        }
        let addresses = either(network.ip_addresses, network.ip_address);
        let addresses: Vec<InterfaceAddress> = read("ip_addresses", &addresses)?;
        if addresses.is_empty() {
            return Err("ip_addresses is empty".to_owned());
        }
        let gateways: Vec<IpAddr> = read("gateway_ips", &either(network.gateway_ips, network.gateway_ip))?;
        let mut routes = Vec::with_capacity(network.routes.len());
        for NetworkRoute { dest, next_hop } in &network.routes {
            let to: Prefix = dest.parse().map_err(|error| format!("routes: dest {dest:?}: {error}"))?;
            let by: Option<IpAddr> = match next_hop.as_str() {
                "" => None,
                text => Some(text.parse().map_err(|_| format!("routes: nextHop {text:?} is not an IP address"))?),
            };
            if by.is_some_and(|by| by.is_ipv6() != to.is_ipv6()) {
                return Err(format!("routes: {dest} by {next_hop}: they are of different families"));
            }
            routes.push(Route { to, by });
        }
        Ok(Self { addresses: addresses.into(), mac, gateways: gateways.into(), routes: routes.into() })
    }

    /// The pod's way out for an address.
    pub fn gateway_of(&self, address: InterfaceAddress) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv6() == address.address().is_ipv6())
    }

    /// All routes of the pod: those by the gateways, then those that are written.
    pub fn all_routes(&self) -> Vec<Route> {
        let everywhere = |gateway: &IpAddr| {
            let any: IpAddr = if gateway.is_ipv6() {
                std::net::Ipv6Addr::UNSPECIFIED.into()
            } else {
                std::net::Ipv4Addr::UNSPECIFIED.into()
            };
            Prefix::new(any, 0).ok().map(|to| Route { to, by: Some(*gateway) })
        };
        self.gateways.iter().filter_map(everywhere).chain(self.routes.iter().copied()).collect()
    }
}

/// Who knows one family only wrote a single value.
fn either(many: Vec<String>, one: Option<String>) -> Vec<String> {
    if many.is_empty() { one.into_iter().collect() } else { many }
}

fn read<T: std::str::FromStr<Err: std::fmt::Display>>(key: &str, texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse().map_err(|error| format!("{key}: {text:?}: {error}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotation: &str, spec: &str) -> PodFacts {
        let annotation = serde_json::to_string(annotation).unwrap();
        PodFacts::parse(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u-1","annotations":{{"x":"y","{POD_NETWORKS}":{annotation}}}}},
            "spec":{{"nodeName":"n1"{spec}}},"status":{{"phase":"Running"}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn the_network_is_read_with_gateways_and_routes() {
        let text = r#"{"default":{"ip_addresses":["10.130.0.5/23","fd01::5/64"],"mac_address":"0a:58:0a:82:00:05",
            "gateway_ips":["10.130.0.1","fd01::1"],"routes":[{"dest":"10.128.0.0/14","nextHop":"10.130.0.1"}]}}"#;
        let Annotated::Valid(network) = pod(text, "").network else { panic!() };
        let routes: Vec<String> = network.all_routes().iter().map(|route| route.to.to_string()).collect();
        assert_eq!(routes, ["0.0.0.0/0", "::/0", "10.128.0.0/14"]);
        assert_eq!(network.gateway_of(network.addresses[1]), Some("fd01::1".parse().unwrap()));
    }

    #[test]
    fn a_mirror_is_known_by_both_identities() {
        let text = r#"{"metadata":{"name":"p","uid":"u-1","annotations":{"kubernetes.io/config.mirror":"h-1"}}}"#;
        let facts = PodFacts::parse(text).unwrap();
        assert_eq!((facts.is("u-1"), facts.is("h-1"), facts.is("u-2")), (true, true, false));
    }

    #[test]
    fn what_is_wrong_in_it_is_told() {
        for (text, word) in [
            ("x", "JSON"),
            (r#"{"default":{"mac_address":"0a:58:0a:82:00:05"}}"#, "ip_addresses"),
            (r#"{"default":{"ip_address":"10.0.0.1/24","mac_address":"1"}}"#, "mac_address"),
            (r#"{"default":{"ip_address":"10.0.0.1/24","mac_address":"01:00:5e:00:00:01"}}"#, "of no interface"),
            (r#"{"default":{"ip_address":"10.0.0.1","mac_address":"0a:58:0a:82:00:05"}}"#, "ip_addresses"),
            (
                r#"{"default":{"ip_address":"10.0.0.1/24","mac_address":"0a:58:0a:82:00:05","routes":[{"dest":"10.0.0.0/8","nextHop":"fd01::1"}]}}"#,
                "families",
            ),
        ] {
            let facts = pod(text, "");
            assert!(facts.network.broken().is_some_and(|why| why.contains(word)), "{text}: {:?}", facts.network);
        }
    }

    #[test]
    fn host_ports_are_those_of_containers_that_stay() {
        let facts = pod(
            "x",
            r#","containers":[{"ports":[{"containerPort":80,"hostPort":8080},{"containerPort":9}]}],
            "initContainers":[{"ports":[{"containerPort":1,"hostPort":1}]},
            {"restartPolicy":"Always","ports":[{"containerPort":53,"hostPort":5353,"protocol":"UDP","hostIP":"10.0.0.1"}]}]"#,
        );
        let ports: Vec<_> =
            facts.host_ports.iter().map(|port| (port.protocol, port.address, port.host, port.pod)).collect();
        assert_eq!(
            ports,
            [(Protocol::Tcp, None, 8080, 80), (Protocol::Udp, Some("10.0.0.1".parse().unwrap()), 5353, 53)]
        );
    }
}
