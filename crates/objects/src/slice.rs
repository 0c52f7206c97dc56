//! EndpointSlices.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use netmodel::Family;
use serde::Deserialize;

use super::Metadata;
use super::Protocol;
use super::annotation::shortened;
use super::service::{HEADLESS, address, number};
use crate::{Name, ObjectKey};

const SERVICE: &str = "kubernetes.io/service-name";

/// What an EndpointSlice says. A Service has several, and their endpoints are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceFacts {
    /// Unique among objects of its kind at one time.
    pub key: Arc<ObjectKey>,
    /// Tells objects apart that had the same name one after the other.
    pub uid: Name,
    /// `creationTimestamp`; compares as time does.
    pub created: Box<str>,
    /// In the same namespace; None if headless.
    pub service: Option<Arc<ObjectKey>>,
    /// Empty for `addressType: FQDN`.
    pub spec: SliceSpec,
    /// The first invalid field, and why; `spec` is empty then.
    pub broken: Option<Box<str>>,
}

/// Endpoints, and the ports that each of them has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SliceSpec {
    /// The same for all endpoints of the slice.
    pub ports: Box<[SlicePort]>,
    /// All of one family.
    pub endpoints: Box<[Endpoint]>,
}

/// A port that every endpoint of the slice has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// Equal to the name of the Service's port.
    pub name: Box<str>,
    /// TCP unless given.
    pub protocol: Protocol,
    /// The target port, not the Service's.
    pub port: u16,
}

/// An address of a Service, with the conditions that decide whether it gets clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The first address; further ones are of the same endpoint.
    pub address: IpAddr,
    /// None if outside the cluster, or unknown.
    pub node: Option<Name>,
    /// True if missing.
    pub ready: bool,
    /// Whether it answers, even if terminating; `ready` if missing.
    pub serving: bool,
    /// Whether its pod is being deleted.
    pub terminating: bool,
    /// From topology-aware routing.
    pub hints: Option<Box<Hints>>,
}

/// The clients that an endpoint is meant for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// `hints.forZones`: the clients in these zones.
    pub zones: Box<[Name]>,
    /// `hints.forNodes`: the clients on these nodes.
    pub nodes: Box<[Name]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    address_type: Option<Word<'a>>,
    #[serde(borrow, default)]
    ports: Option<Vec<Port<'a>>>,
    #[serde(borrow, default)]
    endpoints: Option<Vec<Raw<'a>>>,
}

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Port<'a> {
    #[serde(borrow)]
    name: Option<Word<'a>>,
    #[serde(borrow)]
    protocol: Option<Word<'a>>,
    port: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw<'a> {
    #[serde(borrow)]
    addresses: Vec<Word<'a>>,
    conditions: Option<Conditions>,
    #[serde(borrow)]
    node_name: Option<Word<'a>>,
    #[serde(borrow)]
    hints: Option<RawHints<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawHints<'a> {
    #[serde(borrow)]
    for_zones: Option<Vec<For<'a>>>,
    #[serde(borrow)]
    for_nodes: Option<Vec<For<'a>>>,
}

#[derive(Deserialize)]
struct For<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl SliceFacts {
    /// Parses the object's JSON. An invalid field is reported in [`SliceFacts::broken`], not as an error.
    pub fn parse(json: &str) -> Result<Self, String> {
        let object: Object<'_> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        object.metadata.check("EndpointSlice")?;
        // Not proxied; there may be many, so nothing of them is kept.
        let headless = object.metadata.label(HEADLESS).is_some();
        let (spec, broken) = match if headless { Ok(SliceSpec::default()) } else { object.read() } {
            Ok(spec) => (spec, None),
            Err(why) => (SliceSpec::default(), Some(why.into())),
        };
        let key = Arc::new(ObjectKey::new(&object.metadata.namespace, &object.metadata.name));
        let service = object.metadata.label(SERVICE).filter(|name| !headless && !name.is_empty());
        Ok(Self {
            uid: object.metadata.uid.as_ref().into(),
            created: object.metadata.created(),
            service: service.map(|name| Arc::new(ObjectKey { namespace: key.namespace.clone(), name: name.into() })),
            key,
            spec,
            broken,
        })
    }
}

