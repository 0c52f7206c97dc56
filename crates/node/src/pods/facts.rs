//! What the node's agent needs to know of a pod.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use cni::Route;
use netmodel::{InterfaceAddress, Mac, Prefix};
use serde::Deserialize;
use topology::identity::PodKey;
use topology::objects::{
    Annotated, Containers, HostPort, Mirror, NETWORK_ALLOCATED, PodStatus, default_network, host_ports, one_or_many,
    standing_ports,
};

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
    /// When it was created.
    pub created: Box<str>,
    /// The network that the controller recorded for it. What else is written on the pod may be anybody's.
    pub network: Annotated<Arc<PodNetwork>>,
    /// Whether an annotation names a network that the controller did not record.
    pub unrecorded: bool,
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

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: Spec<'a>,
    #[serde(borrow, default)]
    status: PodStatus<'a>,
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
    creation_timestamp: Cow<'a, str>,
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
    containers: Containers<'a>,
    #[serde(borrow)]
    init_containers: Containers<'a>,
}

impl PodFacts {
    /// Reads the object's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata, spec, status } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if metadata.name.is_empty() || metadata.uid.is_empty() {
            return Err("a Pod without metadata.name or metadata.uid".to_owned());
        }
        let Annotations { networks, mirrored } = metadata.annotations.unwrap_or_default();
        let (recorded, mirror) = status.recorded(networks.as_deref());
        let network = match recorded {
            None => Annotated::Absent,
            Some(text) => match PodNetwork::parse(text) {
                Ok(network) => Annotated::Valid(Arc::new(network)),
                Err(why) => Annotated::Broken(format!("status condition {NETWORK_ALLOCATED}: {why}").into()),
            },
        };
        let unrecorded = recorded.is_none() && mirror != Mirror::Absent;
        let ports = standing_ports(&spec.containers, &spec.init_containers);
        Ok(Self {
            key: Arc::new(PodKey::new(&metadata.namespace, &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            mirrored,
            node: spec.node_name.as_ref().into(),
            host_network: spec.host_network,
            finished: matches!(&*status.phase, "Succeeded" | "Failed"),
            deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp.as_ref().into(),
            network,
            unrecorded,
            host_ports: host_ports(spec.host_network, ports),
        })
    }

    /// Whether a runtime that names this identity means this pod.
    pub fn is(&self, uid: &str) -> bool {
        *self.uid == *uid || self.mirrored.as_deref() == Some(uid)
    }
}

/// What the annotation says of ways out; the addresses are read as the controller reads them.
#[derive(Deserialize)]
struct Ways {
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
        let topology::objects::PodNetwork { addresses, mac } = topology::objects::PodNetwork::read(text)?;
        if !mac.is_usable() {
            return Err(format!("mac_address: {mac} is of no interface"));
        }
        let ways: Ways = default_network(text)?;
        let mut gateways: Vec<IpAddr> = Vec::new();
        for text in one_or_many(ways.gateway_ip, ways.gateway_ips) {
            gateways.push(text.parse().map_err(|_| format!("gateway_ips: {text:?} is not an IP address"))?);
        }
        let mut routes = Vec::with_capacity(ways.routes.len());
        for NetworkRoute { dest, next_hop } in &ways.routes {
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
        Ok(Self { addresses, mac, gateways: gateways.into(), routes: routes.into() })
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use topology::objects::{POD_NETWORKS, network_condition};

    use super::*;

    fn parsed(annotation: &str, spec: &str, status: &Value) -> PodFacts {
        let annotation = serde_json::to_string(annotation).unwrap();
        PodFacts::parse(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u-1","annotations":{{"x":"y","{POD_NETWORKS}":{annotation}}}}},
            "spec":{{"nodeName":"n1"{spec}}},"status":{status}}}"#
        ))
        .unwrap()
    }

    /// A pod whose annotation the controller recorded.
    fn pod(annotation: &str, spec: &str) -> PodFacts {
        parsed(annotation, spec, &json!({"phase": "Running", "conditions": [network_condition(annotation)]}))
    }

    #[test]
    fn only_what_the_controller_recorded_is_a_network() {
        let network = |last: u8| {
            json!({"default": {"ip_addresses": [format!("10.130.0.{last}/23")], "mac_address": format!("0a:58:0a:82:00:0{last}")}})
                .to_string()
        };
        let claimed = parsed(&network(9), "", &json!({"phase": "Pending"}));
        assert_eq!((&claimed.network, claimed.unrecorded), (&Annotated::Absent, true));
        let edited = parsed(&network(9), "", &json!({"conditions": [network_condition(&network(5))]}));
        let Annotated::Valid(found) = &edited.network else { panic!("{:?}", edited.network) };
        assert_eq!((found.addresses[0].to_string().as_str(), edited.unrecorded), ("10.130.0.5/23", false));
        // It runs since an older controller, which recorded nothing.
        let older = parsed(&network(5), "", &json!({"podIPs": [{"ip": "10.130.0.5"}]}));
        assert_eq!((&older.network, older.unrecorded), (&edited.network, false));
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
            let why = PodNetwork::parse(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
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
        let ports: Vec<_> = facts
            .host_ports
            .iter()
            .map(|port| (port.protocol.name(), port.host, port.container, &*port.address))
            .collect();
        assert_eq!(ports, [("TCP", 8080, 80, ""), ("UDP", 5353, 53, "10.0.0.1")]);
        assert_eq!(
            pod("x", r#","hostNetwork":true,"containers":[{"ports":[{"containerPort":8,"hostPort":8}]}]"#).host_ports,
            [].into()
        );
    }
}
