//! Pods, as the controller needs them.

use std::borrow::Cow;
use std::sync::Arc;

use netmodel::{InterfaceAddress, Mac};
use serde::Deserialize;

use super::annotation::{POD_NETWORKS, default_network, shortened};
use super::container::{ContainerPort, Containers, Port, host_ports, long_running_ports, named_ports};
use super::pod_options::{EGRESS_BANDWIDTH, INGRESS_BANDWIDTH};
use super::{Annotated, AnnotationState, HostPort, Labels, Metadata, PodOptions, PodStatus, Rate, StaticRequest};
use crate::{Name, PodKey};

/// Requests addresses and a MAC, as a network attachment of the default network.
const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";

/// A Pod, as the controller needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Unique at one time; a later pod may have the same.
    pub key: Arc<PodKey>,
    /// Tells pods apart that had the same name one after the other.
    pub uid: Name,
    /// None until it is scheduled.
    pub node: Option<Name>,
    /// Whether it uses the network of its node, and gets no port.
    pub host_network: bool,
    /// Whether all its containers have ended for good.
    pub finished: bool,
    /// `creationTimestamp`; compares as time does.
    pub created: Box<str>,
    /// From the status, which only controllers and kubelets write; see [`AnnotationState`].
    pub network: Option<PodNetwork>,
    /// How its annotation compares with `network`.
    pub annotation: AnnotationState,
    /// None for most pods.
    pub options: Option<Box<PodOptions>>,
    /// One copy is shared by all pods with the same labels.
    pub labels: Labels,
    /// Only those with names, which policies and Services can refer to.
    pub ports: Box<[ContainerPort]>,
}

/// A pod's addresses, as its annotation has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetwork {
    /// With the prefix lengths of the node's subnets; at least one.
    pub addresses: Box<[InterfaceAddress]>,
    /// Of the pod's end; unique in the cluster.
    pub mac: Mac,
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    ip_addresses: Vec<String>,
    #[serde(default)]
    ip_address: Option<String>,
    mac_address: String,
}

impl PodNetwork {
    /// Parses the annotation's value.
    pub fn read(text: &str) -> Result<Self, String> {
        let network: Written = default_network(text)?;
        let mac: Mac = network.mac_address.parse().map_err(|error| format!("mac_address: {error}"))?;
        let texts = one_or_many(network.ip_address, network.ip_addresses);
        let mut addresses: Vec<InterfaceAddress> = Vec::with_capacity(texts.len());
        for text in &texts {
            addresses.push(text.parse().map_err(|error| format!("ip_addresses: {error}"))?);
        }
        if addresses.is_empty() {
            return Err("ip_addresses is empty".into());
        }
        Ok(Self { addresses: addresses.into(), mac })
    }
}

/// Old controllers wrote only the singular field.
pub(super) fn one_or_many(one: Option<String>, many: Vec<String>) -> Vec<String> {
    if many.is_empty() { one.into_iter().collect() } else { many }
}

/// A Pod as the API sends it: the one deserializer of [`PodFacts`] and [`LocalPodFacts`](super::LocalPodFacts).
#[derive(Deserialize)]
pub(super) struct Object<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow, default)]
    pub(super) spec: Spec<'a>,
    #[serde(borrow, default)]
    pub(super) status: PodStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub(super) node_name: Cow<'a, str>,
    pub(super) host_network: bool,
    #[serde(borrow)]
    containers: Containers<'a>,
    #[serde(borrow)]
    init_containers: Containers<'a>,
}

impl<'a> Object<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, String> {
        let object: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        object.metadata.check("Pod")?;
        Ok(object)
    }

    pub(super) fn key(&self) -> Arc<PodKey> {
        Arc::new(PodKey::new(&self.metadata.namespace, &self.metadata.name))
    }

    /// Whether all its containers have ended for good.
    pub(super) fn is_finished(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// The recorded network as text, and how the annotation compares with it.
    pub(super) fn recorded(&self) -> (Option<&str>, AnnotationState) {
        self.status.recorded(self.metadata.annotation(POD_NETWORKS))
    }

    /// The ports of its node that lead to it, in order; none with `hostNetwork`, where containers bind them themselves.
    pub(super) fn host_ports(&self) -> Box<[HostPort]> {
        host_ports(self.spec.host_network, self.ports())
    }

    fn ports(&self) -> impl Iterator<Item = &Port<'_>> {
        long_running_ports(&self.spec.containers, &self.spec.init_containers)
    }
}

