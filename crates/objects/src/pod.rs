//! What we need to know of a Pod.

use std::borrow::Cow;
use std::sync::Arc;

use netmodel::{InterfaceAddress, Mac};
use serde::Deserialize;

use super::annotation::{POD_NETWORKS, default_network, shortened};
use super::container::{ContainerPort, Containers, host_ports, named_ports, standing_ports};
use super::wishes::{EGRESS_BANDWIDTH, INGRESS_BANDWIDTH};
use super::{Annotated, HostPort, Labels, Metadata, Mirror, PodStatus, Rate, StaticRequest, Wishes};
use crate::{Name, PodKey};

/// A request for addresses, as the network attachment of the default network says it.
const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";

/// What we need to know of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub key: Arc<PodKey>,
    /// Its identity: a pod made again under the same name has another one.
    pub uid: Name,
    /// The node that it was given to.
    pub node: Option<Name>,
    /// Whether it uses its node's network and needs none of ours.
    pub host_network: bool,
    /// Whether all its containers have ended for good.
    pub finished: bool,
    /// When it was created.
    pub created: Box<str>,
    /// The network that the controller recorded for it. Never what somebody merely wrote on it.
    pub network: Option<PodNetwork>,
    /// How its annotation stands to that.
    pub mirror: Mirror,
    /// What few pods ask for, if it is one of them.
    pub wishes: Option<Box<Wishes>>,
    /// Its labels.
    pub labels: Labels,
    /// The ports of its containers that have names.
    pub ports: Box<[ContainerPort]>,
}

/// The addresses on a pod's annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetwork {
    /// Its addresses, with the lengths of their networks.
    pub addresses: Box<[InterfaceAddress]>,
    /// Its MAC.
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
    /// Reads the annotation.
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

