//! Pods, as the agent of their node needs them: what the CNI server configures, and host ports.

use std::net::IpAddr;
use std::sync::Arc;

use netmodel::{Family, InterfaceAddress, Mac, Prefix};
use serde::Deserialize;

use super::annotation::default_network;
use super::pod::{Object, one_or_many};
use super::{Annotated, AnnotationState, HostPort, NETWORK_ALLOCATED, PodKey, PodNetwork};

/// On the API's copy of a static pod: the UID under which kubelet and the runtime know it.
pub(super) const STATIC_POD_UID: &str = "kubernetes.io/config.mirror";

/// A Pod, as the agent of its node needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPodFacts {
    /// Unique at one time; a later pod may have the same.
    pub key: Arc<PodKey>,
    /// Tells pods apart that had the same name one after the other.
    pub uid: Box<str>,
    /// The UID under which kubelet knows a static pod, which has only a copy in the API.
    pub static_uid: Option<Box<str>>,
    /// Empty until it is scheduled.
    pub node: Box<str>,
    /// Whether it uses the network of its node, and needs no interface.
    pub host_network: bool,
    /// Whether all its containers have ended for good.
    pub finished: bool,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// `creationTimestamp`; compares as time does.
    pub created: Box<str>,
    /// From the status, which only controllers and kubelets write.
    pub network: Annotated<Arc<PodInterface>>,
    /// Whether it has an annotation that the controller did not record.
    pub unrecorded: bool,
    /// Sorted, without duplicates.
    pub host_ports: Box<[HostPort]>,
}

/// How the interface of a pod is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInterface {
    /// With the prefix lengths of the node's subnets; at least one.
    pub addresses: Box<[InterfaceAddress]>,
    /// A unicast address.
    pub mac: Mac,
    /// Next hops of the default routes, one of each family at most.
    pub gateways: Box<[IpAddr]>,
    /// In addition to the default routes.
    pub routes: Box<[PodRoute]>,
}

/// A route of `pod-networks` besides the default ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRoute {
    /// `0.0.0.0/0` or `::/0` for a default route.
    pub destination: Prefix,
    /// Next hop; none if the destination is on the link.
    pub via: Option<IpAddr>,
}

impl LocalPodFacts {
    /// Parses the object's JSON. An invalid network is [`Annotated::Broken`], not an error.
    pub fn parse(json: &str) -> Result<Self, String> {
        let object = Object::read(json)?;
        let (recorded, annotation) = object.recorded();
        let network = match recorded.map(PodInterface::read) {
            None => Annotated::Absent,
            Some(Ok(network)) => Annotated::Valid(Arc::new(network)),
            Some(Err(why)) => Annotated::Broken(format!("status condition {NETWORK_ALLOCATED}: {why}").into()),
        };
        let metadata = &object.metadata;
        Ok(Self {
            key: object.key(),
            uid: metadata.uid.as_ref().into(),
            static_uid: metadata.annotation(STATIC_POD_UID).map(Into::into),
            node: object.spec.node_name.as_ref().into(),
            host_network: object.spec.host_network,
            finished: object.is_finished(),
            deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.created(),
            network,
            unrecorded: recorded.is_none() && annotation != AnnotationState::Absent,
            host_ports: object.host_ports(),
        })
    }

    /// Whether a runtime that names this UID means this pod.
    pub fn has_uid(&self, uid: &str) -> bool {
        *self.uid == *uid || self.static_uid.as_deref() == Some(uid)
    }
}

/// The fields of the annotation besides addresses and MAC.
#[derive(Deserialize)]
struct Routing {
    #[serde(default)]
    gateway_ips: Vec<String>,
    #[serde(default)]
    gateway_ip: Option<String>,
    #[serde(default)]
    routes: Vec<Route>,
}

#[derive(Deserialize)]
struct Route {
    dest: String,
    #[serde(rename = "nextHop", default)]
    next_hop: String,
}

impl Route {
    fn read(&self) -> Result<PodRoute, String> {
        let Self { dest, next_hop } = self;
        let destination: Prefix = dest.parse().map_err(|error| format!("routes: dest {dest:?}: {error}"))?;
        let via: Option<IpAddr> = match next_hop.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| format!("routes: nextHop {text:?} is not an IP address"))?),
        };
        if via.is_some_and(|via| !destination.family().matches(via)) {
            return Err(format!("routes: {dest} and its nextHop {next_hop} are of different families"));
        }
        Ok(PodRoute { destination, via })
    }
}