impl PodFacts {
    /// Parses the object's JSON. An invalid annotation is [`Annotated::Broken`], not an error.
    pub fn parse(json: &str) -> Result<Self, String> {
        let object = Object::read(json)?;
        let (recorded, annotation) = object.recorded();
        let metadata = &object.metadata;
        Ok(Self {
            key: object.key(),
            uid: metadata.uid.as_ref().into(),
            node: (!object.spec.node_name.is_empty()).then(|| object.spec.node_name.as_ref().into()),
            host_network: object.spec.host_network,
            finished: object.is_finished(),
            created: metadata.created(),
            network: recorded.and_then(|text| PodNetwork::read(text).ok()),
            annotation,
            options: PodOptions {
                request: metadata.annotated(DEFAULT_NETWORK, read_request),
                ingress: metadata.annotated(INGRESS_BANDWIDTH, Rate::read),
                egress: metadata.annotated(EGRESS_BANDWIDTH, Rate::read),
                host_ports: object.host_ports(),
            }
            .boxed_if_any(),
            ports: named_ports(object.ports()),
            labels: object.metadata.labels,
        })
    }

    /// Whether nothing but the recorded network and the annotation differs.
    pub fn differs_in_network_only(&self, other: &Self) -> bool {
        // All fields are named, so that a new one is not forgotten here.
        let Self { key, uid, node, host_network, finished, created, network: _, annotation: _, options, labels, ports } =
            self;
        (key, uid, node, host_network) == (&other.key, &other.uid, &other.node, &other.host_network)
            && (finished, created, options) == (&other.finished, &other.created, &other.options)
            && (labels, ports) == (&other.labels, &other.ports)
    }

    /// Whether its network is recorded, and its annotation is equal to the record.
    pub fn is_recorded(&self) -> bool {
        self.network.is_some() && self.annotation == AnnotationState::Same
    }

    /// The static addresses that it requests.
    pub fn request(&self) -> &Annotated<StaticRequest> {
        static NONE: Annotated<StaticRequest> = Annotated::Absent;
        self.options.as_ref().map_or(&NONE, |options| &options.request)
    }

    /// Ports of its node that lead to it.
    pub fn host_ports(&self) -> &[HostPort] {
        self.options.as_ref().map_or(&[], |options| &options.host_ports)
    }

    /// The node on whose switch it needs a port; none if it needs no port (yet).
    pub fn wants_port(&self) -> Option<&Name> {
        if self.host_network || self.finished { None } else { self.node.as_ref() }
    }
}

#[derive(Deserialize)]
struct Attachment {
    #[serde(default)]
    ips: Vec<String>,
    #[serde(default)]
    mac: Option<String>,
}