/// The annotation's values of one kind: an older controller wrote a single one only.
pub fn one_or_many(one: Option<String>, many: Vec<String>) -> Vec<String> {
    if many.is_empty() { one.into_iter().collect() } else { many }
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
        metadata.check("Pod")?;
        let ports = || standing_ports(&spec.containers, &spec.init_containers);
        let (recorded, mirror) = status.recorded(metadata.annotation(POD_NETWORKS));
        Ok(Self {
            key: Arc::new(PodKey::new(&metadata.namespace, &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            node: (!spec.node_name.is_empty()).then(|| spec.node_name.as_ref().into()),
            host_network: spec.host_network,
            finished: matches!(&*status.phase, "Succeeded" | "Failed"),
            created: metadata.created(),
            network: recorded.and_then(|text| PodNetwork::read(text).ok()),
            mirror,
            wishes: Wishes {
                request: metadata.annotated(DEFAULT_NETWORK, read_request),
                ingress: metadata.annotated(INGRESS_BANDWIDTH, Rate::read),
                egress: metadata.annotated(EGRESS_BANDWIDTH, Rate::read),
                host_ports: host_ports(spec.host_network, ports()),
            }
            .kept(),
            ports: named_ports(ports()),
            labels: metadata.labels,
        })
    }

    /// Whether the rest is the same.
    pub fn differs_in_network_only(&self, other: &Self) -> bool {
        // All fields are named, so that a new one is not forgotten here.
        let Self { key, uid, node, host_network, finished, created, network: _, mirror: _, wishes, labels, ports } =
            self;
        (key, uid, node, host_network) == (&other.key, &other.uid, &other.node, &other.host_network)
            && (finished, created, wishes) == (&other.finished, &other.created, &other.wishes)
            && (labels, ports) == (&other.labels, &other.ports)
    }

    /// Whether its network is recorded, and its annotation says the same.
    pub fn is_recorded(&self) -> bool {
        self.network.is_some() && self.mirror == Mirror::Same
    }

    /// The addresses that it asks for.
    pub fn request(&self) -> &Annotated<StaticRequest> {
        static NONE: Annotated<StaticRequest> = Annotated::Absent;
        self.wishes.as_ref().map_or(&NONE, |wishes| &wishes.request)
    }

    /// Ports of its node that lead to it.
    pub fn host_ports(&self) -> &[HostPort] {
        self.wishes.as_ref().map_or(&[], |wishes| &wishes.host_ports)
    }

    /// Whether it shall have a port of ours: on which node.
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

/// A list of one attachment, or the attachment's bare name, which asks for nothing.
fn read_request(text: &str) -> Result<StaticRequest, String> {
    if text.trim_start().starts_with('{') {
        return Err(format!("{} is not a list of network attachments: put it into brackets", shortened(text)));
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
    fn only_what_matters_is_read() {
        let pod = parse("", r#""nodeName":"n1","containers":[{"name":"c"}]"#, "Running");
        assert_eq!(pod.wants_port().map(AsRef::as_ref), Some("n1"));
        assert_eq!((&pod.network, pod.mirror), (&None, Mirror::Absent));
        assert_eq!(parse("", r#""nodeName":"n1""#, "Succeeded").wants_port(), None);
        assert_eq!(parse("", r#""nodeName":"n1","hostNetwork":true"#, "Running").wants_port(), None);
        assert_eq!(parse("", "", "Pending").wants_port(), None);
    }

    #[test]
    fn labels_and_named_ports_are_read() {
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
    fn annotations_are_read_or_told() {
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
    fn a_network_is_what_the_status_records() {
        let text = r#"{"default":{"ip_addresses":["10.130.0.5/23"],"mac_address":"0a:58:0a:82:00:05"}}"#;
        let object = |status: serde_json::Value| {
            let metadata = json!({"name": "p", "namespace": "ns", "uid": "u-1", "annotations": {POD_NETWORKS: text}});
            PodFacts::parse(&json!({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}).to_string())
        };
        let claimed = object(json!({"phase": "Pending"})).unwrap();
        assert_eq!((&claimed.network, claimed.mirror, claimed.is_recorded()), (&None, Mirror::Unrecorded, false));
        let given = object(json!({"phase": "Pending", "conditions": [network_condition(text)]})).unwrap();
        assert_eq!(given.network.as_ref().unwrap().addresses[0].to_string(), "10.130.0.5/23");
        assert!(given.is_recorded() && given.differs_in_network_only(&claimed));
    }

    #[test]
    fn what_few_ask_for_costs_the_others_nothing() {
        let plain = parse("", r#""nodeName":"n1","containers":[{"ports":[{"containerPort":80}]}]"#, "Running");
        assert_eq!((&plain.wishes, plain.host_ports()), (&None, [].as_slice()));
        assert_eq!(std::mem::size_of_val(&plain.wishes), std::mem::size_of::<usize>());
    }

    #[test]
    fn ports_of_the_node_are_read() {
        let ports = r#""containers":[{"ports":[{"containerPort":80,"hostPort":8080},
            {"containerPort":53,"hostPort":53,"protocol":"UDP","hostIP":"192.0.2.1"},{"containerPort":9},
            {"containerPort":1,"hostPort":0},{"containerPort":1,"hostPort":70000}]}]"#;
        let pod = parse("", ports, "Running");
        let read: Vec<_> =
            pod.host_ports().iter().map(|port| (port.protocol, port.host, port.container, &*port.address)).collect();
        assert_eq!(read, [(Protocol::Tcp, 8080, 80, ""), (Protocol::Udp, 53, 53, "192.0.2.1")]);
        let on_host = parse("", &format!(r#""hostNetwork":true,{ports}"#), "Running");
        assert!(on_host.host_ports().is_empty(), "it has the ports themselves");
    }

    #[test]
    fn limits_are_read_or_told() {
        let annotations =
            r#","annotations":{"kubernetes.io/ingress-bandwidth":"10M","kubernetes.io/egress-bandwidth":"x"}"#;
        let wishes = parse(annotations, "", "Running").wishes.unwrap();
        assert_eq!(wishes.ingress, Annotated::Valid(Rate(10_000)));
        let why = wishes.egress.broken().unwrap();
        assert!(why.starts_with("annotation kubernetes.io/egress-bandwidth: \"x\" is no bandwidth"), "{why}");
    }

    #[test]
    fn a_pod_without_identity_is_refused() {
        assert!(PodFacts::parse(r#"{"metadata":{}}"#).is_err());
        assert!(PodFacts::parse("[]").is_err());
    }
}