impl PodInterface {
    fn read(text: &str) -> Result<Self, String> {
        let PodNetwork { addresses, mac } = PodNetwork::read(text)?;
        if !mac.is_usable() {
            return Err(format!("mac_address: {mac} cannot be the address of an interface"));
        }
        let routing: Routing = default_network(text)?;
        let gateway =
            |text: String| text.parse::<IpAddr>().map_err(|_| format!("gateway_ips: {text:?} is not an IP address"));
        let gateways = one_or_many(routing.gateway_ip, routing.gateway_ips).into_iter().map(gateway);
        Ok(Self {
            addresses,
            mac,
            gateways: gateways.collect::<Result<_, _>>()?,
            routes: routing.routes.iter().map(Route::read).collect::<Result<_, _>>()?,
        })
    }

    /// The gateway of the address's family.
    pub fn gateway_of(&self, address: InterfaceAddress) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| Family::of(*gateway) == Family::of(address.address()))
    }

    /// The default routes, then the others.
    pub fn all_routes(&self) -> impl Iterator<Item = PodRoute> + '_ {
        let default = |gateway: &IpAddr| {
            let destination = Prefix::containing(*gateway, 0).ok()?;
            Some(PodRoute { destination, via: Some(*gateway) })
        };
        self.gateways.iter().filter_map(default).chain(self.routes.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{POD_NETWORKS, network_condition};

    fn parsed(annotation: &str, spec: &str, status: &Value) -> LocalPodFacts {
        let annotation = serde_json::to_string(annotation).unwrap();
        LocalPodFacts::parse(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u-1","annotations":{{"x":"y","{POD_NETWORKS}":{annotation}}}}},
            "spec":{{"nodeName":"n1"{spec}}},"status":{status}}}"#
        ))
        .unwrap()
    }

    /// A pod whose annotation the controller recorded.
    fn pod(annotation: &str, spec: &str) -> LocalPodFacts {
        parsed(annotation, spec, &json!({"phase": "Running", "conditions": [network_condition(annotation)]}))
    }

    #[test]
    fn the_network_comes_from_the_status_not_the_annotation() {
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
    fn gateways_and_routes_are_parsed() {
        let text = r#"{"default":{"ip_addresses":["10.130.0.5/23","fd01::5/64"],"mac_address":"0a:58:0a:82:00:05",
            "gateway_ips":["10.130.0.1","fd01::1"],"routes":[{"dest":"10.128.0.0/14","nextHop":"10.130.0.1"}]}}"#;
        let Annotated::Valid(network) = pod(text, "").network else { panic!() };
        let routes: Vec<String> = network.all_routes().map(|route| route.destination.to_string()).collect();
        assert_eq!(routes, ["0.0.0.0/0", "::/0", "10.128.0.0/14"]);
        assert_eq!(network.gateway_of(network.addresses[1]), Some("fd01::1".parse().unwrap()));
    }

    #[test]
    fn a_static_pod_has_both_uids() {
        let text = r#"{"metadata":{"name":"p","uid":"u-1","annotations":{"kubernetes.io/config.mirror":"h-1"}}}"#;
        let facts = LocalPodFacts::parse(text).unwrap();
        assert_eq!((facts.has_uid("u-1"), facts.has_uid("h-1"), facts.has_uid("u-2")), (true, true, false));
    }

    #[test]
    fn errors_name_the_field() {
        for (text, word) in [
            ("x", "JSON"),
            (r#"{"default":{"mac_address":"0a:58:0a:82:00:05"}}"#, "ip_addresses"),
            (r#"{"default":{"ip_address":"10.0.0.1/24","mac_address":"1"}}"#, "mac_address"),
            (
                r#"{"default":{"ip_address":"10.0.0.1/24","mac_address":"01:00:5e:00:00:01"}}"#,
                "cannot be the address of an interface",
            ),
            (r#"{"default":{"ip_address":"10.0.0.1","mac_address":"0a:58:0a:82:00:05"}}"#, "ip_addresses"),
            (
                r#"{"default":{"ip_address":"10.0.0.1/24","mac_address":"0a:58:0a:82:00:05","gateway_ip":"x"}}"#,
                "gateway_ips",
            ),
            (
                r#"{"default":{"ip_address":"10.0.0.1/24","mac_address":"0a:58:0a:82:00:05","routes":[{"dest":"10.0.0.0/8","nextHop":"fd01::1"}]}}"#,
                "families",
            ),
        ] {
            let why = PodInterface::read(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn host_ports_are_those_of_long_running_containers() {
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