/// A list of one attachment, or an attachment's name, which requests nothing.
fn read_request(text: &str) -> Result<StaticRequest, String> {
    if text.trim_start().starts_with('{') {
        return Err(format!("{} is not a list of network attachments: enclose it in brackets", shortened(text)));
    }
    if !text.trim_start().starts_with('[') {
        return Ok(StaticRequest::default());
    }
    let attachments: Vec<Attachment> = serde_json::from_str(text)
        .map_err(|error| format!("{} is not a list of network attachments: {error}", shortened(text)))?;
    let Some(first) = attachments.first() else { return Ok(StaticRequest::default()) };
    let mut addresses = Vec::new();
    for ip in &first.ips {
        let bare = ip.split_once('/').map_or(ip.as_str(), |(address, _)| address);
        addresses.push(bare.parse().map_err(|_| format!("ips: {} is not an IP address", shortened(ip)))?);
    }
    let mac = first.mac.as_deref().filter(|mac| !mac.is_empty()).map(str::parse).transpose();
    Ok(StaticRequest { addresses: addresses.into(), mac: mac.map_err(|error| format!("mac: {error}"))? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Protocol, network_condition};

    fn parse(metadata: &str, spec: &str, phase: &str) -> PodFacts {
        PodFacts::parse(&format!(
            r#"{{"kind":"Pod","metadata":{{"name":"p","namespace":"ns","uid":"u-1",
            "creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{{"f":{{}}}}]{metadata}}},
            "spec":{{{spec}}},"status":{{"phase":"{phase}","podIP":"1.2.3.4"}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn only_running_scheduled_pods_want_a_port() {
        let pod = parse("", r#""nodeName":"n1","containers":[{"name":"c"}]"#, "Running");
        assert_eq!(pod.wants_port().map(AsRef::as_ref), Some("n1"));
        assert_eq!((&pod.network, pod.annotation), (&None, AnnotationState::Absent));
        assert_eq!(parse("", r#""nodeName":"n1""#, "Succeeded").wants_port(), None);
        assert_eq!(parse("", r#""nodeName":"n1","hostNetwork":true"#, "Running").wants_port(), None);
        assert_eq!(parse("", "", "Pending").wants_port(), None);
    }

    #[test]
    fn labels_and_named_ports_are_parsed() {
        let pod = parse(
            r#","labels":{"b":"2","a":"1"}"#,
            r#""containers":[{"ports":[{"name":"http","containerPort":8080},{"containerPort":9}]}],
            "initContainers":[{"ports":[{"name":"once","containerPort":1}]},
                {"restartPolicy":"Always","ports":[{"name":"side","protocol":"UDP","containerPort":53}]}]"#,
            "Running",
        );
        assert_eq!((pod.labels.get("a"), pod.labels.get("b"), pod.labels.get("c")), (Some("1"), Some("2"), None));
        let ports: Vec<_> = pod.ports.iter().map(|port| (&*port.name, port.protocol, port.number)).collect();
        assert_eq!(ports, [("http", Protocol::Tcp, 8080), ("side", Protocol::Udp, 53)]);
    }

    #[test]
    fn an_invalid_address_request_is_broken() {
        let annotation = |key: &str, value: &str| {
            parse(&format!(r#","annotations":{{"{key}":{}}}"#, serde_json::to_string(value).unwrap()), "", "Pending")
        };
        let asked = annotation(
            DEFAULT_NETWORK,
            r#"[{"name":"default","ips":["10.130.0.9/23","fd01::9"],"mac":"0a:58:00:00:00:01"}]"#,
        );
        let Annotated::Valid(request) = asked.request() else { panic!() };
        assert_eq!((request.addresses.len(), request.mac.is_some()), (2, true));
        assert!(matches!(annotation(DEFAULT_NETWORK, r#"[{"ips":["x"]}]"#).request(), Annotated::Broken(_)));
        assert_eq!(annotation(DEFAULT_NETWORK, "ovn/default").request(), &Annotated::Valid(StaticRequest::default()));
    }

    #[test]
    fn the_network_comes_from_the_status_not_the_annotation() {
        let text = r#"{"default":{"ip_addresses":["10.130.0.5/23"],"mac_address":"0a:58:0a:82:00:05"}}"#;
        let object = |status: serde_json::Value| {
            let metadata = json!({"name": "p", "namespace": "ns", "uid": "u-1", "annotations": {POD_NETWORKS: text}});
            PodFacts::parse(&json!({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}).to_string())
        };
        let claimed = object(json!({"phase": "Pending"})).unwrap();
        assert_eq!(
            (&claimed.network, claimed.annotation, claimed.is_recorded()),
            (&None, AnnotationState::Unrecorded, false)
        );
        let given = object(json!({"phase": "Pending", "conditions": [network_condition(text)]})).unwrap();
        assert_eq!(given.network.as_ref().unwrap().addresses[0].to_string(), "10.130.0.5/23");
        assert!(given.is_recorded() && given.differs_in_network_only(&claimed));
    }

    #[test]
    fn pods_without_options_allocate_none() {
        let plain = parse("", r#""nodeName":"n1","containers":[{"ports":[{"containerPort":80}]}]"#, "Running");
        assert_eq!((&plain.options, plain.host_ports()), (&None, [].as_slice()));
        assert_eq!(std::mem::size_of_val(&plain.options), std::mem::size_of::<usize>());
    }

    #[test]
    fn host_ports_are_parsed() {
        let ports = r#""containers":[{"ports":[{"containerPort":80,"hostPort":8080},
            {"containerPort":53,"hostPort":53,"protocol":"UDP","hostIP":"192.0.2.1"},{"containerPort":9},
            {"containerPort":1,"hostPort":0},{"containerPort":1,"hostPort":70000}]}]"#;
        let pod = parse("", ports, "Running");
        let read: Vec<_> =
            pod.host_ports().iter().map(|port| (port.protocol, port.host, port.container, &*port.address)).collect();
        assert_eq!(read, [(Protocol::Tcp, 8080, 80, ""), (Protocol::Udp, 53, 53, "192.0.2.1")]);
        let on_host = parse("", &format!(r#""hostNetwork":true,{ports}"#), "Running");
        assert!(on_host.host_ports().is_empty(), "its containers bind the ports themselves");
    }

    #[test]
    fn an_invalid_bandwidth_is_broken() {
        let annotations =
            r#","annotations":{"kubernetes.io/ingress-bandwidth":"10M","kubernetes.io/egress-bandwidth":"x"}"#;
        let options = parse(annotations, "", "Running").options.unwrap();
        assert_eq!(options.ingress, Annotated::Valid(Rate(10_000)));
        let why = options.egress.broken().unwrap();
        assert!(why.starts_with("annotation kubernetes.io/egress-bandwidth: \"x\" is not a bandwidth"), "{why}");
    }

    #[test]
    fn a_pod_without_uid_is_an_error() {
        assert!(PodFacts::parse(r#"{"metadata":{}}"#).is_err());
        assert!(PodFacts::parse("[]").is_err());
    }
}