impl Object<'_> {
    fn read(&self) -> Result<SliceSpec, String> {
        let family = match self.address_type.as_ref().map(|kind| &*kind.0) {
            Some("IPv4") => Family::V4,
            Some("IPv6") => Family::V6,
            Some("FQDN") => return Ok(SliceSpec::default()),
            other => {
                let other = shortened(other.unwrap_or_default());
                return Err(format!("addressType: {other} is not one of IPv4, IPv6, FQDN"));
            }
        };
        let mut ports: Vec<SlicePort> = Vec::new();
        for (index, port) in self.ports.iter().flatten().enumerate() {
            // Without a number it means all ports, which no Service uses.
            let Some(number_) = port.port else { continue };
            let protocol = port.protocol.as_ref().map(|word| &*word.0);
            let name = port.name.as_ref().map_or("", |name| &*name.0);
            if ports.iter().any(|known| &*known.name == name) {
                return Err(format!("ports[{index}].name: {} is a duplicate", shortened(name)));
            }
            ports.push(SlicePort {
                name: name.into(),
                protocol: Protocol::read(&format!("ports[{index}].protocol"), protocol)?,
                port: number(format_args!("ports[{index}].port"), number_)?,
            });
        }
        let endpoints = self.endpoints.iter().flatten().enumerate();
        let endpoints = endpoints.map(|(index, endpoint)| endpoint.read(index, family)).collect::<Result<_, _>>()?;
        Ok(SliceSpec { ports: ports.into(), endpoints })
    }
}

impl Raw<'_> {
    fn read(&self, index: usize, family: Family) -> Result<Endpoint, String> {
        let field = format_args!("endpoints[{index}].addresses");
        let text = self.addresses.first().map_or("", |address| &*address.0);
        let address = address(field, text)?;
        if !family.matches(address) {
            return Err(format!("{field}: {address} is not of the slice's addressType"));
        }
        let conditions = self.conditions.as_ref();
        let ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
        let names = |names: &Option<Vec<For<'_>>>| names.iter().flatten().map(|one| (&*one.name).into()).collect();
        let hints =
            self.hints.as_ref().map(|hints| Hints { zones: names(&hints.for_zones), nodes: names(&hints.for_nodes) });
        Ok(Endpoint {
            address,
            node: self.node_name.as_ref().filter(|node| !node.0.is_empty()).map(|node| (&*node.0).into()),
            ready,
            serving: conditions.and_then(|conditions| conditions.serving).unwrap_or(ready),
            terminating: conditions.and_then(|conditions| conditions.terminating).unwrap_or(false),
            hints: hints.filter(|hints| *hints != Hints::default()).map(Box::new),
        })
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(more: Value) -> SliceFacts {
        let labels = json!({SERVICE: "web"});
        let mut object = json!({"metadata": {"name": "web-1", "namespace": "default", "uid": "u", "labels": labels},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": []});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        SliceFacts::parse(&object.to_string()).unwrap()
    }

    #[test]
    fn a_complete_slice_is_parsed() {
        let endpoint = json!({"addresses": ["10.128.0.5"], "nodeName": "n1", "conditions": {"ready": false, "serving": true,
            "terminating": true}, "hints": {"forZones": [{"name": "a"}]}});
        let read = slice(json!({"endpoints": [endpoint, {"addresses": ["10.128.0.6"]}]}));
        assert_eq!(read.service.unwrap().to_string(), "default/web");
        let [one, two] = &*read.spec.endpoints else { panic!("{:?}", read.spec) };
        assert_eq!((one.ready, one.serving, one.terminating, one.node.as_deref()), (false, true, true, Some("n1")));
        assert_eq!(one.hints.as_ref().unwrap().zones.len(), 1);
        assert_eq!((two.ready, two.serving, two.terminating, &two.hints), (true, true, false, &None));
    }

    #[test]
    fn a_slice_with_the_headless_label_has_no_service() {
        let metadata = json!({"name": "web-1", "namespace": "default", "uid": "u",
            "labels": {SERVICE: "web", HEADLESS: ""}});
        let read = slice(json!({"metadata": metadata, "endpoints": [{"addresses": ["10.128.0.6"]}]}));
        assert_eq!((read.service, read.spec, read.broken), (None, SliceSpec::default(), None));
    }

    #[test]
    fn invalid_fields_are_named() {
        for (more, named) in [
            (json!({"addressType": "Odd"}), "addressType"),
            (json!({"ports": [{"port": 70_000}]}), "ports[0].port"),
            (json!({"ports": [{"port": 80, "protocol": "Odd"}]}), "ports[0].protocol"),
            (json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]}), "ports[1].name"),
            (json!({"ports": [{"port": 0}]}), "ports[0].port"),
            (json!({"endpoints": [{"addresses": []}]}), "endpoints[0].addresses"),
            (json!({"endpoints": [{"addresses": ["10.128.0.5"]}, {"addresses": ["x"]}]}), "endpoints[1].addresses"),
            (json!({"endpoints": [{"addresses": ["224.0.0.1"]}]}), "endpoints[0].addresses"),
            (json!({"addressType": "IPv6", "endpoints": [{"addresses": ["10.128.0.5"]}]}), "endpoints[0].addresses"),
            (json!({"endpoints": [{"addresses": ["fd01::1"]}]}), "endpoints[0].addresses"),
            (json!({"endpoints": [{"addresses": ["127.0.0.1"]}]}), "endpoints[0].addresses"),
        ] {
            let why = slice(more).broken.unwrap();
            assert!(why.starts_with(&format!("{named}: ")), "{why}");
        }
        assert_eq!(slice(json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]})).broken, None);
    }
}
